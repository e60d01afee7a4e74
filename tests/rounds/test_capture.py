"""What is captured of a round: its swaps, its agents, and the prices of its end."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from statistics import median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.local_store import open_competition
from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, RULES, START_S, STSTX, round_world, txid
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.capture import closing_price, closing_prices
from tocsin.rounds.file import lines_of, read_round_file, recount
from tocsin.rounds.round import RoundOutcome, RoundPrice
from tocsin.swaps.rules import AllowList
from tocsin.swaps.values import SwapWorth

END = 1_800_000_000
END_MS = END * 1000
MINUTE_MS = 60_000
USDA = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"


def point(minutes_before: int, price_usd: str | None, token_id: str = "stx", decimals: int | None = 6) -> PricePoint:
    return PricePoint(token_id, END_MS - minutes_before * MINUTE_MS, price_usd, decimals, "tenero", "20000", "700")


async def test_the_price_of_the_end_is_the_median_of_its_last_hour(tmp_path: Path) -> None:
    """A spike of the last half hour does not move it, nor does anything after the end. Pegs are always there.

    A price is in force for two hours.
    """
    async with open_competition(tmp_path) as db:
        steady = [point(10, "0.9"), point(5, "0.8")]
        calm = [point(minutes, "0.85") for minutes in range(30, 120, 5)]
        spike = [point(minutes, "9") for minutes in (25, 20, 15, 0)]
        after = [point(-5, "500")]
        await db.batch(
            append(db, [*calm, *spike, *steady, *after, point(0, "3", "b"), point(180, "3", "c"), point(119, "3", "d")])
        )

        found = await closing_prices(db, ["stx", USDA, "c", "b", "d", "stx", "unknown"], END)

    assert found == [
        RoundPrice(USDA, "1", 6, "peg", END_MS),
        RoundPrice("d", "3", 6, "tenero", END_MS - 119 * MINUTE_MS, "20000", "700"),
        RoundPrice("stx", "0.85", 6, "tenero", END_MS - 35 * MINUTE_MS, "20000", "700"),
    ]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([point(30, "2")], "2"),  # in force at 7 of the 13 instants
        ([point(29, "2")], None),  # at 6
        ([point(150, "2")], "2"),  # until 30 minutes before the end: 7
        ([point(151, "2")], None),
        ([point(60, "2"), point(30, None)], None),  # from then on the source had none
        ([point(60, "2"), point(29, None)], "2"),
        ([point(60, "2", decimals=None)], None),
        ([point(60, "10"), point(30, "9")], "9"),  # 7 against 6, compared as numbers
        ([point(60, "10"), point(34, "9")], "9"),
        ([point(60, "10"), point(29, "9")], "10"),
        # In force at 12 instants, six each: the lower of the two in the middle.
        ([point(55, "10"), point(25, "9")], "9"),
        ([point(55, "9"), point(25, "10")], "9"),
        ([], None),
    ],
)
def test_at_least_seven_of_thirteen_instants_are_known(points: list[PricePoint], expected: str | None) -> None:
    """Otherwise the token has no price of the end."""
    found = closing_price("stx", points, END_MS)

    assert (None if found is None else found.price_usd) == expected


prices = st.one_of(st.none(), st.sampled_from(["0.5", "1", "2", "10", "30"]))


@pytest.mark.slow
@given(st.dictionaries(st.integers(-10, 200), prices))
def test_it_equals_a_plain_search(by_minute: dict[int, str | None]) -> None:
    """Against a model without an index that searches all points for each instant."""
    known = []
    for instant in range(0, 65, 5):
        in_force = [minutes for minutes in by_minute if instant <= minutes <= instant + 120]
        price = by_minute[min(in_force)] if in_force else None
        if price is not None:
            known.append(Decimal(price))
    expected = median_low(known) if len(known) > 6 else None

    points = [point(minutes, by_minute[minutes]) for minutes in sorted(by_minute, reverse=True)]
    found = closing_price("stx", points, END_MS)

    assert (None if found is None else Decimal(found.price_usd)) == expected


async def test_other_decimals_than_those_of_the_prices_are_refused(tmp_path: Path) -> None:
    """They would change the sums; then nothing is captured. Those of the prices, and unknown tokens, are accepted."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.closed()
        wrong = await world.act("snapshot", roundId=ROUND_ID, decimalsMap={"stx": 6, STSTX: 8})
        unknown = f"{AGENTS[0]}.a-token::a"
        status = await world.status()
        decimals = {"stx": 6, STSTX: 6, unknown: 3}
        right = await world.act("snapshot", roundId=ROUND_ID, decimalsMap=decimals, tokenIds=[USDA])
        priced = await world.column("SELECT token_id FROM competition_round_price_snapshots")

    assert (wrong.ok, wrong.http_status, wrong.code, status) == (False, 409, "wrong_decimals", "closed")
    assert wrong.detail == (f"{STSTX} has 6 decimals, not 8: amounts would count wrong. Leave its decimals out.")
    assert right.ok
    assert USDA in priced  # nobody traded it, but the operator named it


