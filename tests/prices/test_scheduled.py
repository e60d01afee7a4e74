"""Prices through the whole object: a month on the smallest plan, and the incident of the silent nulls."""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast.types import KV, Database
from holdfast_testing.stores import open_kv
from support.local_store import open_competition
from support.market import Market
from support.scheduler import Scheduler, scheduler
from support.scripted_fetch import Handler, Request, ScriptedFetch, response
from support.task_run import count_trades
from tocsin.fetch import FetchResponse
from tocsin.prices.refresh import EMPTY_RESULT, refresh_prices_task
from tocsin.prices.store import STATIC_TOKENS, get_cached_token_prices, tracked_tokens, traded_tokens
from tocsin.scheduler.types import RunFilter
from tocsin.settings import Settings
from tocsin.upstream.budget import Quota

DAY_S = 86_400
STARTER = Quota(minute=10, month=10_000)
CONTRACT = "SP2XD7417HGPRTREMKF748VNEQPDRR0RMANB7X1NK.token-{n}::asset"


@asynccontextmanager
async def priced(
    directory: Path, market: Handler, tokens: int, clock: VirtualClock, settings: Settings | None = None, **options: Any
) -> AsyncIterator[tuple[Scheduler, Database, KV]]:
    """A scheduler with the real price task, a database in which this many tokens were traded, and this market."""
    async with open_competition(directory) as db, open_kv(directory, clock) as kv:
        await count_trades(db, *[(CONTRACT.format(n=n), "stx") for n in range(tokens)])
        task, fetch = refresh_prices_task(settings or Settings()), ScriptedFetch(market, 0.05)
        async with scheduler(directory, task, clock=clock, fetch=fetch, db=db, kv=kv, **options) as made:
            yield made, db, kv


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "start_day", "days", "plan", "calls_min"),
    [(13, 30, 3, Quota(minute=10, month=900), 450), (53, 13, 1, STARTER, 330)],
    ids=["to the end of a month", "from its middle"],
)
async def test_days_on_the_starter_plan(
    tmp_path: Path, tokens: int, start_day: int, days: int, plan: Quota, calls_min: int
) -> None:
    """10 calls a minute, 10,000 a month: no window is exceeded, every token is refreshed all the time.

    30 and 31 May are the last of a month, with a third of the calls, and the next one's start.
    """
    clock, asked_at = VirtualClock(START_MS + (start_day - 13) * DAY_S * 1000), []
    ids = ["stx", *(CONTRACT.format(n=n) for n in range(tokens))]
    listed = Market([dict.fromkeys(ids[:-3], 1.5)], unlisted=dict.fromkeys(ids[-3:], 0.25))

    def tenero(request: Request) -> FetchResponse:
        asked_at.append(clock.now())
        return listed(request)

    async with priced(tmp_path, tenero, tokens, clock, quotas={"tenero": plan}) as (made, db, kv):
        oldest_ms = 0
        for _ in range(days):
            await asyncio.sleep(DAY_S)
            tracked = [token for token in tracked_tokens(await traded_tokens(db)) if token in ids]
            found = await get_cached_token_prices(kv, tracked)
            assert set(found) == set(tracked)
            oldest_ms = max(oldest_ms, *(clock.now() - price.fetched_at for price in found.values()))
        status = await made.client().status()

    busiest = max(bisect_right(asked_at, at + 59_999) - n for n, at in enumerate(asked_at))
    assert busiest <= 10
    months = Counter(datetime.fromtimestamp(at / 1000, UTC).month for at in asked_at)
    assert calls_min < max(months.values()) <= (plan.month or 0)
    assert oldest_ms < 4 * 3_600_000
    task = status.tasks["tenero"]
    assert task.effective_cadence_ms >= task.cadence_ms
    assert task.cadence_reason
    assert status.consecutive_failures["tenero"] == 0


@pytest.mark.slow
async def test_one_page_every_five_minutes_fits_the_starter_plan(tmp_path: Path) -> None:
    """As the docs say: nothing is stretched, and no warning says that it does not fit."""
    clock = VirtualClock()
    ids = ["stx", *(CONTRACT.format(n=n) for n in range(13))]
    market = Market([dict.fromkeys([*STATIC_TOKENS, *ids], 1.5)])
    async with priced(tmp_path, market, 13, clock, quotas={"tenero": STARTER}) as (made, _db, _kv):
        await asyncio.sleep(DAY_S / 4)
        status = await made.client().status()

        assert len(market.asked) in {72, 73}
        assert status.tasks["tenero"].effective_cadence_ms == 300_000
        assert made.log.named("budget.overdrawn") == []


