"""The judge: contract and analysis to verdicts, verdicts and campaign to a decision. Pure.

No clock, no network, no random state: the same bundle gives the same bytes on every machine.
"""

from kvgate.decide.judge import judge

__all__ = ["judge"]
