"""How the terminal shows text and figures from outside."""

import re
from typing import Any

import pytest

from support.pages_server import World
from tocsin.board.types import Board
from tocsin.commands import render
from tocsin.commands.render import shown_name
from tocsin.shape import FreeForm

ADDRESS = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR"


@pytest.mark.parametrize(
    ("display_name", "bns_name", "shown"),
    [
        ("Ann", "ann.btc", "Ann"),
        (None, "ann.btc", "ann.btc"),
        ("\u3164\u2800", "ann.btc", "ann.btc"),
        ("\u200b\u2060 ", "\ufeff", ADDRESS),
        ("\x1b]0;owned\x07[bold]A\nB", None, "]0;owned\\[bold]A B"),
    ],
)
def test_an_agent_is_called_by_the_first_name_that_can_be_seen(
    display_name: str | None, bns_name: str | None, shown: str
) -> None:
    """Or by its address. A name is text: neither markup nor a command to the terminal."""
    assert shown_name(ADDRESS, display_name, bns_name) == shown


def test_a_row_with_an_impossible_time_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The board is printed, even with a trade in the year 31690708 and with a huge gain."""
    sample: Any = World.sample(3).rows
    sample[0] |= {"latestTradeAt": 10**18, "pnlUsd": 1e300}
    service: FreeForm = {"ready": True, "state": "ready", "reasons": [], "notes": []}
    around: FreeForm = {"asOf": 1, "pricesAsOf": None, "next": None, "sweptAt": None, "service": service}
    board = Board.from_json({"rows": sample, **around})
    for line in render.board(board):
        render.console().print(line)

    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 5
    assert re.search(r"1e\+300 .* unknown", printed[1])
