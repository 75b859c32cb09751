"""A contract whose risks its own rule cannot keep is refused before anything runs."""

from __future__ import annotations

from kvgate.contract import Contract
from kvgate.errors import UsageError


def check_risks(contract: Contract) -> None:
    """Raises UsageError where a gate would accept an appliance at the design effects less often
    than the contract promises, by the spread that its [planning] assumes.

    Not asked of a rehearsal, which accepts nothing. ``kvgate plan`` shows the whole of it, and with
    ``--from-g2`` by the spread that was measured.
    """
    from kvgate.planning import assumed_spread, chance_at_design  # scipy: only where it is needed

    if contract.rehearsal:
        return
    wanted = 1.0 - contract.risk.producer
    for gate in contract.gates:
        chance = chance_at_design(contract, gate, assumed_spread(contract))
        if chance is not None and chance < wanted:
            raise UsageError(
                f"its risks cannot be kept: G{gate} would accept an appliance at the design "
                f"effects in {100 * chance:.1f} of 100 campaigns, at least {100 * wanted:g} wanted",
                where=f"contract {contract.id}",
                remedy="see kvgate plan; raise max_pairs, widen indifference or design_effect, or "
                "correct the spread in [planning]",
            )
