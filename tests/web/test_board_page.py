"""The page of the board as the service sends it: its first rows, its banner, and its preview."""

import re
from dataclasses import replace
from random import Random

import pytest

from support.asgi import ask
from support.competition_site import CompetitionSite
from support.pages_driver import MINUS
from support.pages_world import sample_row
from tocsin.board.board import ROUND_KEY, PublishedBoard, publish
from tocsin.board.publish import board_at
from tocsin.board.types import BoardRound, BoardRow
from tocsin.web.board_page import curve, page_of, row_html

NOW_MS = 1_795_000_000_000
ROWS = [
    replace(
        sample_row(Random(number), number, NOW_MS - 60_000),
        rank=number,
        trade_count=20,
        pnl_usd=100.0 - number,
        volume_usd=1_000.0,
        latest_trade_at=NOW_MS - 240_000,
    )
    for number in range(1, 31)
]
ROUND = BoardRound("week-2-2026-11-15", NOW_MS - 1, NOW_MS + 86_400_000, False, 50, 3)


def text_of(row: BoardRow) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", row_html(row, row.rank, NOW_MS)))


def test_the_page_has_the_first_rows_and_says_as_of_when() -> None:
    """Twenty-five of thirty, with the sums of all; names are text; the period is that of everything."""
    rows = [replace(ROWS[0], display_name="<b>$rows"), *ROWS[1:]]
    page = page_of(PublishedBoard(rows, NOW_MS, NOW_MS, final=False), "<p>banner</p>", NOW_MS, "https://board.example")

    assert page.count('<tr role="row" data-key="SP') == 25
    assert 'data-phase="shown"' in page
    assert '<div id="round"><p>banner</p></div>' in page
    assert ">&lt;b&gt;$rows</a>" in page
    assert 'As of <time datetime="2026-11-18T11:06:40+00:00">Nov 18, 11:06 UTC</time>.' in page
    assert re.findall(r'id="sum-\w+">([^<]*)<', page) == ["30", "600", "$30,000.00"]
    assert re.findall(r'value="(\w+)" checked', page) == ["all"]
    assert '"og:description" content="&lt;b&gt;$rows leads 30 agents with a P&amp;L of +$99.00.">' in page
    assert '<meta property="og:image" content="https://board.example/leaderboard/card.png">' in page


def test_before_the_first_board_the_page_loads() -> None:
    page = page_of(None, "", NOW_MS, None)

    assert 'data-phase="loading"' in page
    assert "The board is loading." in page
    assert "og:image" not in page


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"rank_change": 3}, "▲3 , up 3 in 24 hours"),
        ({"rank_change": -1}, "▼1 , down 1 in 24 hours"),
        ({"unpriced_tokens": ["a"], "uncounted_trade_count": 1}, "1 unpriced"),
        ({"thin_tokens": ["a"], "uncounted_trade_count": 2, "excess_trade_count": 1}, "1 thin, 1 excessive"),
        ({"pnl_at_trade_usd": -12_345.0}, f"{MINUS}$12.35K at trade"),
    ],
)
def test_a_row_says_what_the_scripts_row_says(change: dict[str, object], shown: str) -> None:
    """Places won or lost, what does not count where it matters, and P&L at trade."""
    text = text_of(replace(ROWS[0], **change))  # type: ignore[arg-type]

    assert "+$99.00" in text
    assert "4 min ago" in text
    assert shown in text
    assert "unpriced" not in text_of(replace(ROWS[0], unpriced_tokens=["a"], trade_count=21, uncounted_trade_count=1))


def test_a_small_curve_keeps_its_gaps() -> None:
    """A point between two gaps is a dot; with one value there is nothing to draw."""
    drawn = curve([1.0, 2.0, None, 3.0, None, 2.0, 1.5])

    assert re.findall('d="([^"]*)"', drawn) == ["M0.0 26.0h.01L16.7 14.0M50.0 2.0h.01M83.3 14.0h.01L100.0 20.0"]
    assert 'aria-label="P&amp;L in 7 days: +$1.00 to +$1.50"' in drawn
    assert curve([None, 4.0]).endswith('aria-hidden="true"><path/></svg>')


async def test_the_page_is_prepared_once_for_each_board(contest: CompetitionSite) -> None:
    """It has the round while one runs; a client that has the page gets 304."""
    deps = contest.deps
    empty = await contest.get("/leaderboard")
    await contest.trade(contest.chain.wallets[0], "simple")
    await publish(deps.kv, await board_at(deps.db, deps.kv, deps.clock.now(), deps.rules))
    await deps.clock.sleep(2)
    first = await contest.get("/leaderboard")
    await deps.clock.sleep(2)
    again = await ask(contest.app, "/leaderboard", headers={"if-none-match": first.headers["etag"]})
    now = deps.clock.now()
    of_round = replace(ROUND, starts_at=now - 1, ends_at=now + 60_000)
    await publish(deps.kv, PublishedBoard(ROWS, now, now, final=False, round=of_round), ROUND_KEY)
    await deps.clock.sleep(2)
    running = (await contest.get("/leaderboard")).body.decode()
    await deps.clock.sleep(60)
    over = (await contest.get("/leaderboard")).body.decode()

    assert b'data-phase="loading"' in empty.body
    assert first.headers["cache-control"] == "no-cache"
    assert first.body.count(b'<tr role="row" data-key') == 1
    assert (again.status, again.body) == (304, b"")
    assert (running.count('<tr role="row" data-key'), 'value="round" checked' in running) == (25, True)
    assert (over.count('<tr role="row" data-key'), 'value="all" checked' in over) == (1, True)
