"""A prepared result is exactly the result that would be computed after the grace, whatever changes and whenever."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast_testing.virtual_time import run_virtual
from support.history_rows import mark_excessive
from support.round_world import (
    AGENTS,
    END_S,
    GRACE_S,
    LATER,
    PREPARE_S,
    REGISTER,
    ROUND_ID,
    RULES,
    START_S,
    STRANGER,
    STSTX,
    RoundWorld,
    round_world,
    txid,
)
from support.watched_database import Killed, Moment, WatchedDatabase, counting
from tocsin.rounds import capture, finalize
from tocsin.rounds.capture import Preparation
from tocsin.rounds.file import lines_of, read_round_file, recount
from tocsin.rounds.finalize import is_due
from tocsin.rounds.round import RoundInputs, RoundOutcome
from tocsin.rounds.score import scoring
from tocsin.rounds.store import all_rounds, current_rounds, iso_time
from tocsin.scheduler.task import TaskResult
from tocsin.swaps.rules import AllowList

OTHER_TOKEN = f"{AGENTS[0]}.other::other"
Change: TypeAlias = Callable[[RoundWorld], Awaitable[Any]]
Step: TypeAlias = tuple[Any, ...]
LOOK: Step = ("look",)
WALLETS = (*AGENTS, LATER)
IDENTITY = "UPDATE agents SET erc8004_agent_id = ? WHERE stx_address = ?"
FUNDER = "INSERT OR REPLACE INTO funders VALUES (?, ?, 5, 10, 0, 1)"
COPIES = (
    "competition_round_swaps",
    "competition_round_files",
    "competition_round_agents",
    "competition_round_refusals",
    "competition_round_price_snapshots",
)


async def set_price(world: RoundWorld, token: str = STSTX, usd: str = "1.5") -> None:
    await world.act("price", roundId=ROUND_ID, tokenId=token, priceUsd=usd, reason="a test")


async def decide(world: RoundWorld, agent: int = 10, decision: str = "exclude") -> None:
    await world.act("flag", roundId=ROUND_ID, agentId=agent, decision=decision, reason="a test")


async def prices_of_the_end_move(world: RoundWorld) -> None:
    await world.execute("DELETE FROM price_points")
    await world.prices_around(END_S, stx="1", ststx="2")


async def moved(world: RoundWorld) -> None:
    await world.unswap(2)
    await world.swap(2, 1, ("stx", 200), (STSTX, 191), at_s=START_S + 61)


async def moved_out(world: RoundWorld) -> None:
    await world.unswap(2)
    await world.swap(2, 1, ("stx", 200), (STSTX, 190), at_s=END_S)


async def other_token(world: RoundWorld) -> None:
    """Trade a token that has a price of the end which was not needed before."""
    for at_s in range(END_S - 3_600, END_S + 1, 600):
        await world.price(OTHER_TOKEN, "2", at_s)
    await world.swap(60, 0, ("stx", 3), (OTHER_TOKEN, 4), at_s=START_S + 5)


async def unrefuse(world: RoundWorld, number: int) -> None:
    await world.execute("DELETE FROM refusals WHERE txid = ?", txid(number))


async def eligible_again(world: RoundWorld) -> None:
    await world.claim(2, "failed")
    await world.claim(2, "verified")


# By name: the change, and whether the preparation is used after it.
CHANGES: dict[str, tuple[Change, bool]] = {
    "nothing": (lambda world: world.all("SELECT 1"), True),
    "a swap after the end": (lambda world: world.swap(61, 0, ("stx", 1), (STSTX, 9), at_s=END_S), True),
    "prices after the end": (lambda world: world.prices_around(END_S + 3_601, stx="5"), True),
    "a swap that is found late": (lambda world: world.swap(62, 0, ("stx", 1), (STSTX, 9), at_s=START_S), False),
    "a late swap of another token": (other_token, False),
    "a reorg that takes a swap": (lambda world: world.unswap(1), False),
    "a reorg that moves a swap": (moved, False),
    "a reorg that moves a swap out of the round": (moved_out, False),
    "a new refusal": (lambda world: world.refuse(110, AGENTS[0]), False),
    "another reason of a refusal": (lambda world: world.refuse(101, AGENTS[1], "another"), False),
    "a refusal that is opened again": (lambda world: unrefuse(world, 101), False),
    "a refusal of a stranger": (lambda world: world.refuse(111, STRANGER), True),
    "a stranger who registers": (lambda world: world.execute(REGISTER, "bc1q9", STRANGER, 19), False),
    "a wallet that is not eligible any more": (lambda world: world.claim(2, "failed"), False),
    "a wallet that is eligible again": (eligible_again, True),
    "a wallet that has become eligible": (lambda world: world.claim(3, "verified"), False),
    "another identity": (lambda world: world.execute(IDENTITY, 10, AGENTS[1]), False),
    "another name": (lambda world: world.execute("UPDATE agents SET display_name = 'Zoë'"), False),
    "another owner": (lambda world: world.execute("UPDATE agents SET owner = 'SPO'"), False),
    "a first funder": (lambda world: world.execute(FUNDER, AGENTS[0], "SPX"), False),
    "a price of an operator": (set_price, False),
    "other prices of the end": (prices_of_the_end_move, False),
    "a decision": (decide, False),
}


@asynccontextmanager
async def big_world(directory: Path, *, prepared: bool = False) -> AsyncIterator[RoundWorld]:
    """A world with more than a running round, in which the result may be prepared."""
    async with round_world(directory) as world:
        await world.populate()
        if prepared:
            await world.run(PREPARE_S)
        yield world


async def result_of(world: RoundWorld) -> dict[str, Any]:
    await world.finalized()
    return await world.published()


def used(world: RoundWorld) -> list[object]:
    """Return for each result whether it had been prepared."""
    return [each["prepared"] for each in world.log.named("round.finalized")]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_after_the_preparation(tmp_path: Path, name: str) -> None:
    """The preparation is used only if nothing of the round has changed, and every byte is the same as without it."""
    change, is_used = CHANGES[name]
    async with big_world(tmp_path / "prepared", prepared=True) as world, big_world(tmp_path / "not") as other:
        assert len(world.log.named("round.prepared")) == 1
        for each in (world, other):
            each.clock.at_s = GRACE_S - 5
            await change(each)
        expected = await result_of(other)

        assert await result_of(world) == expected
        assert (used(world), used(other)) == ([is_used], [False])
        assert await world.all("SELECT * FROM competition_round_preparations") == []
        assert await world.all("SELECT * FROM competition_round_prepared_outcomes") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, is_used) in CHANGES.items() if not is_used])
async def test_what_has_changed_is_prepared_again(tmp_path: Path, name: str) -> None:
    """The next check during the grace sees it. Then the result is ready, and the same."""
    change, _ = CHANGES[name]
    async with big_world(tmp_path / "prepared", prepared=True) as world, big_world(tmp_path / "not") as other:
        for each in (world, other):
            each.clock.at_s = PREPARE_S + 100
            await change(each)
        await world.run(PREPARE_S + 300)
        await world.run(PREPARE_S + 600)
        expected = await result_of(other)

        assert await result_of(world) == expected
        assert (used(world), len(world.log.named("round.prepared"))) == ([True], 2)


async def test_a_round_is_prepared_from_the_middle_of_its_grace(tmp_path: Path) -> None:
    """Nobody sees it, the round stays open, and the alarm is set for the end of the grace."""
    async with big_world(tmp_path / "world") as world:
        await world.run(PREPARE_S - 1)
        assert world.log.named("round.prepared") == []
        before = [await current_rounds(world.db, PREPARE_S), await all_rounds(world.db, PREPARE_S)]
        looked = await world.run(PREPARE_S)

        assert world.log.named("round.prepared") == [{"round": ROUND_ID, "took_ms": 0}]
        assert [await current_rounds(world.db, PREPARE_S), await all_rounds(world.db, PREPARE_S)] == before
        assert (await world.status(), looked.wake_at, looked.incomplete) == ("open", GRACE_S * 1000, None)
        assert await world.all("SELECT * FROM competition_round_results") == []
        assert len(await world.all("SELECT * FROM competition_round_swaps")) == 3


async def test_a_round_that_waits_is_prepared(tmp_path: Path) -> None:
    """The service was down during the grace: while the round waits for its data, the result is prepared."""
    async with big_world(tmp_path / "prepared") as world, big_world(tmp_path / "not") as other:
        await world.run(GRACE_S + 600)
        waits = (await world.status(), len(world.log.named("round.prepared")))
        for each in (world, other):
            await each.swept(GRACE_S + 650)
            await each.run(GRACE_S + 660)
            await each.execute("UPDATE competition_rounds SET closed_at = 'one minute apart'")

        assert (waits, used(world), used(other)) == (("closed", 1), [True], [False])
        assert await world.published() == await other.published()


async def test_a_forced_capture_uses_it(tmp_path: Path) -> None:
    """An operator takes the record as it is: the block up to which it is proven is the one of the capture."""
    async with big_world(tmp_path / "world", prepared=True) as world:
        await world.closed()
        await world.act("snapshot", roundId=ROUND_ID, force=True, reason="Hiro is down")
        states = await world.all("SELECT state FROM competition_round_preparations")
        await world.swap(70, 0, ("stx", 1), (STSTX, 9), at_s=START_S)  # after the capture: a discrepancy
        await world.act("finalize", roundId=ROUND_ID)
        head = await world.all("SELECT text FROM competition_round_files")
        await world.run(GRACE_S + 60)

        assert (states, used(world)) == ([{"state": "captured"}], [True])
        assert '"complete_until_block":null,' in head[0]["text"]
        assert await world.all("SELECT kind FROM competition_round_discrepancies") == [{"kind": "late"}]


async def test_another_release_computes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service was upgraded after the preparation: the scores of another release are not published."""
    async with big_world(tmp_path / "world", prepared=True) as world, big_world(tmp_path / "not") as other:
        expected = await result_of(other)
        monkeypatch.setattr(finalize, "__version__", "99.0")

        assert await result_of(world) == expected
        assert used(world) == [False]


