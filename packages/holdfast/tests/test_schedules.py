"""Jobs on the alarm of an object."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Schedules
from holdfast.errors import UsageError
from holdfast.testing import VirtualObjects
from holdfast.types import JSON

MINUTE = 60_000
pytestmark = pytest.mark.holdfast(start="2026-11-19T06:59Z")  # a Thursday
START = int(datetime(2026, 11, 19, 6, 59, tzinfo=UTC).timestamp() * 1000)


class Desk(Schedules):
    """Some jobs; each run is noted with its minute."""

    async def begin(
        self, name: str, every_s: int | None = None, cron: str | None = None, in_s: int | None = None
    ) -> None:
        every = None if every_s is None else timedelta(seconds=every_s)
        at = None if in_s is None else datetime.fromtimestamp(self.ctx.now() / 1000 + in_s, UTC)
        await self.schedule(name, every=every, cron=cron, at=at, zone="Europe/Berlin", calls="note")

    async def note(self) -> int:
        minutes: list[JSON] = [*await self.noted(), (self.ctx.now() - START) / MINUTE]
        await self.ctx.storage.put("noted", minutes)
        return len(minutes)

    async def noted(self) -> list[float]:
        return await self.ctx.storage.get("noted") or []

    async def begin_both(self) -> None:
        await self.schedule("fail", every=timedelta(minutes=5))
        await self.schedule("note", every=timedelta(minutes=5))

    async def fail(self) -> None:
        raise ConnectionError("nobody answers")

    async def begin_long(self) -> None:
        await self.schedule("long", every=timedelta(minutes=5))

    async def long(self) -> None:
        await self.note()
        await asyncio.sleep(7 * 60)

    async def mistakes(self) -> list[str]:
        found = []
        for arguments in ({}, {"cron": "@daily"}, {"every": timedelta(0)}, {"cron": "* * * * *", "calls": "nothing"}):
            try:
                await self.schedule("note", **arguments)
            except UsageError as error:
                found.append(str(error))
        return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"every_s": 300}, [1, 6, 11, 16, 21, 26, 31]), ({"cron": "0,20 8 * * mon-fri"}, [1, 21]), ({"in_s": 150}, [2.5])],
)
async def test_jobs_run_at_their_times(
    objects: VirtualObjects, arguments: dict[str, int | str], expected: list[float]
) -> None:
    """On a grid, by cron in a zone, or once."""
    desk = objects.get(Desk, "a")
    await desk.begin("job", **arguments)  # type: ignore[arg-type]
    await objects.advance(minutes=33)

    assert await desk.noted() == expected


async def test_times_that_passed_lead_to_one_run(objects: VirtualObjects) -> None:
    """While it was paused, or the machine was down; then the grid goes on."""
    desk = objects.get(Desk, "a")
    await desk.begin("job", every_s=300)
    await objects.advance(minutes=2)
    await desk.pause("job")
    await objects.advance(minutes=20)
    await desk.resume("job")
    await objects.advance(minutes=5)
    objects.clock.jump(60 * MINUTE)
    await objects.advance(minutes=5)

    assert await desk.noted() == [1, 22, 26, 87, 91]


async def test_a_failed_run_is_recorded_and_holds_up_no_other_job(objects: VirtualObjects) -> None:
    """The history says why; it runs again at its next time."""
    desk = objects.get(Desk, "a")
    await desk.begin_both()
    await objects.advance(minutes=7)
    jobs = await desk.jobs()

    due_at = START + 6 * MINUTE
    failed = {"due_at": due_at, "started_at": due_at, "ended_at": due_at, "error": "ConnectionError: nobody answers"}
    assert jobs["fail"]["history"][0] == failed
    assert jobs["note"]["history"][0] == {**failed, "error": None}
    assert [len(job["history"]) for job in jobs.values()] == [2, 2]
    assert {job["next_at"] for job in jobs.values()} == {START + 11 * MINUTE}


async def test_a_run_on_demand_returns_its_result(objects: VirtualObjects) -> None:
    """Or its error; the times of the job stay, even if it is paused."""
    desk = objects.get(Desk, "a")
    await desk.begin("job", every_s=3600)
    await desk.begin_both()
    await desk.pause("job")
    before = (await desk.jobs())["job"]["next_at"]
    results = [await desk.run_now("job"), await desk.run_now("job")]
    with pytest.raises(ConnectionError, match="nobody answers"):
        await desk.run_now("fail")
    job = (await desk.jobs())["job"]

    assert results == [1, 2]
    assert (job["next_at"], job["paused"], len(job["history"])) == (before, True, 2)


async def test_a_long_run_is_not_overtaken(objects: VirtualObjects) -> None:
    """It runs again when it has ended, if a time passed meanwhile; a run on demand waits for it."""
    desk = objects.get(Desk, "a")
    await desk.begin_long()
    await objects.advance(minutes=2)
    await desk.run_now("long")
    await objects.advance(minutes=9)

    assert await desk.noted() == [1, 8, 15, 22]
    assert await asyncio.gather(desk.unschedule("long"), desk.jobs()) == [None, {}]


async def test_a_killed_run_runs_again(objects: VirtualObjects) -> None:
    """Whatever commit was the last, its time is not lost."""
    for commit in (1, 2, 3, 4):
        await objects.reset()
        async with objects.crash_at(commit=commit) as crash:
            await objects.get(Desk, "a").begin("job", in_s=60)
            await objects.advance(minutes=2)
        await objects.advance(minutes=2)
        noted = await objects.get(Desk, "a").noted()

        assert bool(crash) is (commit < 4)
        assert len(noted) == (0 if commit == 1 else 1)


async def test_the_clock_may_be_set_back(objects: VirtualObjects) -> None:
    """The job runs by the new time, not when the old one comes back."""
    desk = objects.get(Desk, "a")
    await desk.begin("job", every_s=300)
    await objects.advance(minutes=2)
    objects.clock.jump(-600 * MINUTE)
    await objects.advance(minutes=20)

    assert len(await desk.noted()) >= 4


async def test_mistakes_are_refused(objects: VirtualObjects) -> None:
    """With what to do instead."""
    desk = objects.get(Desk, "a")
    assert await desk.mistakes() == [
        "schedule('note'): give one of every, at and cron",
        "the schedule '@daily' has 1 fields: use five, minute, hour, day, month, weekday",
        "a period of 0 ms: use a whole number, 1 or more",
        "schedule('note'): Desk has no method nothing()",
    ]
    with pytest.raises(UsageError, match="there is no job 'x'; the jobs are: none"):
        await desk.pause("x")
