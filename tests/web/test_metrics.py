"""`/metrics`: the state, tasks, budgets, prices and the record; requests, runs and calls as counts and histograms."""

import asyncio
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.runtime import RuntimeCounters as Counted
from holdfast.testing.virtual_time import START_MS, VirtualClock
from stacks_simulator.simulator import Simulator
from support import asgi
from support.asgi import unchecked
from support.service_states import CASES, NOW, entries_of, spent_budget
from support.simulated_fetch import SimulatedFetch
from support.statuses import DAY, run_record
from support.world import Tocsin, tocsin_in
from tocsin import __version__
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import Histogram, Measures
from tocsin.web.deps import Process
from tocsin.web.metrics import HistogramFamily, metric_text

STORED = {
    "scheduler": {"armedAt": START_MS - DAY, "lastJobAt": {"receive": START_MS - 7_000}},
    "task:tenero": {"lastSuccessAt": START_MS - 240_000},
    "task:sweep": {"consecutiveFailures": 2},
    "budget:tenero": spent_budget(START_MS),
}
_QUEUED = "INSERT INTO candidates (txid, source, added_at, due_at) VALUES (?, 'cron', ?, 0)"


async def scraped(made: Tocsin) -> dict[str, float]:
    return samples((await made.ask("/metrics")).body.decode())


async def scraped_of(made: Tocsin, **deps: Any) -> dict[str, float]:
    made.with_deps(**deps)
    return await scraped(made)


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_histogram_is_written_with_rising_counts() -> None:
    """Each bucket holds those before it, the last one all; labels are escaped."""
    counted = Histogram([0.5, 10.0], [2, 1, 3], 61.25)
    text = metric_text([HistogramFamily("x_seconds", "a test", [({"task": 'a"b'}, counted)])])

    assert text.splitlines() == [
        "# HELP tocsin_x_seconds a test",
        "# TYPE tocsin_x_seconds histogram",
        'tocsin_x_seconds_bucket{task="a\\"b",le="0.5"} 2',
        'tocsin_x_seconds_bucket{task="a\\"b",le="10"} 3',
        'tocsin_x_seconds_bucket{task="a\\"b",le="+Inf"} 6',
        'tocsin_x_seconds_sum{task="a\\"b"} 61.25',
        'tocsin_x_seconds_count{task="a\\"b"} 6',
    ]


async def test_requests_are_counted_by_route_and_status(made: Tocsin) -> None:
    """Cached prices too. Whatever paths clients make up, the number of series is bounded."""
    for _ in range(3):
        await made.ask("/api/prices")
    await made.ask("/api/prices?tokens=not/a/token")
    await made.ask("/api/admin/scheduler")
    await made.ask("/static/js/board-table.js")
    for number in range(50):
        await made.ask(f"/made-up/{number}")
    await made.ask("/healthz", method="POST")
    found = await scraped(made)

    counts = {
        name: count
        for name, count in found.items()
        if name.startswith("tocsin_http_requests_total") and "/openapi.json" not in name  # `ask` reads that
    }
    assert counts == {
        'tocsin_http_requests_total{route="/api/prices",status="200"}': 3,
        'tocsin_http_requests_total{route="/api/prices",status="400"}': 1,
        'tocsin_http_requests_total{route="/api/admin/scheduler",status="401"}': 1,
        'tocsin_http_requests_total{route="/static",status="200"}': 1,
        'tocsin_http_requests_total{route="other",status="404"}': 50,
        'tocsin_http_requests_total{route="/healthz",status="405"}': 1,
    }
    assert found['tocsin_http_request_duration_seconds_count{route="/api/prices"}'] == 4
    assert found['tocsin_http_request_duration_seconds_bucket{route="other",le="0.001"}'] == 50
    assert 'tocsin_http_request_duration_seconds_count{route="/console"}' not in found


def measures() -> Measures:
    """What the object measured: two runs of the sweep, one of them cut off, two calls, and an alarm."""
    measured = Measures()
    measured.run_ended(run_record(task="sweep", duration_ms=42_000, outcome="ok"))
    measured.run_ended(run_record(task="sweep", duration_ms=99_000, outcome="interrupted"))
    measured.call_answered("hiro", "ok", 0.2)
    measured.call_answered("hiro", "limited", 0.02)
    measured.alarm_rang(7)
    measured.alarm_rang(-20)  # the clock was set back
    return measured


