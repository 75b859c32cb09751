"""A long run that could prove nothing is refused before anybody signs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.contract import parse_contract
from kvgate.errors import UsageError

TEXT = (Path(__file__).parents[2] / "gates" / "contracts" / "rehearsal.toml").read_text()


def changed(old: str, new: str) -> bytes:
    head, mark, soak = TEXT.partition("[gate4.soak]")
    assert old in soak
    return (head + mark + soak.replace(old, new, 1)).encode()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("edge_s = 240.0", "edge_s = 900.0", "stretch overlap"),
        ("edge_s = 240.0", "edge_s = 60.0", "shorter than a window"),
        ('workload = "cold_restore"', 'workload = "warm"', "no cold restore"),
        ('workload = "probe"', 'workload = "cold_restore"', "no workload of kind probe"),
        ("every_s = 25.0", "every_s = 500.0", "window would have no canary"),
        ('reference_arm = "recompute"', 'reference_arm = "baseline"', "must have no store"),
        ("upper_tiers_tokens = 131072", "upper_tiers_tokens = 0", "greater than 0"),
        ('faults = [{ kind = "store-restart", at_s = 480.0 }]', "", "needs faults"),
    ],
)
def test_a_soak_that_proves_nothing_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_contract(changed(old, new), name="a.toml")


def test_wrong_answers_need_canaries() -> None:
    head, mark, soak = TEXT.partition("[gate4.soak.canaries]")
    assert mark
    rest = soak[soak.index("[[gate4.clause]]") :]
    with pytest.raises(UsageError, match="needs the soak's canaries"):
        parse_contract((head + rest).encode(), name="a.toml")