async def test_another_allow_list_computes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is in the file."""
    later = replace(RULES, allowlist=AllowList({"SP1.pool": frozenset({"swap"})}))
    async with big_world(tmp_path / "world", prepared=True) as world:
        monkeypatch.setattr("support.round_world.RULES", later)
        await world.swept(GRACE_S, later)
        await world.run(GRACE_S)
        head = await world.all("SELECT text FROM competition_round_files")

        assert used(world) == [False]
        assert '"allowlist_version":"4259609f293f"' in head[0]["text"]


async def test_the_next_version_is_prepared_anew(tmp_path: Path) -> None:
    """A reopened round that waits: its second result is prepared, too, and the file of the first one stays."""
    async with big_world(tmp_path / "world", prepared=True) as world:
        await result_of(world)
        await world.act("reopen", roundId=ROUND_ID, reason="a swap came late")
        await world.swap(70, 1, ("stx", 1), (STSTX, 500), at_s=START_S)
        await world.execute("UPDATE marks SET walked_at = NULL")
        await world.run(GRACE_S + 300)
        waits = await world.status()
        first = await world.all("SELECT text FROM competition_round_files WHERE version = 1")
        await world.swept(GRACE_S + 400)
        await world.run(GRACE_S + 600)
        winner, *_ = await world.results("stx_address")

        assert (waits, used(world), winner) == ("closed", [True, True], (AGENTS[1],))
        assert await world.all("SELECT text FROM competition_round_files WHERE version = 1") == first


async def test_a_void_round_has_no_preparation(tmp_path: Path) -> None:
    async with big_world(tmp_path / "world", prepared=True) as world:
        await world.act("void", roundId=ROUND_ID, reason="a test")
        await world.run(PREPARE_S + 300)

        assert await world.all("SELECT * FROM competition_round_preparations") == []


async def test_a_preparation_that_fails_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """A price of 0 cannot be scored. The round waits for nothing yet; it is stuck when its grace is over."""
    async with big_world(tmp_path / "world") as world:
        await world.impossible_price()
        looked = await world.run(PREPARE_S)
        told = world.log.named("round.not_prepared")
        await world.swept(GRACE_S)
        stuck = await world.run(GRACE_S)

    problem = "A price is above 0. A token without one is left out."
    assert (looked.incomplete, looked.counters["waiting"]) == (None, {})
    assert told == [{"round": ROUND_ID, "reason": problem}]
    assert stuck.incomplete == f"{ROUND_ID} waits: its next step failed: {problem}"


async def test_without_the_price_of_stx_nothing_is_prepared(tmp_path: Path) -> None:
    """It would not be used: an operator sets the price first."""
    async with big_world(tmp_path / "world") as world:
        await world.execute("DELETE FROM price_points")
        await world.run(PREPARE_S)

        assert await world.all("SELECT * FROM competition_round_preparations") == []


async def test_a_preparation_that_takes_too_long_stops(tmp_path: Path) -> None:
    """The run ends as usual, with the alarm for the end of the grace. The next one tries again."""
    async with big_world(tmp_path / "world") as world:

        async def slow(number: int, moment: Moment) -> None:
            world.clock.at_s += 20

        world.wrapped = WatchedDatabase(world.db, slow)
        stopped = await world.run(PREPARE_S)
        told = world.log.named("round.not_prepared")
        states = await world.column("SELECT state FROM competition_round_preparations")
        world.wrapped = None
        await world.run(PREPARE_S + 900)
        await result_of(world)

        assert (stopped.wake_at, stopped.incomplete) == (GRACE_S * 1000, None)
        assert ([each["round"] for each in told], states) == ([ROUND_ID], ["begun"])
        assert used(world) == [True]


async def test_an_excess_that_is_found_after_the_preparation_is_in_the_result(tmp_path: Path) -> None:
    """A prepared result is used only if it was computed from the same excesses."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.run(END_S + 2_000)
        prepared = await world.all("SELECT state FROM competition_round_preparations")
        await mark_excessive(world.db, 1)
        await world.run(GRACE_S)
        results = await world.results("erc8004_agent_id, priced_trade_count")

    assert prepared == [{"state": "ready"}]
    assert results == [(12, 1), (11, 1), (10, 0)]


