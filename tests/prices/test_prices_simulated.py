"""The price task against the simulated Tenero: all its ways of quoting, a small plan, a busy market."""

from pathlib import Path
from random import Random

import pytest

from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import open_kv
from holdfast_testing.virtual_time import VirtualClock
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.rate_limits import TENERO_STARTER, TeneroRateLimit
from stacks_simulator.tokens import DIKO, FILLER_TOKENS, TRADED_TOKENS, VELAR
from support.local_store import open_competition
from support.scripted_fetch import always, response
from support.simulated import quiet_simulator
from support.simulated_fetch import TENERO_URL, SimulatedFetch
from support.task_run import TaskBench
from support.upstreams import Wired
from tocsin.prices.refresh import refresh_prices_task
from tocsin.prices.store import prices_of
from tocsin.prices.tokens import tracked_tokens, traded_tokens
from tocsin.settings import Settings
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.tenero import tenero_upstream

TASK = refresh_prices_task(Settings())
STARTER = Quota(minute=10, month=10_000)
PAIRS = [(token.id, "stx") for token in TRADED_TOKENS]


def wired_to_simulator(quota: Quota) -> tuple[Wired, SimulatedFetch]:
    clock, log, random = VirtualClock(), CapturedLog(), Random(3).random
    fetch = SimulatedFetch(quiet_simulator(clock), latency_s=0.06)
    wired = Wired(tenero_upstream(TENERO_URL, None), always(response({})), quota, clock=clock, log=log)
    wired.client = UpstreamClient(wired.upstream, fetch, wired.limiter, clock, random)
    return wired, fetch


async def test_every_way_of_quoting_ends_as_a_price_or_as_none(tmp_path: Path) -> None:
    """Numbers, strings, zero, null, unlisted and unknown tokens: all are priced except the one without a price."""
    wired, _ = wired_to_simulator(STARTER)
    async with open_competition(tmp_path) as db, open_kv(tmp_path, wired.clock) as kv:
        bench = TaskBench(db, kv, wired)
        await bench.traded(*PAIRS)

        result = await bench.run(TASK)

        assert result.error is None
        assert result.counters["unpricedTokens"] == [VELAR.id]
        found = await prices_of(kv, tracked_tokens(await traded_tokens(db)), wired.clock.now())
        assert {token_id for token_id, price in found.items() if price.price_usd is None} == {VELAR.id}
        assert {price.decimals for price in found.values()} == {6, 8, 18}
        assert found[DIKO.id].price_usd is not None


@pytest.mark.slow
async def test_hours_on_the_starter_plan_refreshes_every_token(tmp_path: Path) -> None:
    """53 tokens on all pages of the list, 10 calls a minute: never refused, and no price grows stale."""
    wired, fetch = wired_to_simulator(STARTER)
    fetch._simulator.tenero_rate_limit = TeneroRateLimit(TENERO_STARTER, TENERO_STARTER)
    async with open_competition(tmp_path) as db, open_kv(tmp_path, wired.clock) as kv:
        bench = TaskBench(db, kv, wired)
        await bench.traded(*PAIRS, *[(token.id, "stx") for token in FILLER_TOKENS[::6]])
        ends = wired.clock.now() + 8 * 3_600_000
        while wired.clock.now() < ends:
            due_at = wired.clock.now() + 300_000
            result = await bench.run(TASK)
            await wired.clock.sleep((max(result.limited_until or 0, due_at) - wired.clock.now()) / 1000)

        found = await prices_of(kv, tracked_tokens(await traded_tokens(db)), wired.clock.now())
        assert len(found) == len(TRADED_TOKENS) + len(FILLER_TOKENS[::6])
        assert [token_id for token_id, price in found.items() if price.stale] == []
        assert wired.log.of("upstream.attempt_failed") == []


async def test_an_outage_is_counted_and_over_when_it_is_over(tmp_path: Path) -> None:
    """Others use up the shared limit: it is a failure with log lines, and the next refresh works."""
    wired, fetch = wired_to_simulator(Quota(minute=100, month=50_000))
    async with open_competition(tmp_path) as db, open_kv(tmp_path, wired.clock) as kv:
        bench = TaskBench(db, kv, wired)
        await bench.run(TASK)
        fetch._simulator.faults.add(SimulatedFault(kind="limited", upstream="tenero", times=50, retry_after=None))

        during = await bench.run(TASK)
        fetch._simulator.faults.clear()
        await wired.clock.sleep(3_600)
        after = await bench.run(TASK)

        assert during.incomplete is not None
        assert not during.progressed
        assert during.limited_until is not None
        assert wired.log.of("upstream.attempt_failed")
        assert wired.log.of("prices.asking_failed")
        assert (after.error, after.limited_until, after.counters["succeeded"]) == (None, None, 3)


async def test_a_price_is_as_old_as_its_own_page(tmp_path: Path) -> None:
    """The second page is slow: the prices of the first are not called newer than they are."""
    wired, fetch = wired_to_simulator(STARTER)
    began_at = wired.clock.now()
    fetch._simulator.faults.add(SimulatedFault(kind="delay", path="/tokens", seconds=6.0, from_ms=began_at + 100))
    async with open_competition(tmp_path) as db, open_kv(tmp_path, wired.clock) as kv:
        bench = TaskBench(db, kv, wired)
        await bench.traded(*PAIRS)

        await bench.run(TASK)

        found = await prices_of(kv, ["stx", DIKO.id], wired.clock.now())
        assert found["stx"].fetched_at == began_at + 60
        assert wired.clock.now() - began_at > 6_000
