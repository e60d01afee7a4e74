"""What those who watch the scheduler see."""

import asyncio
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from support.scheduler import MINUTE, Job, scheduler
from support.scripted_fetch import ScriptedFetch, always, in_turn, response
from tocsin.scheduler.task import Outcome, TaskContext
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.tenero import tenero_upstream


def prices(**options: Any) -> Job:
    return Job("tenero", 5 * MINUTE, **options)


async def test_watchers_see_events_in_order_and_can_wait(tmp_path: Path) -> None:
    """Started, ended, armed, paused: numbered; a watcher that knows all of them waits for the next."""
    async with scheduler(tmp_path, prices()) as made:
        await asyncio.sleep(1)
        seen = await made.stub().events(0, 0)
        waiting = made.stub().events(seen["next"], 20_000)
        await asyncio.sleep(5)
        await made.stub().pause_until(made.clock.now() + 60_000)
        news = await waiting

    names = [event["event"] for event in seen["events"]]
    assert names.index("run.started") < names.index("run.ended")
    assert "alarm.armed" in names
    assert news["events"][0]["event"] == "scheduler.paused"


async def test_watchers_see_what_changes_in_a_budget(tmp_path: Path) -> None:
    """The gate closed and open again, more calls than the plan has: once each, not with every call."""

    async def ask(context: TaskContext) -> Outcome:
        for _ in range(3):
            await context.tenero.fetch_token_price_usd("stx", context.logger, context.session)
        return Outcome({})

    told = {"x-ratelimit-minute-remaining": "99999"}
    fine = response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}}, headers=told)
    limit = response({}, status=429, headers={"retry-after": "30"})
    fetch = ScriptedFetch(in_turn(chain([limit], repeat(fine))))
    async with scheduler(tmp_path, prices(run=ask), fetch=fetch) as made:
        await asyncio.sleep(35)
        seen = (await made.stub().events(0, 0))["events"]

    changes = [event for event in seen if event["event"] == "budget.changed"]
    assert [(event["upstream"], event["what"]) for event in changes] == [
        ("tenero", "gate_closed"),
        ("tenero", "plan_contradicted"),
        ("tenero", "gate_opened"),
    ]
    assert (changes[0]["forMs"], changes[1]["remaining"]) == (30_000, 99_999)
    assert [line["upstream"] for line in made.log.named("budget.gate_opened")] == ["tenero"]


async def test_watchers_see_that_a_key_is_ignored(tmp_path: Path) -> None:
    """Said once, as a change of the budget: an anonymous client's limits are much smaller."""

    async def ask(context: TaskContext) -> Outcome:
        for _ in range(3):
            await context.tenero.fetch_token_price_usd("stx", context.logger, context.session)
        return Outcome({})

    body = {"data": {"address": "stx", "price_usd": 1, "decimals": 6}}
    fetch = ScriptedFetch(always(response(body, headers={"x-ratelimit-type": "web-ui-ip"})))
    upstreams = {
        "hiro": hiro_upstream("https://hiro.test", None),
        "tenero": tenero_upstream("https://tenero.test", "a-key"),
    }
    async with scheduler(tmp_path, prices(run=ask), fetch=fetch, upstreams=upstreams) as made:
        await asyncio.sleep(5)
        seen = (await made.stub().events(0, 0))["events"]

    changes = [event for event in seen if event["event"] == "budget.changed"]
    assert [(event["upstream"], event["what"]) for event in changes] == [("tenero", "key_ignored")]
    assert "TENERO_API_KEY" in changes[0]["reason"]
