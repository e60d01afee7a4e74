"""An upstream that Tocsin does not have: its own client, its own quota, and nothing in the scheduler changes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import JSON
from support.scheduler import MINUTE, Job, scheduler
from support.scripted_fetch import Request, ScriptedFetch, response
from tocsin.fetch import FetchResponse
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.upstream.answer import Answer, Ok
from tocsin.upstream.budget import LimitReading, Quota, WindowReading
from tocsin.upstream.client import Upstream, UpstreamClient, header_number
from tocsin.upstream.limiter import CallSession


class ThirdPartyClient:
    """One method of its own."""

    def __init__(self, client: UpstreamClient) -> None:
        self._client = client

    async def rate(self, session: CallSession) -> Answer[JSON]:
        return await self._client.get("/rate", lambda body: body, session)


def read_limits(headers: Mapping[str, str]) -> LimitReading:
    return LimitReading(minute=WindowReading(limit=header_number(headers, "x-minute-limit")))


def thirdparty(quota: Quota) -> Upstream:
    return Upstream(
        name="thirdparty",
        base_url="https://thirdparty.test",
        url_setting="THIRDPARTY_URL",
        key="a-key",
        key_setting="THIRDPARTY_KEY",
        read_limits=read_limits,
        wrap=ThirdPartyClient,
        probe="/",
        quota=quota,
        key_header="authorization",
    )


async def ask_six_times(context: TaskContext) -> TaskResult:
    client = context.upstream("thirdparty", ThirdPartyClient)
    answers = [await client.rate(context.session) for _ in range(6)]
    return TaskResult({"rates": sum(isinstance(answer, Ok) for answer in answers)})


async def test_a_third_upstream_has_a_client_and_a_budget_of_its_own(tmp_path: Path) -> None:
    """Its quota limits the calls, its status shows them, and they survive the process."""
    clock, asked_at = VirtualClock(), list[int]()

    def serve(request: Request) -> FetchResponse:
        assert request.url == "https://thirdparty.test/rate"
        assert request.headers["authorization"] == "a-key"
        asked_at.append(clock.now())
        return response({"rate": 1})

    job = Job("rates", 10 * MINUTE, upstream="thirdparty", calls_per_run=6, run=ask_six_times)
    upstreams = {"thirdparty": thirdparty(Quota(minute=3, month=1_000_000, request_share=0))}
    fetch = ScriptedFetch(serve)
    async with scheduler(tmp_path, job, clock=clock, fetch=fetch, upstreams=upstreams) as made:
        await asyncio.sleep(30)
        during = (await made.status()).budgets["thirdparty"]
        await asyncio.sleep(90)
        status = await made.status()
    async with scheduler(tmp_path, job, clock=clock, fetch=fetch, upstreams=upstreams, arm=False) as made:
        restarted = (await made.status()).budgets["thirdparty"]

    assert (during.spent.minute, during.waiting.task, during.plan.minute) == (3, 1, 3)
    assert len(asked_at) == 6
    assert asked_at[3] - asked_at[0] >= MINUTE
    assert status.last_result["rates"] == {
        "rates": 6,
        "startedAt": asked_at[0],
        "durationMs": asked_at[5] - asked_at[0],
    }
    assert sorted(status.budgets) == ["hiro", "tenero", "thirdparty"]
    assert (status.budgets["thirdparty"].spent.month, status.budgets["hiro"].spent.month) == (6, 0)
    assert restarted.spent.month == 6


async def test_the_cadence_follows_the_quota_of_a_third_upstream(tmp_path: Path) -> None:
    """Six calls a minute do not fit three: it runs every two minutes, as its budget says and the log warns."""
    job = Job("rates", MINUTE, slice_ms=50_000, upstream="thirdparty", calls_per_run=6, run=ask_six_times)
    upstreams = {"thirdparty": thirdparty(Quota(minute=3, request_share=0))}
    fetch = ScriptedFetch(lambda _: response({"rate": 1}))
    async with scheduler(tmp_path, job, fetch=fetch, upstreams=upstreams, arm=False) as made:
        task = (await made.status()).tasks["rates"]
        await made.stub().reload()  # which says nothing that was said before

    assert (task.upstream, task.effective_cadence_ms) == ("thirdparty", 2 * MINUTE)
    assert task.cadence_reason == "stretched: tasks may make 3 calls a minute"
    assert [line["upstream"] for line in made.log.named("budget.overdrawn")] == ["thirdparty"]


async def test_the_headers_of_a_third_upstream_correct_its_limits(tmp_path: Path) -> None:
    """Its own module reads them."""
    job = Job("rates", 10 * MINUTE, upstream="thirdparty", calls_per_run=6, run=ask_six_times)
    upstreams = {"thirdparty": thirdparty(Quota(minute=60))}
    fetch = ScriptedFetch(lambda _: response({"rate": 1}, headers={"x-minute-limit": "30"}))
    async with scheduler(tmp_path, job, fetch=fetch, upstreams=upstreams) as made:
        await asyncio.sleep(1)
        budget = (await made.status()).budgets["thirdparty"]

    assert (budget.plan.minute, budget.limits.minute) == (60, 30)