@pytest.mark.parametrize(
    ("attempts", "since_s", "expected"),
    [(5, 0, True), (6, 119, False), (6, 120, True), (6, -1, True), (9, 959, False), (9, 960, True)],
)
def test_a_preparation_is_tried_again_at_longer_intervals(attempts: int, since_s: int, expected: bool) -> None:
    """After six times; one that was begun in the future, before the clock was set back, does not delay it."""
    begun = Preparation(attempts, iso_time(START_S * 1000), "outdated", frozenset(), None)

    assert is_due(begun, (START_S + since_s) * 1000) == expected


# Changes at every moment


async def at_every_call(
    directory: Path, change: Change, *, prepared: bool
) -> AsyncIterator[tuple[int, RoundWorld, TaskResult]]:
    """Yield worlds after the run that prepares or captures: in each, the change came right before another call."""
    at, calls = 0, 1
    while at < calls:
        at += 1
        async with big_world(directory / f"{at}", prepared=prepared) as world:
            if prepared:
                await world.swept(GRACE_S)

            async def hook(number: int, moment: Moment, world: RoundWorld = world, at: int = at) -> None:
                if (number, moment) == (at, "before"):
                    world.wrapped = None  # an operator's action is not a call of the run
                    await change(world)

            watched = world.wrapped = WatchedDatabase(world.db, hook)
            run = await world.run(GRACE_S if prepared else PREPARE_S)
            world.wrapped, calls = None, watched.calls
            yield at, world, run
    assert calls > 20


