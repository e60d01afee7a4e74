"""The page of an agent shows true figures."""

import re
from dataclasses import replace
from random import Random

import pytest

from support.pages_world import sample_row
from tocsin.board.agents import TradingStats
from tocsin.board.types import AgentView
from tocsin.prices.price import Price
from tocsin.swaps.types import Trade
from tocsin.text import visible
from tocsin.web.agent_page import AgentFacts, head_of, page_body
from tocsin.web.drawing import CurvePoint

NOW_MS = 1_800_000_000_000
ROW = replace(sample_row(Random(1), 1, NOW_MS), trade_count=19)
VIEW = AgentView(
    address=ROW.stx_address,
    tier="eligible",
    missing=[],
    agent_id=1,
    display_name="Ann",
    bns_name=None,
    ranks={"pnl": 1, "trades": 1, "volume": 1, "latest": 1},
    ranked=10,
    row=ROW,
    last_refusals=[],
    as_of=0,
)
FACTS = AgentFacts(VIEW, [], {}, [], 0, TradingStats(19, 1, 1.0, 3_600))
NO_HISTORY = "The history starts at the next full hour."


def text_of(facts: AgentFacts) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page_body(facts)))


def test_the_win_rate_names_the_trades_that_it_is_a_share_of() -> None:
    """Nineteen were closed; the values of one are known."""
    text = text_of(FACTS)

    assert "Winning closed trades of known value 100% of 1 " in text
    assert "100% of 19" not in text


def test_figures_say_how_far_they_reach() -> None:
    """Of the newest thousand trades, if there are more; the fall is that of the curve."""
    busy = replace(FACTS, view=replace(VIEW, row=replace(ROW, trade_count=1_001)))

    assert "newest 1,000 trades" not in text_of(FACTS)
    assert "of known value, newest 1,000 trades" in text_of(busy)
    assert "Mean holding time, newest 1,000 trades" in text_of(busy)
    assert "Largest P&amp;L drawdown in 30 days" in text_of(FACTS)


def test_a_page_without_a_curve_says_why() -> None:
    """The history has not begun, has just begun, or P&L is not known; without a trade nothing is promised."""
    one = [CurvePoint(0, 1.0)]
    quiet = replace(FACTS, view=replace(VIEW, row=None, ranks=None))

    assert NO_HISTORY in text_of(FACTS)
    assert "The curve starts with the second hour" in text_of(replace(FACTS, curve=one, hours=1))
    unknown = text_of(replace(FACTS, hours=700))
    assert "P&amp;L of these hours is not known: a token that the agent traded had no price." in unknown
    assert NO_HISTORY not in unknown
    assert "over time" not in text_of(quiet)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("99", "0.00000099 STX"), ("100000000", "1 STX"), ("123456789012", "1,234.56789012 STX"), ("0", "0 STX")],
)
def test_amounts_are_exact_and_times_have_a_zone(amount: str, shown: str) -> None:
    """However small they are."""
    trade = Trade("0x1", "SP1", "c", "f", "stx", amount, "stx", "5", 1_800_000_000, 1, "success", "agent", None)
    price = Price(1.0, 8, NOW_MS, stale=False, source="tenero")
    text = text_of(replace(FACTS, trades=[trade], prices={"stx": price}))

    assert f" {shown} " in text
    assert "Jan 15, 08:00 UTC" in text


@pytest.mark.parametrize(
    ("display_name", "bns_name", "shown"),
    [
        ("\u200b\u2060 ", "ann.btc", "ann.btc"),
        ("\u200b\u2060 ", None, None),
        ("\u3164\u2800", "\ufeff", None),
        ("A\u202enn\n B", None, "Ann B"),
        ("\U0001f469\u200d\U0001f680", None, "\U0001f469\u200d\U0001f680"),
    ],
)
def test_a_name_that_cannot_be_seen_is_none(display_name: str, bns_name: str | None, shown: str | None) -> None:
    """The title is the next name, or the address."""
    facts = replace(FACTS, view=replace(VIEW, display_name=display_name, bns_name=bns_name))

    assert head_of(facts, "").title == (shown or f"{ROW.stx_address[:6]}…{ROW.stx_address[-4:]}")
    assert visible(display_name) == ("" if shown in {None, bns_name} else shown)