@pytest.mark.parametrize("process", [Process(), None])
async def test_the_schedulers_measures_are_shown(process: Process | None, tmp_path: Path) -> None:
    """Runs by task, calls by upstream and class of answer, and the alarm.

    A process knows them already; on Cloudflare, a scrape makes one call to the object.
    """
    async with tocsin_in(tmp_path, process=process, stored={"measures": measures().to_json()}) as made:
        if process is not None:
            await made.built.health.check()
        before = made.scheduler.runtime.metrics.calls
        found = samples((await asgi.ask(unchecked(made.app), "/metrics")).body.decode())

        assert made.scheduler.runtime.metrics.calls == before + (process is None)
    assert found['tocsin_run_duration_seconds_bucket{task="sweep",le="30"}'] == 0
    assert found['tocsin_run_duration_seconds_bucket{task="sweep",le="60"}'] == 1
    assert found['tocsin_run_duration_seconds_count{task="sweep"}'] == 1
    assert found['tocsin_upstream_call_duration_seconds_sum{upstream="hiro",answer="ok"}'] == 0.2
    assert found['tocsin_upstream_call_duration_seconds_count{upstream="hiro",answer="limited"}'] == 1
    assert found['tocsin_alarm_lateness_seconds_bucket{le="0.01"}'] == 2


def slow(simulator: Simulator) -> SimulatedFetch:
    return SimulatedFetch(simulator, latency_s=5)


async def queue(made: Tocsin, *ages_s: int) -> None:
    db = made.db
    await db.batch([db.prepare(_QUEUED).bind(f"0x{n}", START_MS - age_s * 1000) for n, age_s in enumerate(ages_s)])


async def test_the_record_and_the_queue_are_shown(tmp_path: Path) -> None:
    """An empty queue has no oldest entry, which is not the same as one of age zero."""
    async with tocsin_in(tmp_path, stored=STORED) as made:
        empty = await scraped(made)
        await queue(made, 5, 90, 30)
        found = await scraped(made)

    assert (empty["tocsin_queue_length"], "tocsin_queue_oldest_seconds" in empty) == (0, False)
    assert (found["tocsin_queue_length"], found["tocsin_queue_oldest_seconds"]) == (3, 90)
    assert found["tocsin_swaps_recorded"] == 0
    assert found["tocsin_chainhook_push_age_seconds"] == 7
    assert found['tocsin_budget_month_limit{upstream="tenero"}'] == 50_000
    assert found['tocsin_budget_month_forecast{upstream="tenero"}'] == 3_280  # 82 a day for 18 days more
    assert 'tocsin_budget_month_forecast{upstream="hiro"}' not in found


async def test_metrics_are_read_at_most_once_a_second(made: Tocsin) -> None:
    """However many scrapes there are, at once or one after the other."""
    reads = 0
    health = made.deps.health

    async def counted() -> HealthSnapshot:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0.1)
        return await health()

    made.with_deps(in_one_loop=True, health=counted)
    await asyncio.gather(*(made.ask("/metrics") for _ in range(20)))
    at_once = reads
    first = (await made.ask("/metrics")).body
    await made.clock.sleep(0.8)
    same = (await made.ask("/metrics", method="HEAD")).body
    await made.clock.sleep(0.1)
    newer = (await made.ask("/metrics")).body

    assert (at_once, first == same, first != newer, reads) == (1, True, True, 2)


async def test_a_limited_task_is_a_note_of_a_ready_service(tmp_path: Path) -> None:
    """It is reported from the first run on; the service is not ready when the task becomes overdue."""
    async with tocsin_in(tmp_path, clock=VirtualClock(NOW), stored=entries_of(CASES["limited"]), arm=True) as made:
        answer = await made.ask("/readyz")
        found = await scraped(made)

        assert answer.json() == {
            "ready": True,
            "state": "limited",
            "reasons": [],
            "notes": [f"{CASES['limited'].said}; next run 04:00 UTC"],
        }
        assert (found["tocsin_ready"], found['tocsin_state{state="limited"}']) == (1, 1)
        assert found['tocsin_state{state="ready"}'] == 0
        assert found['tocsin_task_condition{task="sweep",condition="limited"}'] == 1


