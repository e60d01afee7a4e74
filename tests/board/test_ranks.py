"""The ranks of an agent, and the rows of a period, in figures."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.errors import UsageError
from support.competition import price_of
from support.pages_world import sample_row
from tocsin.board.agents import MISSING, BoardRanks, ranks_by_agent
from tocsin.board.board import (
    BoardQuery,
    PeriodFigures,
    PeriodRows,
    PublishedBoard,
    page_of,
    percent_of,
    ranked,
    unit_prices,
)
from tocsin.board.types import BoardRow
from tocsin.swaps import trades as page_token

NOW = 1_778_700_600_000


def row(name: str, pnl: float | None, at: int = NOW, **values: Any) -> BoardRow:
    made = sample_row(Random(1), len(name), NOW)
    agent_id = sum(map(ord, name))
    named = {"stx_address": name, "wallets": [name], "erc8004_agent_id": agent_id, "latest_trade_at": at}
    return replace(made, pnl_usd=pnl, **{**named, **values})


ROWS = [
    row("c", 5.0, NOW - 1),
    row("none", None),
    row("a", 5.0, NOW),
    row("d", -2.0),
    row("b", 5.0, NOW - 1),
    row("zero", 0.0),
]


def names(rows: Sequence[BoardRow]) -> list[str]:
    return [each.stx_address for each in rows]


def test_rows_are_ranked_by_value_then_by_the_latest_trade_then_by_address() -> None:
    """Those without a value are last either way."""
    assert names(ranked(ROWS, "pnl", "desc")) == ["a", "b", "c", "zero", "d", "none"]
    assert names(ranked(ROWS, "pnl", "asc")) == ["d", "zero", "a", "b", "c", "none"]
    assert names(ranked(ROWS, "pnl", "desc", by_place=True)) == ["c", "a", "b", "zero", "d", "none"]


def test_pages_follow_each_other_with_their_ranks() -> None:
    """The last one has no next; a cursor is valid only for its own order."""
    first = page_of(ROWS, BoardQuery(limit=4))
    second = page_of(ROWS, BoardQuery(limit=4, after=first.next))
    whole = page_of(ROWS, BoardQuery(limit=6))

    assert [(each.stx_address, each.rank) for each in first.rows] == [("a", 1), ("b", 2), ("c", 3), ("zero", 4)]
    assert [(each.stx_address, each.rank) for each in second.rows] == [("d", 5), ("none", 6)]
    assert (second.next, whole.next) == (None, None)
    with pytest.raises(UsageError, match="cursor must be next"):
        page_of(ROWS, BoardQuery(sort="volume", after=first.next))


@pytest.mark.parametrize("offset", [0, 10**6])
def test_a_cursor_leads_to_a_million_at_most(offset: int) -> None:
    """Neither before the first row nor beyond."""
    assert BoardQuery(after=page_token.write(["pnl:desc", offset])).offset == offset
    for wrong in (-1, 10**6 + 1):
        with pytest.raises(UsageError):
            page_of(ROWS, BoardQuery(after=page_token.write(["pnl:desc", wrong])))


def test_an_agent_has_a_rank_in_every_order() -> None:
    """By each of its wallets; a wallet that is not on the board has none."""
    rows = [row("a", 1.0, trade_count=5, wallets=["a", "a2"]), row("b", 2.0, trade_count=9)]
    board, found = PublishedBoard(rows, NOW, None, final=False), BoardRanks()

    assert ranks_by_agent(rows)[ord("a")]["pnl"] == ranks_by_agent(rows)[ord("a")]["trades"] == 2
    first = found.find(board, "a2")
    assert first is not None
    assert (first[0].stx_address, first[1]["pnl"]) == ("a", 2)
    assert found.find(board, "x") is None
    newer = PublishedBoard([row("a", 3.0), row("b", 2.0)], NOW + 1, None, final=False)
    again = found.find(newer, "a")
    assert again is not None
    assert again[1]["pnl"] == 1


def test_the_rows_of_a_period_have_its_figures() -> None:
    """In the order of the board; of a period that nothing is known of there are none.

    Tokens are named where trades are left out, and where the P&L is not known, perhaps because of them.
    """
    rows = [row("a", 1.0, capital_usd=10.0, unpriced_tokens=["x"]), row("b", 2.0, unpriced_tokens=["x"])]
    week = PeriodFigures(NOW, [5.0, None], [7.0, 8.0], [1.5, 2.5], [3, 4], [2, 4])
    board, made = PublishedBoard(rows, NOW, None, final=False, periods={"7d": week}), PeriodRows()
    first, second = made.of(board, "7d")

    assert (first.pnl_usd, first.pnl_percent, first.volume_usd, first.trade_count) == (5.0, 50.0, 7.0, 3)
    assert (first.uncounted_trade_count, first.unpriced_tokens) == (1, ["x"])
    assert (second.pnl_usd, second.uncounted_trade_count, second.unpriced_tokens) == (None, 0, ["x"])
    assert (list(made.of(board, "24h")), list(made.of(board, "all"))) == ([], rows)
    newer = PublishedBoard(rows, NOW + 1, None, final=False, periods={"7d": replace(week, pnl_usd=[6.0, None])})
    assert made.of(board, "7d") is made.of(board, "7d")
    assert made.of(newer, "7d")[0].pnl_usd == 6.0
    assert page_of(rows, BoardQuery()).rows[0].stx_address == "b"


def test_what_an_agent_still_has_to_do() -> None:
    """In order; an eligible agent has nothing left to do."""
    assert [len(MISSING[tier]) for tier in ("not_registered", "registered", "genesis", "eligible")] == [3, 2, 1, 0]


def test_a_price_of_a_unit_is_known_or_not() -> None:
    """Decimals are never guessed, and no token is worth zero or infinity."""
    prices = {
        "a": price_of(2.0, 6),
        "b": price_of(None, 6),
        "c": price_of(2.0, None),
        "d": price_of(0.0, 6),
        "e": price_of(float("inf"), 6),
        "f": price_of(3.0, 0),
    }

    assert unit_prices(prices) == {"a": 2e-6, "f": 3.0}
    assert (percent_of(1.0, 4.0), percent_of(None, 4.0), percent_of(1.0, 0), percent_of(1e300, 1e-300)) == (
        25.0,
        None,
        None,
        None,
    )