async def finished(world: RoundWorld) -> dict[str, Any]:
    """Return everything published; a change at the moment of the capture makes it wait for the next run."""
    await world.swept(GRACE_S)
    for _ in range(2):
        await world.run(GRACE_S)
    found = await world.published()
    return {name: rows for name, rows in found.items() if not name.endswith(("_changes", "_discrepancies"))}


async def unprepared(directory: Path, *changes: Change) -> dict[str, Any]:
    async with big_world(directory) as world:
        world.clock.at_s = PREPARE_S
        for change in changes:
            await change(world)
        return await finished(world)


# What happens at the moment, and what happens after the preparation.
DURING: dict[str, tuple[Change, Change]] = {
    **{
        name: (CHANGES[name][0], CHANGES["nothing"][0])
        for name in (
            *("a late swap of another token", "a reorg that moves a swap", "other prices of the end", "a decision"),
            "a wallet that has become eligible",
        )
    },
    "a wallet that is not eligible for a while": (
        lambda world: world.claim(0, "failed"),
        lambda world: world.claim(0, "verified"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DURING)
async def test_a_change_at_every_moment_of_a_preparation(tmp_path: Path, name: str) -> None:
    """Before every call of the run that prepares; the result is that of a round that was not prepared."""
    change, after = DURING[name]
    expected = await unprepared(tmp_path / "not", change, after)
    async for number, world, _ in at_every_call(tmp_path, change, prepared=False):
        await after(world)
        assert await finished(world) == expected, f"before call {number}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("a late swap of another token", "a reorg that moves a swap", "a wallet that has become eligible"),
        *("a wallet that is not eligible any more", "a new refusal"),
    ],
)
async def test_a_change_at_every_moment_of_the_capture(tmp_path: Path, name: str) -> None:
    """The result includes it completely or not at all, as for a round that was not prepared."""
    change, _ = CHANGES[name]
    possible = [await unprepared(tmp_path / "with", change), await unprepared(tmp_path / "without")]
    worlds = at_every_call(tmp_path, change, prepared=True)
    found = [possible.index(await finished(world)) async for _, world, _ in worlds]
    assert found == sorted(found)
    assert set(found) == {0, 1}


