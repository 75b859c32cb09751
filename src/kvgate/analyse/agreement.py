"""Whether two answers to one prompt agree as far as rounding lets them."""

from __future__ import annotations

from kvgate.analyse.results import Answer


def differs(reference: Answer, answer: Answer, tolerance: float) -> bool:
    """Whether an answer differs from the reference beyond what rounding explains.

    Position by position: the same token must have the same log-probability within ``tolerance``
    (nats). Where tokens part, that is allowed only if the reference was nearly undecided there (its
    best two within ``tolerance``), and nothing after it is comparable. A missing log-probability is
    a difference: engines that read broken KV data answer with null ones.
    """
    if not answer.tokens or len(answer.tokens) != len(reference.tokens):
        return True
    for i, (expected, got) in enumerate(zip(reference.tokens, answer.tokens, strict=True)):
        here, there = reference.logprobs[i], answer.logprobs[i]
        if here is None or there is None:
            return True
        if expected != got:
            margin = reference.margins[i]
            return margin is None or margin > tolerance
        if abs(here - there) > tolerance:
            return True
    return False
