"""What watchers of the scheduler see."""

import asyncio
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from support.scheduler import prices, scheduler
from support.scripted_fetch import ScriptedFetch, always, in_turn, response
from tocsin.scheduler.history import EventLog
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import SchedulerEvent
from tocsin.upstream.tenero import TeneroClient, tenero_upstream


def budget_changes(events: Sequence[SchedulerEvent]) -> list[dict[str, Any]]:
    return [event.fields for event in events if event.event == "budget.changed"]


async def ask_three_times(context: TaskContext) -> TaskResult:
    tenero = context.upstream("tenero", TeneroClient)
    for _ in range(3):
        await tenero.fetch_token_price_usd("stx", context.logger, context.session)
    return TaskResult({})


async def test_watchers_see_events_in_order_and_can_wait(tmp_path: Path) -> None:
    """Started, ended, armed, paused: numbered; a watcher that has seen all of them waits for the next."""
    async with scheduler(tmp_path, prices()) as made:
        await asyncio.sleep(1)
        seen = await made.client().events(0, 0)
        waiting = asyncio.create_task(made.client().events(seen.next, 20_000))
        await asyncio.sleep(5)
        await made.stub().pause_until(made.clock.now() + 60_000)
        news = await waiting

    names = [event.event for event in seen.events]
    assert names.index("run.started") < names.index("run.ended")
    assert "alarm.armed" in names
    assert news.events[0].event == "scheduler.paused"


async def test_arming_an_armed_scheduler_reports_nothing(tmp_path: Path) -> None:
    """Anybody can ask for it after a deployment: 500 times must not push older events out."""
    async with scheduler(tmp_path, prices()) as made:
        await asyncio.sleep(1)
        before = await made.client().events(0, 0)
        rings = {await made.client().arm() for _ in range(500)}
        after = await made.client().events(0, 0)
        status = await made.status()

    assert rings == {status.next_alarm_at}
    assert after.events == before.events


async def test_watchers_see_what_changes_in_a_budget(tmp_path: Path) -> None:
    """The limiter closed and open again, more calls than the plan has: once each, not with every call."""
    headers = {"x-ratelimit-minute-remaining": "99999"}
    fine = response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}}, headers=headers)
    limit = response({}, status=429, headers={"retry-after": "30"})
    fetch = ScriptedFetch(in_turn(chain([limit], repeat(fine))))
    async with scheduler(tmp_path, prices(ask_three_times), fetch=fetch) as made:
        await asyncio.sleep(35)
        changes = budget_changes((await made.client().events(0, 0)).events)

    assert [(change["upstream"], change["what"]) for change in changes] == [
        ("tenero", "limiter_closed"),
        ("tenero", "plan_contradicted"),
        ("tenero", "limiter_opened"),
    ]
    assert (changes[0]["forMs"], changes[1]["remaining"]) == (30_000, 99_999)
    assert [line["upstream"] for line in made.log.named("budget.limiter_opened")] == ["tenero"]


async def test_watchers_see_that_a_key_is_ignored(tmp_path: Path) -> None:
    """Reported once, as a change of the budget: an anonymous client's limits are much smaller."""
    body = {"data": {"address": "stx", "price_usd": 1, "decimals": 6}}
    fetch = ScriptedFetch(always(response(body, headers={"x-ratelimit-type": "web-ui-ip"})))
    upstreams = {"tenero": tenero_upstream("https://tenero.test", "a-key")}
    async with scheduler(tmp_path, prices(ask_three_times), fetch=fetch, upstreams=upstreams) as made:
        await asyncio.sleep(5)
        changes = budget_changes((await made.client().events(0, 0)).events)

    assert [(change["upstream"], change["what"]) for change in changes] == [("tenero", "key_ignored")]
    assert "TENERO_API_KEY" in changes[0]["reason"]


async def test_a_watcher_gets_the_events_after_the_last_one_it_saw() -> None:
    """Of the newest four hundred, which are kept for all; one that has seen none gets the newest fifty."""
    log, loop = EventLog(1), asyncio.get_running_loop()
    for number in range(1_000):
        log.add("run.started", number, {})

    for seen, first in ((-1, 951), (0, 951), (1, 601), (700, 701)):
        found = await log.after(seen, 0)
        assert ([event.seq for event in found.events], found.next) == (list(range(first, 1_001)), 1_000)
    for wait_s, waited_s in ((3, 3), (600, 25)):  # no watcher waits longer
        began_at = loop.time()
        assert (await log.after(1_000, wait_s)).events == []
        assert loop.time() - began_at == waited_s


async def test_a_watcher_gets_an_empty_answer_when_nothing_happens(tmp_path: Path) -> None:
    """After as many milliseconds as it asked for; without a wait at once."""
    async with scheduler(tmp_path, prices()) as made:
        await asyncio.sleep(1)
        seen = (await made.client().events(0, 0)).next
        began_at = made.clock.now()
        at_once = await made.stub().events(seen)
        at_once_at = made.clock.now()
        none = await made.client().events(seen, 7_500)
        ended_at = made.clock.now()

    assert (at_once["events"], at_once_at - began_at) == ([], 0)
    assert (none.events, ended_at - began_at) == ([], 7_500)