async def test_only_swaps_within_the_round_count(tmp_path: Path) -> None:
    """From its start until before its end, and only of agents that are eligible."""
    async with round_world(tmp_path) as world:
        await world.swap(10, 0, ("stx", 1), (STSTX, 1_000), at_s=START_S - 1)
        await world.swap(11, 0, ("stx", 1), (STSTX, 5), at_s=START_S)
        await world.swap(12, 0, ("stx", 2), (STSTX, 7), at_s=END_S - 1)
        await world.swap(13, 0, ("stx", 1), (STSTX, 1_000), at_s=END_S)
        await world.claim(1, "failed")
        await world.finalized()
        results = await world.results("erc8004_agent_id, trade_count, pnl_usd")

    assert results == [(10, 3, 19.0), (12, 1, 0.0)]


async def test_an_excessive_swap_is_captured_and_has_no_value(tmp_path: Path) -> None:
    """At the prices of its time, not of the end. The file shows why, and recounts to the same result."""
    async with round_world(tmp_path) as world:
        for token, price in (("stx", "1"), (STSTX, "10")):
            await world.price(token, price, START_S)
        await world.swap(11, 1, ("stx", 10), (STSTX, 6))  # 10 USD for 60 USD; 6 USD at the end
        await world.swap(12, 2, ("stx", 1_000), (STSTX, 400))
        await world.finalized()
        results = await world.results("erc8004_agent_id, trade_count, priced_trade_count, pnl_usd")
        read = read_round_file(lines_of("".join(await world.file())))
        flags = await world.column("SELECT flag_json FROM competition_round_flags WHERE kind = 'excess'")

    # Of the swaps of the world, the first two of 85 and 190 stSTX for 75 and 200 STX were excessive at that price too.
    assert results == [(12, 2, 1, -600.0), (10, 1, 0, 0.0), (11, 2, 0, 0.0)]
    assert len(read.inputs.excesses) == 4
    assert read.inputs.excesses[3] == SwapWorth(txid(11), "10", "20000", "60", "20000")
    assert recount(read).same
    assert json.loads(flags[1]) == {
        "erc8004_agent_id": 11,
        "kind": "excess",
        "reason": "2 of 2 trades were worth more than a pool can pay; it received 1,900.00 USD for 200.00 USD, which"
        " is more than 5 times as much",
        "txids": [txid(2), txid(11)],
        "excludes_from": [],
        "cleared": False,
    }


async def test_flags_see_who_funded_a_wallet(tmp_path: Path) -> None:
    """The first funder is captured with the agents, where it is known for certain; a look ahead sees the same."""
    async with round_world(tmp_path) as world:
        for address, funder, complete in ((AGENTS[0], "SPX", 1), (AGENTS[1], "SPX", 1), (AGENTS[2], "SPX", 0)):
            await world.execute("INSERT INTO funders VALUES (?, ?, 5, 10, 0, ?)", address, funder, complete)
        await world.swept(GRACE_S)
        ahead = await world.act("finalize", roundId=ROUND_ID, dry_run=True)
        await world.run(GRACE_S)
        funders = await world.column("SELECT first_funder FROM competition_round_agents ORDER BY erc8004_agent_id")
        flagged = "SELECT erc8004_agent_id FROM competition_round_flags WHERE kind = 'shared_funder' ORDER BY 1"
        shared = await world.column(flagged)

    assert (funders, shared) == (["SPX", "SPX", None], [10, 11])
    looked = RoundOutcome.from_json(ahead.outcome)
    assert [flag.erc8004_agent_id for flag in looked.flags if flag.kind == "shared_funder"] == shared


