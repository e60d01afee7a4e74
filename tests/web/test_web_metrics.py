"""Histograms and counts of `/metrics`: requests, runs, calls, the alarm, the record."""

import asyncio
from dataclasses import replace
from pathlib import Path

from starlette.types import ASGIApp

from holdfast.errors import ObjectReset
from holdfast_testing.virtual_time import START_MS
from support.asgi import ask
from support.scripted_scheduler import Scene, scene
from support.statuses import run_record
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import Histogram
from tocsin.web.app import create_app
from tocsin.web.metric_text import HistogramFamily, metric_text
from tocsin.web.pages import page_routes

_QUEUED = "INSERT INTO candidates (txid, source, added_at, due_at) VALUES (?, 'cron', ?, 0)"


async def scraped(app: ASGIApp) -> dict[str, float]:
    text = (await ask(app, "/metrics")).body.decode()
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


async def test_requests_are_counted_by_route_and_status(tmp_path: Path) -> None:
    """Cached prices too. Whatever paths clients make up, the number of series is bounded."""
    async with scene(tmp_path) as made:
        app = create_app(made.site, page_routes())
        for _ in range(3):
            await ask(app, "/api/prices")
        await ask(app, "/api/prices?tokens=not/a/token")
        await ask(app, "/api/admin/scheduler")
        await ask(app, "/static/js/board-table.js")
        for number in range(50):
            await ask(app, f"/made-up/{number}")
        await ask(app, "/healthz", method="POST")
        found = await scraped(app)

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


async def test_the_schedulers_measures_are_shown(tmp_path: Path) -> None:
    """Runs by task, calls by upstream and class of answer, and the alarm; for one call to the object."""
    async with scene(tmp_path) as made:
        measured = made.scheduler.measured
        measured.run_ended(run_record(task="sweep", duration_ms=42_000, outcome="ok"))
        measured.run_ended(run_record(task="sweep", duration_ms=99_000, outcome="interrupted"))
        measured.call_answered("hiro", "ok", 0.2)
        measured.call_answered("hiro", "limited", 0.02)
        measured.alarm_rang(7)
        measured.alarm_rang(-20)  # the clock was set back
        found = await scraped(create_app(made.site))

        assert made.scheduler.calls == [("measures",)]
    assert found['tocsin_run_duration_seconds_bucket{task="sweep",le="30"}'] == 0
    assert found['tocsin_run_duration_seconds_bucket{task="sweep",le="60"}'] == 1
    assert found['tocsin_run_duration_seconds_count{task="sweep"}'] == 1
    assert found['tocsin_upstream_call_duration_seconds_sum{upstream="hiro",answer="ok"}'] == 0.2
    assert found['tocsin_upstream_call_duration_seconds_count{upstream="hiro",answer="limited"}'] == 1
    assert found['tocsin_alarm_lateness_seconds_bucket{le="0.01"}'] == 2


async def test_where_one_call_gets_everything_no_other_is_made(tmp_path: Path) -> None:
    """As on Cloudflare: the health comes with the measures."""
    async with scene(tmp_path) as made:
        made.scheduler.measured.alarm_rang(7)
        seen = replace(await made.site.health(), measures=made.scheduler.measured.measures())

        async def measured_health() -> HealthSnapshot:
            return seen

        found = await scraped(create_app(made.with_site(measured_health=measured_health)))

        assert made.scheduler.calls == []
    assert found["tocsin_alarm_lateness_seconds_count"] == 1


async def queue(made: Scene, *ages_s: int) -> None:
    db = made.site.db
    await db.batch([db.prepare(_QUEUED).bind(f"0x{n}", START_MS - age_s * 1000) for n, age_s in enumerate(ages_s)])


async def test_the_record_and_the_queue_are_shown(tmp_path: Path) -> None:
    """An empty queue has no oldest entry, which is not the same as one of age zero."""
    async with scene(tmp_path) as made:
        made.scheduler.show(last_job_at={"receive": START_MS - 7_000})
        empty = await scraped(create_app(made.site))
        await queue(made, 5, 90, 30)
        found = await scraped(create_app(made.site))

    assert (empty["tocsin_queue_length"], "tocsin_queue_oldest_seconds" in empty) == (0, False)
    assert (found["tocsin_queue_length"], found["tocsin_queue_oldest_seconds"]) == (3, 90)
    assert found["tocsin_swaps_recorded"] == 0
    assert found["tocsin_chainhook_push_age_seconds"] == 7
    assert found['tocsin_budget_month_limit{upstream="tenero"}'] == 50_000
    assert found['tocsin_budget_month_forecast{upstream="tenero"}'] == 3_100
    assert 'tocsin_budget_month_forecast{upstream="hiro"}' not in found


async def test_the_rest_is_shown_when_the_measures_cannot_be_read(tmp_path: Path) -> None:
    """The object may break between two looks at it."""
    async with scene(tmp_path) as made:
        seen = await made.site.health()
        made.scheduler.failing = ObjectReset("gone")

        async def health() -> object:
            return seen

        found = await scraped(create_app(made.with_site(health=health)))

    assert found["tocsin_ready"] == 1
    assert not any("duration_seconds" in name and "http" not in name for name in found)
    assert made.log.named("metrics.incomplete") == [{"error": "gone"}]


async def test_metrics_are_read_at_most_once_a_second(tmp_path: Path) -> None:
    """However many scrapes there are, at once or one after the other."""
    async with scene(tmp_path) as made:
        reads = 0
        health = made.site.health

        async def counted() -> HealthSnapshot:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0.1)
            return await health()

        app = create_app(made.with_site(in_one_loop=True, health=counted))
        await asyncio.gather(*(ask(app, "/metrics") for _ in range(20)))
        at_once = reads
        first = (await ask(app, "/metrics")).body
        await made.site.clock.sleep(0.8)
        same = (await ask(app, "/metrics", method="HEAD")).body
        await made.site.clock.sleep(0.1)
        newer = (await ask(app, "/metrics")).body

        assert (at_once, first == same, first != newer, reads) == (1, True, True, 2)
