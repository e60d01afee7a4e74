"""A preparation during other activity: operators who end or add a round, another release, a slow database."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from support.round_changes import PREPARE_S, made, populate, run_sql
from support.round_world import END_S, GRACE_S, ROUND_ID, STSTX, RoundWorld, round_world
from support.watched_database import Killed, Moment, WatchedDatabase
from tocsin.rounds import capture, finalize
from tocsin.rounds.file import lines_of, read_round_file, recount
from tocsin.rounds.round import RoundInputs, RoundOutcome
from tocsin.rounds.score import scoring

COPIES = (
    "competition_round_swaps",
    "competition_round_files",
    "competition_round_agents",
    "competition_round_refusals",
    "competition_round_price_snapshots",
)


async def prepared(world: RoundWorld) -> None:
    await populate(world)
    await world.run(PREPARE_S)
    await world.swept(GRACE_S)


async def file_of(world: RoundWorld) -> list[str]:
    rows = await world.all("SELECT text FROM competition_round_files ORDER BY part")
    return [row["text"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("action", ["void", "finalize"])
async def test_an_operator_ends_a_round_that_is_finalized(tmp_path: Path, action: str) -> None:
    """Before every call of the run: the run ends well, and the round has one result or none."""
    calls, at = 1, 0
    while at < calls:
        at += 1
        async with round_world(made(tmp_path / f"{at}")) as world:
            await prepared(world)

            async def hook(number: int, moment: Moment, world: RoundWorld = world, at: int = at) -> None:
                if (number, moment) == (at, "before"):
                    world.wrapped = None
                    await try_to(world, action)

            watched = world.wrapped = WatchedDatabase(world.db, hook)
            run = await world.run(GRACE_S)
            world.wrapped, calls = None, watched.calls
            status = await world.status()
            results = await world.all("SELECT * FROM competition_round_results")

        assert run.incomplete is None
        assert (status, len(results)) in {("finalized", 3), ("void", 0), ("void", 3)}
    assert calls > 20


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
    async with round_world(made(tmp_path / "world")) as world:
        await prepared(world)
        world.clock.at_s = GRACE_S
        await world.act("close", roundId=ROUND_ID)
        await world.act("snapshot", roundId=ROUND_ID)

        def other_scoring(inputs: RoundInputs) -> Generator[None, None, RoundOutcome]:
            outcome = yield from scoring(inputs)
            return replace(outcome, rewards=[])

        with monkeypatch.context() as newer:
            newer.setattr(finalize, "__version__", "99.0")
            newer.setattr(finalize, "scoring", other_scoring)
            world.wrapped = KilledAtTheEnd(world.db, no_hook)
            with pytest.raises(Killed):
                await world.run(GRACE_S + 5)
        overwritten, world.wrapped = await file_of(world), None
        await world.run(GRACE_S + 60)
        published = await file_of(world)
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
    async with round_world(made(tmp_path / "world")) as world:
        await populate(world)
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
    async with round_world(made(tmp_path / "world")) as world:
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
    async with round_world(made(tmp_path / "world")) as world:
        await populate(world)
        for minute in range(20):
            await world.run(PREPARE_S + 60 * minute)
            if minute < 9:
                await world.swap(200 + minute, 0, ("stx", 2), (STSTX, 3), at_s=END_S - 1)
        preparations = len(world.log.named("round.prepared"))
        [found] = await world.all("SELECT attempts, state, begun_at FROM competition_round_preparations")
        await world.swept(GRACE_S)
        await world.run(GRACE_S)

        assert preparations == 8  # after 0 to 5, 7 and 11 minutes
        assert (found["attempts"], found["state"], found["begun_at"][11:16]) == (8, "ready", "08:41")
        assert [line["prepared"] for line in world.log.named("round.finalized")] == [True]


async def test_a_void_round_keeps_nothing_that_was_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a copy of its swaps; what was captured stays, and so does the file of an earlier result."""
    monkeypatch.setattr("tocsin.rounds.capture.ROWS_AT_ONCE", 2)
    async with round_world(made(tmp_path / "never")) as world, round_world(made(tmp_path / "twice")) as other:
        await prepared(world)
        await world.act("void", roundId=ROUND_ID, reason="a test")
        left = {table: len(await world.all(f"SELECT * FROM {table}")) for table in COPIES}

        await prepared(other)
        await other.run(GRACE_S)
        first = await file_of(other)
        await other.act("reopen", roundId=ROUND_ID, reason="a swap came late")
        await run_sql(other, "UPDATE marks SET walked_at = NULL")
        await other.run(GRACE_S + 300)
        both = await file_of(other)
        await other.act("void", roundId=ROUND_ID, reason="a test")

        assert left == dict.fromkeys(COPIES, 0)
        assert (len(both), await file_of(other)) == (2 * len(first), first)


async def test_a_captured_round_that_is_void_keeps_what_was_captured(tmp_path: Path) -> None:
    """It was shown to everybody."""
    async with round_world(made(tmp_path / "world")) as world:
        await prepared(world)
        await world.run(GRACE_S)
        before = {table: await world.all(f"SELECT * FROM {table}") for table in COPIES}
        await world.act("void", roundId=ROUND_ID, reason="a test")

        assert {table: await world.all(f"SELECT * FROM {table}") for table in COPIES} == before
