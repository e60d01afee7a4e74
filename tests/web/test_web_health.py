"""Health, readiness and metrics: what a supervisor sees."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from holdfast.local.runtime import RuntimeCounters as Counted
from holdfast_testing.virtual_time import START_MS
from support.asgi import ask
from support.scripted_scheduler import scene
from support.statuses import scheduler_status, task_status
from tocsin.prices.store import CachedPrice, put_token_price
from tocsin.scheduler.health import HealthSnapshot, health_of
from tocsin.scheduler.types import Progress
from tocsin.web.app import create_app


async def test_a_live_process_is_healthy(tmp_path: Path) -> None:
    """Nothing else is checked: not even a broken scheduler matters."""
    async with scene(tmp_path) as made:
        made.scheduler.failing = ObjectReset("gone")
        made.health = HealthSnapshot(99.0, "full", None)
        answer = await ask(create_app(made.site), "/healthz")

        assert (answer.status, answer.json()) == (200, {"ok": True, "version": "1.2.3"})


async def test_a_healthy_service_is_ready(tmp_path: Path) -> None:
    """With no reasons against it, and without a call to the scheduler."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), "/readyz")

        assert (answer.status, answer.json()) == (200, {"ready": True, "state": "ready", "reasons": [], "notes": []})
        assert answer.headers["cache-control"] == "no-store"
        assert made.scheduler.calls == []


@pytest.mark.parametrize(
    ("snapshot", "shown", "state", "reason"),
    [
        ({"loop_tick_age_s": 6.0}, {}, "broken", "the event loop has been stuck for 6 s"),
        ({"store_error": "disk is full"}, {}, "broken", "the store cannot be written: disk is full"),
        ({}, {"next_alarm_at": None}, "broken", "no alarm is set: no task will run"),
        ({}, {"next_alarm_at": START_MS - 61_000}, "broken", "the alarm is 61 s late"),
        (
            {},
            {"tasks": {"sweep": task_status(condition="overdue", problem="sweep is overdue")}},
            "overdue",
            "sweep is overdue",
        ),
    ],
)
async def test_each_problem_is_a_503_with_its_reason(
    tmp_path: Path, snapshot: dict[str, Any], shown: dict[str, Any], state: str, reason: str
) -> None:
    """In the shape of all errors, so that an operator reads a sentence."""
    async with scene(tmp_path) as made:
        made.health = replace(made.health, **snapshot)
        made.scheduler.show(**shown)
        answer = await ask(create_app(made.site), "/readyz")

        assert answer.status == 503
        assert answer.json() == {
            "error": f"Not ready: {reason}.",
            "code": "not_ready",
            "retryable": True,
            "ready": False,
            "state": state,
            "reasons": [reason],
            "notes": [],
        }


def test_all_reasons_are_listed_together_and_the_worst_names_the_state() -> None:
    """One fault does not hide another."""
    tasks = {
        "tenero": task_status(condition="failing", problem="a"),
        "sweep": task_status(condition="disabled", problem="b"),
        "watch": task_status(condition="limited", sentence="watch is limited"),
    }
    health = health_of(HealthSnapshot(9.0, "full", scheduler_status(tasks=tasks)), START_MS)

    assert (health.state, health.ready, len(health.reasons)) == ("broken", False, 4)
    assert health.notes == ["watch is limited"]
    assert health_of(HealthSnapshot(0, None, scheduler_status(tasks=tasks)), START_MS).state == "disabled"