async def test_a_look_at_a_running_round_uses_the_prices_of_now(tmp_path: Path) -> None:
    """As if it ended now: the prices of its end are not known yet. Nothing is written."""
    now_s = END_S - 7_200
    async with round_world(tmp_path) as world:
        await world.prices_around(now_s, stx="3", ststx="4")
        world.clock.at_s = now_s
        running = await world.act("finalize", roundId=ROUND_ID, dry_run=True)
        statuses = await world.column("SELECT status FROM competition_rounds")

    first = RoundOutcome.from_json(running.outcome).results[0]
    assert running.detail == "as if it ended now: 3 swaps, 2 prices"
    assert (first.priced_trade_count, first.unpriced_tokens) == (first.trade_count, [])
    assert statuses == ["open"]


async def test_prices_after_the_end_do_not_matter(tmp_path: Path) -> None:
    """The round is captured an hour later, at the prices of its end; one that an operator set holds."""
    async with round_world(tmp_path) as world:
        await world.prices_around(END_S + 3_601, stx="5", ststx="7")
        await world.act("price", roundId=ROUND_ID, tokenId=STSTX, priceUsd="2", decimals=6, reason="a test")
        await world.finalized()
        prices = await world.all(
            "SELECT token_id, price_usd_exact, source FROM competition_round_price_snapshots ORDER BY token_id DESC"
        )

    assert [tuple(price.values()) for price in prices] == [("stx", "1", "tenero"), (STSTX, "2", "manual_admin")]


async def test_a_forced_capture_takes_the_record_as_it_is(tmp_path: Path) -> None:
    """No block is proven, and a swap that is recorded after it is a discrepancy."""
    async with round_world(tmp_path) as world:
        await world.closed()
        await world.act("snapshot", roundId=ROUND_ID, force=True, reason="Hiro is down")
        await world.swap(70, 1, ("stx", 1), (STSTX, 9), at_s=START_S)
        await world.act("finalize", roundId=ROUND_ID)
        head = await world.all("SELECT text FROM competition_round_files")
        await world.run(GRACE_S + 60)

        assert '"complete_until_block":null,' in head[0]["text"]
        assert await world.all("SELECT kind FROM competition_round_discrepancies") == [{"kind": "late"}]


async def test_the_file_has_the_version_of_the_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(RULES, allowlist=AllowList({"SP1.pool": frozenset({"swap"})}))
    async with round_world(tmp_path) as world:
        monkeypatch.setattr("support.round_world.RULES", later)
        await world.swept(GRACE_S, later)
        await world.run(GRACE_S)
        head = await world.all("SELECT text FROM competition_round_files")

    assert '"allowlist_version":"4259609f293f"' in head[0]["text"]


@pytest.mark.slow
async def test_a_file_in_several_parts_is_the_result_of_every_swap(tmp_path: Path) -> None:
    """The copy is read and the file written page by page."""
    async with round_world(tmp_path) as world:
        for number in range(5_000):
            await world.swap(1_000 + number, number % 3, ("stx", 1), (STSTX, 1), at_s=START_S + number)
        await world.finalized()
        parts = await world.file()
    assert len(parts) == 3
    report = recount(read_round_file(lines_of("".join(parts))))  # which checks the digest, too
    assert (report.same, [result.trade_count for result in report.results]) == (True, [1_668, 1_667, 1_668])


async def test_a_captured_round_that_is_void_keeps_what_was_captured(tmp_path: Path) -> None:
    """It was shown to everybody."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        before = await world.everything()
        await world.act("void", roundId=ROUND_ID, reason="a test")
        after = await world.everything()

    for table in ("results", "swaps", "files", "agents", "refusals", "price_snapshots"):
        name = f"competition_round_{table}"
        assert after[name] == before[name]
    assert len(after["competition_round_swaps"]) == 3
