"""Jobs on the one alarm of an object: `every`, `at` and `cron`, with pause, catch-up, history and a run on demand.

    class Reports(Schedules):
        async def begin(self) -> None:
            await self.schedule("send", cron="0 8 * * mon-fri", zone="Europe/Berlin")

        async def send(self) -> str: ...

A job is stored, and runs at least once for its time: if the process was killed in a run, it runs again. Times that
passed while the process was down or the job was paused or still running lead to one run. A failed run is recorded and
holds up no other job. Jobs that are due together run together, and the next alarm is set when the last has ended.
"""

import asyncio
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast

from holdfast.errors import UsageError
from holdfast.rules import instant
from holdfast.schedule import Cron, Every
from holdfast.types import JSON, DurableObject, ObjectContext

PREFIX = "schedule:"  # of the entries, one for each job
HISTORY_MAX = 10


class Job(TypedDict):
    """A job as it is stored. `next_at` is None if it never runs again.

    The newest run comes first in the history: `due_at` is None for a run on demand, `error` for one that succeeded.
    """

    calls: str
    when: dict[str, Any]
    next_at: int | None
    paused: bool
    history: list[dict[str, int | str | None]]


class Schedules(DurableObject):
    """Base of an object with jobs. Its alarm belongs to them."""

    def __init__(self, ctx: ObjectContext, env: Any) -> None:  # noqa: ANN401 - each class declares its own
        super().__init__(ctx, env)
        self._job_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def schedule(
        self,
        name: str,
        *,
        every: timedelta | None = None,
        at: datetime | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        calls: str | None = None,
    ) -> None:
        """Run the method `calls`, usually the one with the name of the job, without arguments.

        `every` is on a grid of unix time, `cron` in a time zone, `at` once. Repeating the call changes nothing; with
        another time, the job keeps its history and its pause.
        """
        if sum(given is not None for given in (every, at, cron)) != 1:
            raise UsageError(f"schedule({name!r}): give one of every, at and cron")
        calls, now = calls or name, self.ctx.now()
        if not callable(getattr(self, calls, None)):
            raise UsageError(f"schedule({name!r}): {type(self).__name__} has no method {calls}()")
        when: dict[str, Any] = {"cron": cron, "zone": zone}
        if every is not None:
            when = {"every_ms": every // timedelta(milliseconds=1)}
        elif at is not None:
            when = {"at": instant(at, now)}
        new: Job = {"calls": calls, "when": when, "next_at": _after(when, now), "paused": False, "history": []}
        job = (await self.jobs()).get(name, new)
        if job["when"] != when:
            job["when"], job["next_at"] = when, new["next_at"]
        job["calls"] = calls
        await self._store(name, job)

    async def unschedule(self, name: str) -> None:
        """Remove a job with its history."""
        await self._job(name)
        await self.ctx.storage.delete(PREFIX + name)
        await self._set_alarm()

    async def pause(self, name: str) -> None:
        """Hold a job until `resume`. A run that has begun continues."""
        job = await self._job(name)
        job["paused"] = True
        await self._store(name, job)

    async def resume(self, name: str) -> None:
        """End the pause. If the job was due meanwhile, it runs once, now."""
        job = await self._job(name)
        job["paused"] = False
        await self._store(name, job)

    async def jobs(self) -> dict[str, Job]:
        """All jobs by name."""
        stored = await self.ctx.storage.list(prefix=PREFIX)
        return {key.removeprefix(PREFIX): job for key, job in stored.items()}

    async def run_now(self, name: str) -> Any:  # noqa: ANN401 - whatever the method returns
        """Run a job, even a paused one, and return its result or raise its error. Its times stay as they are."""
        return await self._run(name, None)

    async def alarm(self) -> None:
        now, due = self.ctx.now(), dict[str, int]()
        for name, job in (await self.jobs()).items():
            next_at = job["next_at"]
            if next_at is not None and "at" not in job["when"] and next_at > (soonest := _after(job["when"], now)):
                job["next_at"] = soonest  # the clock was set back
                await self.ctx.storage.put(PREFIX + name, cast("JSON", job))
            elif next_at is not None and next_at <= now and not job["paused"]:
                due[name] = next_at
        await asyncio.gather(*(self._run(name, at) for name, at in due.items()), return_exceptions=True)
        await self._set_alarm()

    async def _run(self, name: str, due_at: int | None) -> Any:  # noqa: ANN401 - whatever the method returns
        async with self._job_locks[name]:
            method, started_at = getattr(self, (await self._job(name))["calls"]), self.ctx.now()
            try:
                result = await method()
            except Exception as error:
                await self._ended(name, due_at, started_at, f"{type(error).__name__}: {error}")
                raise
            await self._ended(name, due_at, started_at, None)
            return result

    async def _ended(self, name: str, due_at: int | None, started_at: int, error: str | None) -> None:
        job = (await self.jobs()).get(name)
        if job is None:
            return  # it was removed meanwhile
        run = {"due_at": due_at, "started_at": started_at, "ended_at": self.ctx.now(), "error": error}
        job["history"] = [run, *job["history"]][:HISTORY_MAX]
        if due_at is not None and job["next_at"] == due_at:
            job["next_at"] = None if "at" in job["when"] else _after(job["when"], started_at)
        await self.ctx.storage.put(PREFIX + name, cast("JSON", job))

    async def _job(self, name: str) -> Job:
        job = (await self.jobs()).get(name)
        if job is None:
            known = ", ".join(await self.jobs()) or "none"
            raise UsageError(f"there is no job {name!r}; the jobs are: {known}")
        return job

    async def _store(self, name: str, job: Job) -> None:
        await self.ctx.storage.put(PREFIX + name, cast("JSON", job))
        await self._set_alarm()

    async def _set_alarm(self) -> None:
        times = [job["next_at"] for job in (await self.jobs()).values() if not job["paused"]]
        next_at = min((at for at in times if at is not None), default=None)
        if next_at is None:
            await self.ctx.storage.delete_alarm()
        else:
            await self.ctx.storage.set_alarm(max(1, next_at))


def _after(when: dict[str, Any], now: int) -> int:
    """The first time of a job after this instant."""
    if "at" in when:
        return int(when["at"])
    return (Every(when["every_ms"]) if "every_ms" in when else Cron(when["cron"], when["zone"])).after(now)