@pytest.mark.slow
async def test_the_closing_of_a_prepared_round_looks_at_no_swap(tmp_path: Path) -> None:
    """It makes the same few calls, however many swaps there are. The file, in several parts, is right."""
    calls, parts = [], []
    for swaps in (0, 5_000):
        async with round_world(tmp_path / f"{swaps}") as world:
            for number in range(swaps):
                await world.swap(1_000 + number, number % 3, ("stx", 1), (STSTX, 1), at_s=START_S + number)
            await world.run(PREPARE_S)
            await world.swept(GRACE_S)
            watched = world.wrapped = counting(world.db)
            await world.run(GRACE_S)
            calls.append(watched.calls)
            assert used(world) == [True]
            parts.append(await world.file())
    assert calls[0] == calls[1]
    assert [len(each) for each in parts] == [1, 3]
    report = recount(read_round_file(lines_of(parts[1])))  # which checks the digest, too
    assert (report.same, [result.trade_count for result in report.results]) == (True, [1_668, 1_667, 1_668])


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
            await world.refuse(number, wallet, reason)
        case ("unrefuse", number):
            await unrefuse(world, number)
        case ("claim", agent, status):
            await world.claim(agent, status)
        case ("name", wallet, name):
            await world.execute("UPDATE agents SET display_name = ? WHERE stx_address = ?", name, wallet)
        case ("funder", wallet, funder):
            await world.execute(FUNDER, wallet, funder)
        case ("price", token, price):
            await set_price(world, token, price)
        case ("decide", agent, decision):
            await decide(world, agent, decision)


async def history(steps: Sequence[Step], *, prepares: bool) -> tuple[dict[str, Any], list[object]]:
    """All that was published, and whether the result had been prepared."""
    with TemporaryDirectory() as name:
        async with big_world(Path(name)) as world:
            world.clock.at_s = PREPARE_S
            for step in steps:
                if prepares and step == LOOK:
                    await world.valued(PREPARE_S * 1000)  # an excess that is found later outdates the preparation
                    await world.run(PREPARE_S)
                await take(world, step)
            return await finished(world), used(world)


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


# Other activity: operators who end or add a round, another release, a slow database


@pytest.mark.slow
@pytest.mark.parametrize("action", ["void", "finalize"])
async def test_an_operator_ends_a_round_that_is_finalized(tmp_path: Path, action: str) -> None:
    """Before every call of the run: the run ends well, and the round has one result or none."""
    async for _, world, run in at_every_call(tmp_path, lambda world: try_to(world, action), prepared=True):
        results = await world.results("rank")
        assert run.incomplete is None
        assert (await world.status(), len(results)) in {("finalized", 3), ("void", 0), ("void", 3)}


async def try_to(world: RoundWorld, action: str) -> None:
    """The round may not be in a status for it."""
    try:
        await world.act(action, roundId=ROUND_ID, reason="a test")
    except HoldfastError as error:
        assert "409" in repr(error) or "wrong_status" in repr(error)  # noqa: PT017 - any other error is a defect