@pytest.mark.slow
async def test_an_object_that_is_built_again_for_every_run_does_not_starve(tmp_path: Path) -> None:
    """The budget continues from what was stored."""
    clock = VirtualClock()
    ids = ["stx", *(CONTRACT.format(n=n) for n in range(13))]
    market = Market([dict.fromkeys(ids[:-3], 1.5)], unlisted=dict.fromkeys(ids[-3:], 0.25))

    async with priced(tmp_path, market, 13, clock, quotas={"tenero": STARTER}) as (made, _db, kv):
        asked = []
        for _ in range(2):
            asked.append(len(market.asked))
            for _ in range(96):
                await asyncio.sleep(300)
                made.reset()
        found = await get_cached_token_prices(kv, ids)

        assert len(market.asked) - asked[1] > 80
        assert max(clock.now() - price.fetched_at for price in found.values()) < 4 * 3_600_000


@pytest.mark.slow
async def test_the_incident_of_the_silent_nulls(tmp_path: Path) -> None:
    """A shared address at its limit: lines in the log, failures counted, the task held back."""
    clock, others = VirtualClock(), [True]
    market = Market([{"stx": 0.62}])

    def tenero(request: Request) -> FetchResponse:
        if others[0]:
            headers = {"x-ratelimit-type": "web-ui-ip", "x-ratelimit-minute-remaining": "0", "retry-after": "600"}
            return response({"message": "Too many requests"}, status=429, headers=headers)
        return market(request)

    async with priced(tmp_path, tenero, 0, clock) as (made, _db, kv):
        await asyncio.sleep(200)
        status = await made.client().status()

        assert made.log.named("upstream.attempt_failed")
        assert made.log.named("upstream.attempt_failed")[0]["status"] == 429
        assert status.consecutive_failures["tenero"] == 1
        assert (status.next_run_after["tenero"] or 0) >= clock.now()
        assert await get_cached_token_prices(kv, ["stx"]) == {}

        others[0] = False
        await asyncio.sleep(1500)
        status = await made.client().status()

        assert status.consecutive_failures["tenero"] == 0
        assert status.next_run_after["tenero"] is None
        assert (await get_cached_token_prices(kv, ["stx"]))["stx"].price_usd == 0.62


async def test_a_retry_after_beyond_the_slice_holds_the_task_back(tmp_path: Path) -> None:
    """However short the slice: the wait becomes next_run_after, and no run is spent on waiting."""
    clock, asked_at = VirtualClock(), []

    def tenero(_request: Request) -> FetchResponse:
        asked_at.append(clock.now())
        return response({}, status=429, headers={"retry-after": "5"})

    settings = Settings(tenero_cadence=1_000, tenero_slice=900)
    async with priced(tmp_path, tenero, 0, clock, settings) as (made, _db, _kv):
        await asyncio.sleep(0.5)
        status = await made.client().status()
        await asyncio.sleep(20)
        runs = (await made.client().runs(RunFilter(None, 50))).runs

        assert status.next_run_after["tenero"] == asked_at[0] + 5_000
        assert {run.outcome for run in runs} == {"limited"}
        assert status.tasks["tenero"].last_error is not None
        assert status.tasks["tenero"].last_error.kind == "Limited"
        assert len(runs) <= 5
        assert all(after - before >= 5_000 for before, after in pairwise(asked_at))


@pytest.mark.slow
async def test_a_run_that_was_cut_off_at_once_has_a_whole_result(tmp_path: Path) -> None:
    """At the end of its slice, or with its process: all fields, and the run's own times."""
    clock = VirtualClock()

    async def silence(_request: Request) -> FetchResponse:
        await asyncio.sleep(DAY_S)
        raise AssertionError("not reached")

    expected = {**EMPTY_RESULT, "startedAt": clock.now()}
    async with priced(tmp_path, silence, 0, clock) as (made, _db, _kv):
        await asyncio.sleep(250)
        status = await made.client().status()
        again_at = status.tasks["tenero"].next_due_at
        await asyncio.sleep(60)
    async with priced(tmp_path, silence, 0, clock) as (made, _db, _kv):
        after_crash = (await made.client().runs(RunFilter("tenero", 50))).runs[1]

    assert status.last_result["tenero"] == {**expected, "durationMs": 240_000}
    assert status.tasks["tenero"].run_counts == {"failed": 1}
    assert (after_crash.outcome, after_crash.started_at) == ("interrupted", again_at)
    assert after_crash.result == EMPTY_RESULT
