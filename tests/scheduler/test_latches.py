"""No single event blocks an upstream or a task permanently: calls cut off, evictions, breakers."""

import asyncio
from pathlib import Path
from typing import Any

from support.scheduler import MINUTE, Job, scheduler
from support.scripted_fetch import Request, ScriptedFetch, response
from tocsin.errors import NoAnswer
from tocsin.fetch import FetchResponse
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.upstream.answer import Limited, value_or_raise
from tocsin.upstream.hiro import HiroClient


async def ask(context: TaskContext) -> TaskResult:
    """One call; a refused one holds the task back as the upstream says."""
    hiro = context.upstream("hiro", HiroClient)
    try:
        value_or_raise(await hiro.principal_transactions("SP1", context.session, None))
    except NoAnswer as error:
        until = error.answer.until if isinstance(error.answer, Limited) else None
        return TaskResult({}, limited_until=until, incomplete=str(error), progressed=False)
    return TaskResult({"succeeded": 1})


def asking(**options: Any) -> Job:
    return Job("sweep", 5 * MINUTE, upstream="hiro", **{"run": ask, **options})


PAGE = {"total": 0, "limit": 50, "cursor": {"next": None, "previous": None, "current": None}, "results": []}


class Hiro:
    """Answers with a page, with a 429, or not at all."""

    def __init__(self) -> None:
        self.mode = "page"
        self.fetch = ScriptedFetch(self._answer)

    async def _answer(self, _request: Request) -> FetchResponse:
        if self.mode == "hang":
            await asyncio.sleep(3_600)
        return response({}, status=429, headers={"retry-after": "30"}) if self.mode == "429" else response(PAGE)


async def test_after_an_eviction_a_429_does_not_close_the_upstream_for_good(tmp_path: Path) -> None:
    """Run, evict, run into a 429, run again: the last one is let in."""
    hiro = Hiro()
    async with scheduler(tmp_path, asking(), fetch=hiro.fetch) as made:
        await asyncio.sleep(60)  # idle for longer than ten seconds: evicted
        hiro.mode = "429"
        limited = (await made.client().refresh("sweep")).run.outcome
        hiro.mode = "page"
        await asyncio.sleep(15 * 60)
        status = await made.client().status()
        runs = (await made.client().runs("sweep", 1)).runs

    assert limited == "limited"
    assert runs[0].outcome == "ok"
    assert status.budgets["hiro"].in_flight == 0


async def test_a_call_cut_off_with_its_slice_is_in_flight_no_more(tmp_path: Path) -> None:
    """The slice ends during the fetch; then a 429 arrives, and after it the upstream is called again."""
    hiro = Hiro()
    hiro.mode = "hang"
    async with scheduler(tmp_path, asking(slice_ms=MINUTE), fetch=hiro.fetch) as made:
        await asyncio.sleep(61)  # not yet evicted, which would forget it
        cut_off = (await made.client().runs("sweep", 1)).runs[0]
        in_flight = (await made.client().status()).budgets["hiro"].in_flight
        hiro.mode = "429"
        await made.client().refresh("sweep")
        hiro.mode = "page"
        await asyncio.sleep(15 * 60)
        runs = (await made.client().runs("sweep", 1)).runs

    assert cut_off.error is not None
    assert (cut_off.outcome, cut_off.error.kind) == ("failed", "SliceExceeded")
    assert in_flight == 0
    assert runs[0].outcome == "ok"


async def test_resume_lets_an_open_breaker_try_again(tmp_path: Path) -> None:
    """At once, not after the hour for which the breaker holds the task back."""

    async def broken(_context: TaskContext) -> TaskResult:
        raise RuntimeError("down")

    job = asking(run=broken)
    async with scheduler(tmp_path, job, breaker_failures=3) as made:
        await asyncio.sleep(20 * 60)
        assert len(job.started) == 3
        resumed_at = made.clock.now()
        await made.stub().resume()
        await asyncio.sleep(1)

    assert job.started[3:] == [resumed_at]


async def test_a_run_that_did_not_fail_opens_no_breaker(tmp_path: Path) -> None:
    """After the hour it runs at every slot again, although it is never complete: a round may wait for days."""
    failing = [True]

    async def fail_at_first(_context: TaskContext) -> TaskResult:
        if failing[0]:
            raise RuntimeError("down")
        return TaskResult({}, incomplete="a round waits")

    job = asking(run=fail_at_first)
    async with scheduler(tmp_path, job, breaker_failures=3) as made:
        await asyncio.sleep(20 * 60)
        failing[0] = False
        await asyncio.sleep(60 * 60)
        runs = len(job.started)
        await asyncio.sleep(60 * 60)

        assert len(made.log.named("breaker.opened")) == 1
    assert len(job.started) == runs + 12
