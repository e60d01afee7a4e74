"""A run that is killed at any call of the database continues later: exactly one result, the right one."""

from pathlib import Path

import pytest

from support.round_changes import PREPARE_S
from support.round_world import GRACE_S, ROUND_ID, STSTX, RoundWorld, round_world
from support.watched_database import Killed, Moment, counting, killed_at
from tocsin.rounds.capture import capture
from tocsin.rounds.finalize import finalize
from tocsin.rounds.store import the_round

MOMENTS: tuple[Moment, ...] = ("before", "after")


async def ended(world: RoundWorld, *, prepared: bool = False) -> None:
    await world.swept(GRACE_S)
    if prepared:
        await world.run(PREPARE_S)
    await world.run(GRACE_S)


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [False, True])
async def test_a_kill_at_every_call_leaves_one_result(tmp_path: Path, prepared: bool) -> None:
    """Before and after every call of preparing, closing, capturing and finalizing; all end with the same bytes."""
    (tmp_path / "whole").mkdir()
    async with round_world(tmp_path / "whole") as world:
        watched = world.wrapped = counting(world.db)
        await ended(world, prepared=prepared)
        expected, calls = await world.everything(), watched.calls
    assert expected["competition_rounds"][0]["status"] == "finalized"
    assert len(expected["competition_round_results"]) == 3
    assert calls > (40 if prepared else 10)

    for moment in MOMENTS:
        for number in range(1, calls + 1):
            directory = tmp_path / f"{number}-{moment}"
            directory.mkdir()
            async with round_world(directory) as world:
                world.wrapped = killed_at(world.db, number, moment)
                with pytest.raises(Killed):
                    await ended(world, prepared=prepared)
                world.wrapped = None
                if await world.status() == "open" and prepared:
                    await world.run(PREPARE_S + 300)
                await world.run(GRACE_S + 300)
                assert await world.everything() == expected, f"killed {moment} call {number}"


async def test_two_runs_at_once_write_one_result(tmp_path: Path) -> None:
    """An operator finalizes while the task does: the second changes nothing."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        world.clock.at_s = GRACE_S
        await world.act("close", roundId="week-1-2027-01-15")
        await world.act("snapshot", roundId="week-1-2027-01-15")
        first = await world.act("finalize", roundId="week-1-2027-01-15")
        results = await world.everything()
        second = await world.act("finalize", roundId="week-1-2027-01-15")
        await world.run(GRACE_S + 60)

        assert await world.everything() == results
    assert (first.ok, second.ok, second.http_status, second.code) == (True, False, 409, "wrong_status")


async def test_a_round_that_was_made_void_meanwhile_stays_void(tmp_path: Path) -> None:
    """An operator was faster than the step that a run had begun."""
    for status in ("closed", "finalizing"):
        (tmp_path / status).mkdir()
        async with round_world(tmp_path / status) as world:
            await world.swept(GRACE_S)
            world.clock.at_s = GRACE_S
            await world.act("close", roundId=ROUND_ID)
            if status == "finalizing":
                await world.act("snapshot", roundId=ROUND_ID)
            before = await the_round(world.db, ROUND_ID)
            await world.act("void", roundId=ROUND_ID, reason="a test")
            if status == "closed":
                captured = await capture(
                    world.db, before, [], {"stx", STSTX}, allowlist_version="v", complete_until_block=None, now=1
                )
                assert not captured
            else:
                assert await finalize(world.db, before, 1) is None
            everything = await world.everything()

        assert everything["competition_rounds"][0]["status"] == "void"
        assert (before.status, everything["competition_round_results"]) == (status, [])
