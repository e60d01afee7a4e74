"""The page about fair play says what the code does."""

import re
from pathlib import Path
from typing import get_args

from support.attacks import ATTACKS
from tocsin.rounds import thresholds as flag_limits
from tocsin.rounds.round import FlagKind
from tocsin.swaps import lists as funders
from tocsin.swaps import values as swap_excess

PAGE = (Path(__file__).parents[2] / "docs" / "fair-play.md").read_text(encoding="utf-8")


def test_the_page_has_every_threshold_with_its_value() -> None:
    written = {name: int(value) for name, value in re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", PAGE, re.MULTILINE)}
    limits = {name: value for name, value in vars(flag_limits).items() if name.isupper()}

    assert written == {
        **limits,
        "FUNDING_MIN": funders.FUNDING_MIN,
        "SERVICE_NONCE": funders.SERVICE_NONCE,
        "EXCESS_FACTOR": swap_excess.EXCESS_FACTOR,
    }


def test_the_page_has_every_flag_and_every_attack() -> None:
    assert re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE) == list(get_args(FlagKind))
    table = PAGE[PAGE.index("| attack |") : PAGE.index("### A richer attacker")]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:] if line]

    assert [next((name for name in ATTACKS if row.startswith(name)), row) for row in rows] == list(ATTACKS)