async def test_a_limited_task_is_a_note_of_a_ready_service(tmp_path: Path) -> None:
    """It is reported from the first run on; the service is not ready when the task becomes overdue."""
    async with scene(tmp_path) as made:
        made.scheduler.show(tasks={"sweep": task_status(condition="limited", sentence="sweep is limited")})
        answer = await ask(create_app(made.site), "/readyz")
        found = samples((await ask(create_app(made.site), "/metrics")).body.decode())

        assert answer.json() == {"ready": True, "state": "limited", "reasons": [], "notes": ["sweep is limited"]}
        assert (found["tocsin_ready"], found['tocsin_state{state="limited"}']) == (1, 1)
        assert found['tocsin_state{state="ready"}'] == 0
        assert found['tocsin_task_condition{task="sweep",condition="limited"}'] == 1


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_metrics_show_tasks_budgets_and_prices(tmp_path: Path) -> None:
    """As Prometheus text: every family with help and type, every line a name and a number."""
    async with scene(tmp_path) as made:
        tasks = {
            "tenero": task_status(running=Progress(1, 1, 2, 7)),
            "sweep": task_status(overdue=True, last_success_at=None, enabled=False),
        }
        made.scheduler.show(tasks=tasks, last_job_at={"receive": START_MS - 7_000})
        await put_token_price(made.site.kv, "stx", CachedPrice(0.85, 6, START_MS - 30_000))
        answer = await ask(create_app(made.site), "/metrics")

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
        assert found['tocsin_info{version="1.2.3"}'] == 1
        assert (found["tocsin_ready"], found["tocsin_scheduler_up"], found["tocsin_paused"]) == (1, 1, 0)
        assert found['tocsin_task_running{task="tenero"}'] == 1
        assert found['tocsin_task_overdue{task="sweep"}'] == 1
        assert found['tocsin_task_enabled{task="sweep"}'] == 0
        assert found['tocsin_task_consecutive_failures{task="sweep"}'] == 2
        assert found['tocsin_task_last_success_timestamp_seconds{task="tenero"}'] == START_MS / 1000 - 240
        assert 'tocsin_task_last_success_timestamp_seconds{task="sweep"}' not in found
        assert found['tocsin_task_runs_total{task="tenero",outcome="ok"}'] == 0
        assert found['tocsin_budget_month_left{upstream="tenero"}'] == 48_211
        assert found["tocsin_chainhook_last_push_timestamp_seconds"] == START_MS / 1000 - 7
        assert (found["tocsin_prices_tracked"], found["tocsin_prices_known"]) == (3, 1)
        assert found["tocsin_price_age_oldest_seconds"] == 30


async def test_metrics_count_runs_by_outcome(tmp_path: Path) -> None:
    """Of every task, all outcomes, even those that never happened."""
    async with scene(tmp_path) as made:
        made.scheduler.show(tasks={"tenero": task_status(run_counts={"ok": 7, "partial": 1, "failed": 2})})
        found = samples((await ask(create_app(made.site), "/metrics")).body.decode())

        assert {name: count for name, count in found.items() if "runs_total" in name} == {
            'tocsin_task_runs_total{task="tenero",outcome="ok"}': 7,
            'tocsin_task_runs_total{task="tenero",outcome="partial"}': 1,
            'tocsin_task_runs_total{task="tenero",outcome="limited"}': 0,
            'tocsin_task_runs_total{task="tenero",outcome="failed"}': 2,
            'tocsin_task_runs_total{task="tenero",outcome="stopped"}': 0,
            'tocsin_task_runs_total{task="tenero",outcome="interrupted"}': 0,
        }


async def test_metrics_show_what_the_runtime_counts(tmp_path: Path) -> None:
    """Where there is a runtime of ours: alarms that rang, failed or were given up, objects that broke."""
    counted = Counted(calls=9, alarms_rung=5, alarms_failed=3, alarms_exhausted=1, objects_reset=2)
    async with scene(tmp_path) as made:
        without = samples((await ask(create_app(made.site), "/metrics")).body.decode())
        site = made.with_site(runtime_metrics=lambda: asdict(counted))
        found = samples((await ask(create_app(site), "/metrics")).body.decode())

        assert {name: count for name, count in found.items() if name not in without} == {
            "tocsin_object_calls_total": 9,
            "tocsin_alarms_rung_total": 5,
            "tocsin_alarms_failed_total": 3,
            "tocsin_alarms_exhausted_total": 1,
            "tocsin_objects_reset_total": 2,
        }


async def test_metrics_are_there_when_the_scheduler_is_not(tmp_path: Path) -> None:
    """The missing part shows as a scheduler that is down."""
    async with scene(tmp_path) as made:
        made.scheduler.failing = ObjectReset("gone")
        found = samples((await ask(create_app(made.site), "/metrics")).body.decode())

        assert (found["tocsin_scheduler_up"], found["tocsin_ready"]) == (0, 0)
        assert not any(name.startswith("tocsin_task") for name in found)
        assert made.log.named("metrics.incomplete") == [{"error": "gone"}]