async def test_metrics_show_tasks_budgets_and_prices(tmp_path: Path) -> None:
    """As Prometheus text: every family with help and type, every line a name and a number."""
    async with tocsin_in(tmp_path, stored=STORED, tenero_enabled=False, fetch=slow) as made:
        await put_token_price(made.kv, "stx", CachedPrice(0.85, 6, START_MS - 29_000))
        refresh = asyncio.create_task(made.client().refresh("tenero"))
        await asyncio.sleep(1)
        answer = await made.ask("/metrics")
        await refresh

        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = answer.body.decode()
        for line in text.splitlines():
            assert re.fullmatch(
                r'# (HELP|TYPE) tocsin_\w+ .+|tocsin_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [-0-9.e+]+', line
            ), line
        counters = set(re.findall(r"# TYPE (\w+) counter", text))
        assert counters == set(re.findall(r"# TYPE (\w+_total) \w+", text))
        found = samples(text)
        assert found[f'tocsin_info{{version="{__version__}"}}'] == 1
        assert (found["tocsin_ready"], found["tocsin_scheduler_up"], found["tocsin_paused"]) == (0, 1, 0)
        assert found['tocsin_task_running{task="tenero"}'] == 1
        assert found['tocsin_task_overdue{task="sweep"}'] == 1
        assert found['tocsin_task_enabled{task="tenero"}'] == 0
        assert found['tocsin_task_consecutive_failures{task="sweep"}'] == 2
        assert found['tocsin_task_last_success_timestamp_seconds{task="tenero"}'] == START_MS / 1000 - 240
        assert 'tocsin_task_last_success_timestamp_seconds{task="sweep"}' not in found
        assert found['tocsin_task_runs_total{task="tenero",outcome="ok"}'] == 0
        assert found['tocsin_budget_month_left{upstream="tenero"}'] == 48_210  # one is under way
        assert found["tocsin_chainhook_last_push_timestamp_seconds"] == START_MS / 1000 - 7
        assert (found["tocsin_prices_tracked"], found["tocsin_prices_known"]) == (3, 1)
        assert found["tocsin_price_age_oldest_seconds"] == 30


async def test_metrics_count_runs_by_outcome(tmp_path: Path) -> None:
    """Of every task, all outcomes, even those that never happened."""
    stored = {"task:tenero": {"runCounts": {"ok": 7, "partial": 1, "failed": 2}}}
    async with tocsin_in(tmp_path, stored=stored) as made:
        found = await scraped(made)

        assert {name: count for name, count in found.items() if 'runs_total{task="tenero"' in name} == {
            'tocsin_task_runs_total{task="tenero",outcome="ok"}': 7,
            'tocsin_task_runs_total{task="tenero",outcome="partial"}': 1,
            'tocsin_task_runs_total{task="tenero",outcome="limited"}': 0,
            'tocsin_task_runs_total{task="tenero",outcome="failed"}': 2,
            'tocsin_task_runs_total{task="tenero",outcome="stopped"}': 0,
            'tocsin_task_runs_total{task="tenero",outcome="interrupted"}': 0,
        }


async def test_metrics_show_what_the_runtime_counts(made: Tocsin) -> None:
    """Where there is a runtime of ours: alarms that rang, failed or were given up, objects that broke."""
    counted = Counted(calls=9, alarms_rung=5, alarms_failed=3, alarms_exhausted=1, objects_reset=2)
    without = await scraped(made)
    found = await scraped_of(made, process=Process(metrics=lambda: asdict(counted)))

    assert {name: count for name, count in found.items() if name not in without} == {
        "tocsin_object_calls_total": 9,
        "tocsin_alarms_rung_total": 5,
        "tocsin_alarms_failed_total": 3,
        "tocsin_alarms_exhausted_total": 1,
        "tocsin_objects_reset_total": 2,
    }


async def test_metrics_are_there_when_the_scheduler_is_not(failing: Tocsin) -> None:
    """The missing part shows as a scheduler that is down."""
    found = await scraped(failing)

    assert (found["tocsin_scheduler_up"], found["tocsin_ready"]) == (0, 0)
    assert not any(name.startswith("tocsin_task") for name in found)
    assert failing.log.named("metrics.incomplete") == [{"error": "the scheduler does not answer: the object was reset"}]