async def test_after_a_rollback_the_file_has_the_published_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that scores otherwise wrote its file and was killed. The one before must not publish that file."""
    async with big_world(tmp_path / "world", prepared=True) as world:
        await world.swept(GRACE_S)
        await world.closed(captured=True)

        def other_scoring(inputs: RoundInputs) -> Generator[None, None, RoundOutcome]:
            outcome = yield from scoring(inputs)
            return replace(outcome, rewards=[])

        with monkeypatch.context() as newer:
            newer.setattr(finalize, "__version__", "99.0")
            newer.setattr(finalize, "scoring", other_scoring)
            world.wrapped = KilledAtTheEnd(world.db, no_hook)
            with pytest.raises(Killed):
                await world.run(GRACE_S + 5)
        overwritten, world.wrapped = await world.file(), None
        await world.run(GRACE_S + 60)
        published = await world.file()
        rewards = await world.all("SELECT * FROM competition_rewards")

        assert await world.status() == "finalized"
        assert not any('"category"' in text for text in overwritten)
        assert (len(rewards), recount(read_round_file(lines_of(published))).same) == (2, True)


class KilledAtTheEnd(WatchedDatabase):
    """The process dies before the batch that publishes a result."""

    async def batch(self, statements: Any) -> Any:
        if any("status = 'finalized', finalized_at" in each.inner.sql for each in statements):
            raise Killed
        return await super().batch(statements)


async def no_hook(_number: int, _moment: Moment) -> None:
    """Nothing else happens."""


async def test_a_round_that_is_added_during_a_preparation_ends_on_time(tmp_path: Path) -> None:
    """The operator's refresh joins the preparing run: that run asks for the alarm at its end."""
    async with big_world(tmp_path / "world") as world:
        begun: list[int] = []

        async def hook(number: int, moment: Moment) -> None:
            states = await world.all("SELECT state FROM competition_round_preparations")
            if states and not begun:
                begun.append(number)
                wrapped, world.wrapped = world.wrapped, None
                ends_s = PREPARE_S + 120
                await world.add_round(roundId="short", startsAt=ends_s - 3_600, endsAt=ends_s, graceS=0)
                world.wrapped = wrapped

        world.wrapped = WatchedDatabase(world.db, hook)
        looked = await world.run(PREPARE_S)

        assert (len(begun), len(world.log.named("round.prepared"))) == (1, 1)
        assert looked.wake_at == (PREPARE_S + 120) * 1000


async def test_a_slow_preparation_stops_before_its_slice_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is: the run has 240 s, and its alarm for the end of the grace must not be lost with it."""
    monkeypatch.setattr(capture, "PAGE", 1)
    async with round_world(tmp_path / "world") as world:
        for number in range(300, 320):
            await world.swap(number, 0, ("stx", 1), (STSTX, 1))

        async def slow(_number: int, moment: Moment) -> None:
            if moment == "before":
                world.clock.at_s += 10

        world.wrapped = WatchedDatabase(world.db, slow)
        stopped = await world.run(PREPARE_S)

        assert world.clock.at_s <= PREPARE_S + 260  # two more calls show what has changed since
        assert len(world.log.named("round.not_prepared")) == 1
        assert (stopped.wake_at, stopped.incomplete) == (GRACE_S * 1000, None)


async def test_after_six_attempts_they_are_further_and_further_apart(tmp_path: Path) -> None:
    """For nine minutes each check finds a new swap. When that ends, the result is still prepared."""
    async with big_world(tmp_path / "world") as world:
        for minute in range(20):
            await world.run(PREPARE_S + 60 * minute)
            if minute < 9:
                await world.swap(200 + minute, 0, ("stx", 2), (STSTX, 3), at_s=END_S - 1)
        preparations = len(world.log.named("round.prepared"))
        [found] = await world.all("SELECT attempts, state, begun_at FROM competition_round_preparations")
        await world.finalized()

        assert preparations == 8  # after 0 to 5, 7 and 11 minutes
        assert (found["attempts"], found["state"], found["begun_at"][11:16]) == (8, "ready", "08:41")
        assert used(world) == [True]


async def test_a_void_round_keeps_nothing_that_was_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a copy of its swaps; what was captured stays, and so does the file of an earlier result."""
    monkeypatch.setattr("tocsin.rounds.capture.ROWS_AT_ONCE", 2)
    directories = (tmp_path / "never", tmp_path / "twice")
    async with big_world(directories[0], prepared=True) as world, big_world(directories[1], prepared=True) as other:
        await world.act("void", roundId=ROUND_ID, reason="a test")
        left = {table: len(await world.all(f"SELECT * FROM {table}")) for table in COPIES}

        await other.finalized()
        first = await other.file()
        await other.act("reopen", roundId=ROUND_ID, reason="a swap came late")
        await other.execute("UPDATE marks SET walked_at = NULL")
        await other.run(GRACE_S + 300)
        both = await other.file()
        await other.act("void", roundId=ROUND_ID, reason="a test")

        assert left == dict.fromkeys(COPIES, 0)
        assert (len(both), await other.file()) == (2 * len(first), first)


async def test_a_captured_round_that_is_void_keeps_what_was_captured(tmp_path: Path) -> None:
    """It was shown to everybody."""
    async with big_world(tmp_path / "world", prepared=True) as world:
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        before = {table: await world.all(f"SELECT * FROM {table}") for table in COPIES}
        await world.act("void", roundId=ROUND_ID, reason="a test")

        assert {table: await world.all(f"SELECT * FROM {table}") for table in COPIES} == before
