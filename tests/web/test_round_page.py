"""The pages of rounds: prizes, standings, why an agent is excluded, and how to recount the result."""

import gzip
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from support.pages_rounds import round_row
from support.pages_world import sample_row
from support.round_world import AGENTS, GRACE_S, ROUND_ID, START_S
from tocsin.rounds.round import AgentFlag, RoundWinner
from tocsin.rounds.words import Placed, why, won_by
from tocsin.web.round_page import RoundFacts, banner, page_body
from web.test_rounds import site

NOW_S = 1_795_000_000  # a Wednesday, 11:06:40 UTC
RUNNING = round_row(2, 1_794_700_800)
ANN, BOB = (
    replace(
        sample_row(Random(number), number, NOW_S * 1000),
        rank=number,
        display_name=name,
        erc8004_agent_id=number,
        trade_count=4,
        volume_usd=100.0,
        pnl_usd=10.0 / number,
        pnl_percent=10.0 / number,
    )
    for number, name in ((1, "Ann"), (2, "<i>Bob"))
)
FUNDED = [
    AgentFlag(each, "shared_funder", f"first funded by SPX, like agent {others}", [], ["overall_pnl"])
    for each, others in ((1, "3, 4"), (3, "1, 4"), (4, "1, 3"))
]


def text_of(body: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", body))


def test_a_running_round_has_its_end_its_prizes_and_its_standings() -> None:
    """The countdown is in words, names are text, and nothing is called final."""
    text = text_of(page_body(RoundFacts(RUNNING, [ANN, BOB], None, NOW_S * 1000)))

    assert "Week 2 Ends Sunday 00:00 UTC, in 3 d 12 h ." in text
    assert "Best P&amp;L 50,000 sats Most volume 25,000 sats Best return 25,000 sats" in text
    assert "1 Ann +$10.00 4 trades 2 &lt;i&gt;Bob +$5.00 4 trades" in text
    assert "Tokens whose pools hold less than $10,000, or trade less than $500 a day, do not count" in text
    assert "Recount" not in text


@pytest.mark.parametrize(
    ("shift_s", "shown"),
    [
        (0, "Week 2 · ends Sunday 00:00 UTC, in 3 d 12 h · 100,000 sats in prizes"),
        (-604_800, "Week 2 is over; its result is awaited"),
        (604_800, "Week 2 · starts Sunday 00:00 UTC, in 3 d 12 h · 100,000 sats in prizes"),
        (86_400 * 30, "Week 2 · starts Dec 15, 00:00 UTC, in 26 d 12 h · 100,000 sats in prizes"),
    ],
)
def test_the_banner_says_when_a_round_starts_or_ends(shift_s: int, shown: str) -> None:
    moved = replace(RUNNING, starts_at=RUNNING.starts_at + shift_s, ends_at=RUNNING.ends_at + shift_s)

    assert re.sub("<[^>]+>", "", banner(moved, NOW_S * 1000)) == shown


def test_a_round_that_waits_for_its_result_does_not_say_that_nobody_traded() -> None:
    """The running round's standings are no longer its own; a round that runs without a trade says so."""
    text, quiet = (text_of(page_body(RoundFacts(RUNNING, [], None, at_s * 1000))) for at_s in (RUNNING.ends_at, NOW_S))

    assert "Its result appears here as soon as every swap of it is recorded." in text
    assert "No agent has traded" not in text
    assert "No agent has traded in this round yet." in quiet


def test_the_sentence_about_the_winner_says_why_it_is_not_the_first() -> None:
    """With the reason in a few words; nothing is added when the first one won."""
    fox = RoundWinner("overall_pnl", "SP2", 2, "Fox", 50_000)
    placed = [Placed(1, 1, "SP1", "Ann"), Placed(2, 2, "SP2", "Fox")]

    sentence = won_by("week-1-2026-11-08", fox, placed, FUNDED)
    assert sentence == "Week 1 was won by Fox (rank 2; Ann, rank 1, shares a funder with two agents)"
    assert won_by("week-1", fox, [replace(placed[1], rank=1)], []) == "Week 1 was won by Fox"
    assert won_by("week-1", None, [], []) == "Week 1 has a result; nobody won the prize for the best P&L"
    cleared = [replace(FUNDED[0], cleared=True)]
    assert won_by("week-1", fox, placed, cleared) == "Week 1 was won by Fox"
    assert why(FUNDED[0], FUNDED[:2]) == "shares a funder with another agent"
    assert (
        why(replace(FUNDED[0], kind="churn", reason="12 of 14 trades went there and back"), [])
        == "traded there and back"
    )


def test_a_winner_whose_name_cannot_be_seen_has_an_address() -> None:
    """Nothing after "won by" would say nothing."""
    unseen = RoundWinner("overall_pnl", AGENTS[0], 2, "\u200b\u2060 ", 50_000)

    assert won_by("week-1", unseen, [], []) == f"Week 1 was won by {AGENTS[0][:6]}…{AGENTS[0][-5:]}"


async def test_a_round_has_a_page_from_its_start_to_its_result(tmp_path: Path) -> None:
    """It runs, it waits, it is final: then with its winner, its digest and the command that recounts it.

    It is compressed for those who accept that.
    """
    async with site(tmp_path) as made:
        made.with_settings(public_url="https://board.example")
        made.with_deps(process=replace(made.deps.process, compress=True))
        pages = [await made.get(f"/rounds/{ROUND_ID}")]
        await made.finalize()
        pages.append(await made.get(f"/rounds/{ROUND_ID}"))
        zipped = await made.ask(f"/rounds/{ROUND_ID}", headers={"Accept-Encoding": "gzip"})
        listed = (await made.get("/rounds")).body.decode()
        absent = await made.get("/rounds/none")
        pictures = [
            await made.get(f"/{path}/card.png") for path in (f"rounds/{ROUND_ID}", "rounds/none", "leaderboard")
        ]
        digest = (await made.get(f"/api/competition/rounds/{ROUND_ID}")).json()["round"]["digest"]

    before, after = (page.body.decode() for page in pages)
    assert START_S < GRACE_S
    assert "is not final" in before or "are not final" in before or "is over" in before
    assert f"tocsin recount https://board.example/api/competition/rounds/{ROUND_ID}/file" in after
    assert digest in after
    assert (zipped.headers["content-encoding"], zipped.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert gzip.decompress(zipped.body) == pages[1].body
    assert f'href="/agents/{AGENTS[0]}"' in after
    assert f'<meta property="og:url" content="https://board.example/rounds/{ROUND_ID}">' in after
    assert f'href="/rounds/{ROUND_ID}"' in listed
    assert [picture.status for picture in pictures] == [200, 404, 200]
    assert pictures[0].headers["content-type"] == "image/png"
    assert (absent.status, absent.headers["content-type"]) == (404, "text/html; charset=utf-8")
