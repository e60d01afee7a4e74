"""A preparation with changes at every moment, also during the capture, and random ones: the result is exact."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from holdfast_testing.virtual_time import run_virtual
from support.round_changes import CHANGES, LATER, PREPARE_S, Change, claim, made, populate, published, refuse, run_sql
from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, START_S, STSTX, RoundWorld, round_world, txid
from support.watched_database import Moment, WatchedDatabase, counting
from tocsin.rounds.file import lines_of, read_round_file, recount

WALLETS = (*AGENTS, LATER)


def changed_at(world: RoundWorld, at: int, change: Change) -> WatchedDatabase:
    """The change comes right before a call of the run."""

    async def hook(number: int, moment: Moment) -> None:
        if (number, moment) == (at, "before"):
            world.wrapped = None  # an operator's action is not a call of the run
            await change(world)

    return WatchedDatabase(world.db, hook)


async def finished(world: RoundWorld) -> dict[str, Any]:
    """Return everything published; a change at the moment of the capture makes it wait for the next run."""
    await world.swept(GRACE_S)
    for _ in range(2):
        await world.run(GRACE_S)
    found = await published(world)
    return {name: rows for name, rows in found.items() if not name.endswith(("_changes", "_discrepancies"))}


async def unprepared(directory: Path, *changes: Change) -> dict[str, Any]:
    async with round_world(made(directory)) as world:
        await populate(world)
        world.clock.at_s = PREPARE_S
        for change in changes:
            await change(world)
        return await finished(world)


async def not_eligible(world: RoundWorld) -> None:
    await claim(world, 0, "failed")


async def eligible_again(world: RoundWorld) -> None:
    await claim(world, 0, "verified")


async def nothing(world: RoundWorld) -> None:
    pass


# What happens at the moment, and what happens after the preparation.
DURING: dict[str, tuple[Change, Change]] = {
    "a late swap of another token": (CHANGES["a late swap of another token"][0], nothing),
    "a reorg that moves a swap": (CHANGES["a reorg that moves a swap"][0], nothing),
    "other prices of the end": (CHANGES["other prices of the end"][0], nothing),
    "a decision": (CHANGES["a decision"][0], nothing),
    "a wallet that has become eligible": (CHANGES["a wallet that has become eligible"][0], nothing),
    "a wallet that is not eligible for a while": (not_eligible, eligible_again),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DURING)
async def test_a_change_at_every_moment_of_a_preparation(tmp_path: Path, name: str) -> None:
    """Before every call of the run that prepares; the result is that of a round that was not prepared."""
    change, after = DURING[name]
    expected = await unprepared(tmp_path / "not", change, after)
    number, calls = 0, 1
    while number < calls:
        number += 1
        async with round_world(made(tmp_path / f"{number}")) as world:
            await populate(world)
            watched = world.wrapped = changed_at(world, number, change)
            await world.run(PREPARE_S)
            world.wrapped, calls = None, watched.calls
            await after(world)
            assert await finished(world) == expected, f"before call {number}"
    assert calls > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "a late swap of another token",
        "a reorg that moves a swap",
        "a wallet that has become eligible",
        "a wallet that is not eligible any more",
        "a new refusal",
    ],
)
async def test_a_change_at_every_moment_of_the_capture(tmp_path: Path, name: str) -> None:
    """The result includes it completely or not at all, as for a round that was not prepared."""
    change, _ = CHANGES[name]
    possible = [await unprepared(tmp_path / "with", change), await unprepared(tmp_path / "without")]
    found = []
    number, calls = 0, 1
    while number < calls:
        number += 1
        async with round_world(made(tmp_path / f"{number}")) as world:
            await populate(world)
            await world.run(PREPARE_S)
            await world.swept(GRACE_S)
            watched = world.wrapped = changed_at(world, number, change)
            await world.run(GRACE_S)
            world.wrapped, calls = None, watched.calls
            found.append(possible.index(await finished(world)))
    assert found == sorted(found)
    assert set(found) == {0, 1}


@pytest.mark.slow
async def test_the_closing_of_a_prepared_round_looks_at_no_swap(tmp_path: Path) -> None:
    """It makes the same few calls, however many swaps there are. The file, in several parts, is right."""
    calls, parts = [], []
    for swaps in (0, 5_000):
        async with round_world(made(tmp_path / f"{swaps}")) as world:
            for number in range(swaps):
                await world.swap(1_000 + number, number % 3, ("stx", 1), (STSTX, 1), at_s=START_S + number)
            await world.run(PREPARE_S)
            await world.swept(GRACE_S)
            watched = world.wrapped = counting(world.db)
            await world.run(GRACE_S)
            calls.append(watched.calls)
            assert [each["prepared"] for each in world.log.named("round.finalized")] == [True]
            texts = await world.all("SELECT text FROM competition_round_files ORDER BY part")
            parts.append([row["text"] for row in texts])
    assert calls[0] == calls[1]
    assert [len(each) for each in parts] == [1, 3]
    report = recount(read_round_file(lines_of(parts[1])))  # which checks the digest, too
    assert (report.same, [result.trade_count for result in report.results]) == (True, [1_668, 1_667, 1_668])


Step: TypeAlias = tuple[Any, ...]

LOOK: Step = ("look",)

swap_numbers = st.integers(1, 6)
wallets = st.sampled_from(WALLETS)
amounts = st.integers(1, 300)
times = st.sampled_from([START_S - 1, START_S, START_S + 60, END_S - 1, END_S])
steps = st.one_of(
    st.tuples(st.just("swap"), swap_numbers, wallets, st.booleans(), amounts, amounts, times),
    st.tuples(st.just("unswap"), swap_numbers),
    st.tuples(st.just("refuse"), st.integers(101, 104), wallets, st.text("ab", max_size=2)),
    st.tuples(st.just("unrefuse"), st.integers(101, 104)),
    st.tuples(st.just("claim"), st.integers(0, 3), st.sampled_from(["verified", "failed"])),
    st.tuples(st.just("name"), wallets, st.sampled_from(["Ann", "Bob"])),
    st.tuples(st.just("funder"), wallets, st.sampled_from(["SPX", "SPY"])),
    st.tuples(st.just("price"), st.sampled_from(["stx", STSTX]), st.sampled_from(["1", "0.5"])),
    st.tuples(st.just("decide"), st.integers(10, 13), st.sampled_from(["clear", "exclude"])),
    st.just(LOOK),
)


async def take(world: RoundWorld, step: Step) -> None:
    match step:
        case ("swap", number, wallet, forth, given_, got, at_s):
            await world.unswap(number)
            tokens = ("stx", STSTX) if forth else (STSTX, "stx")
            await world.swap(number, wallet, (tokens[0], given_), (tokens[1], got), at_s=at_s)
        case ("unswap", number):
            await world.unswap(number)
        case ("refuse", number, wallet, reason):
            await refuse(world, number, wallet, reason)
        case ("unrefuse", number):
            await run_sql(world, "DELETE FROM refusals WHERE txid = ?", txid(number))
        case ("claim", agent, status):
            await claim(world, agent, status)
        case ("name", wallet, name):
            await run_sql(world, "UPDATE agents SET display_name = ? WHERE stx_address = ?", name, wallet)
        case ("funder", wallet, funder):
            await run_sql(world, "INSERT OR REPLACE INTO funders VALUES (?, ?, 5, 10, 0, 1)", wallet, funder)
        case ("price", token, price):
            await world.act("price", roundId=ROUND_ID, tokenId=token, priceUsd=price, reason="a test")
        case ("decide", agent, decision):
            await world.act("flag", roundId=ROUND_ID, agentId=agent, decision=decision, reason="a test")


async def history(steps: Sequence[Step], *, prepares: bool) -> tuple[dict[str, Any], list[object]]:
    """All that was published, and whether the result had been prepared."""
    with TemporaryDirectory() as name:
        async with round_world(Path(name)) as world:
            await populate(world)
            world.clock.at_s = PREPARE_S
            for step in steps:
                if prepares and step == LOOK:
                    await world.run(PREPARE_S)
                await take(world, step)
            return await finished(world), [each["prepared"] for each in world.log.named("round.finalized")]


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(steps, max_size=8), st.lists(steps, max_size=6))
def test_random_competitions_have_the_same_result(before: list[Step], after: list[Step]) -> None:
    """One world prepares before the second steps and whenever it looks, the other one never does."""
    whole = [*before, LOOK, *after]
    found, used = run_virtual(history(whole, prepares=True))
    expected, never = run_virtual(history(whole, prepares=False))
    event(f"the preparation is used: {used}")
    assert found["competition_rounds"][0]["status"] == "finalized"
    assert found == expected
    assert never == [False]
    if whole[-1] == LOOK and whole.count(LOOK) <= 6:
        assert used == [True]
