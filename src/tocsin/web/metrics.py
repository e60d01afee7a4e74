"""`GET /metrics`: Prometheus text. It is written by hand: a page of numbers needs no library.

Emits `metrics.incomplete` when the scheduler or the database does not answer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.competition.request_jobs import RECEIVE
from tocsin.competition.walk import list_ages
from tocsin.errors import BindingMissing, StoreError
from tocsin.prices.pricing import prices_of
from tocsin.prices.tracked_tokens import supported_tokens
from tocsin.scheduler.service_health import health_of
from tocsin.shapes.base import FreeForm
from tocsin.shapes.prices import Price
from tocsin.shapes.scheduler import CONDITIONS, OUTCOMES, SERVICE_STATES, Status
from tocsin.web.deps import WebDeps

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# What the local platform counts. Cloudflare has metrics of its own.
RUNTIME = {
    "calls": ("object_calls_total", "calls to objects since the process started"),
    "alarms_rung": ("alarms_rung_total", "alarms whose handler succeeded since the process started"),
    "alarms_failed": ("alarms_failed_total", "alarms whose handler failed since the process started"),
    "alarms_exhausted": ("alarms_exhausted_total", "alarms given up after all retries, and set again"),
    "objects_reset": ("objects_reset_total", "objects that broke and were built again"),
    "log_lines_dropped": ("log_lines_dropped_total", "log lines that could not be written in time"),
}


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A name, its meaning, and its values by label; values that are None are left out."""

    name: str
    help: str
    values: Iterable[tuple[str, float | None]]
    kind: Literal["gauge", "counter"] = "gauge"

    def lines(self) -> Iterator[str]:
        yield f"# HELP tocsin_{self.name} {self.help}"
        yield f"# TYPE tocsin_{self.name} {self.kind}"
        for label, value in self.values:
            if value is not None:
                yield f"tocsin_{self.name}{label} {float(value):.15g}"


class MetricsRoute:
    """Reads everything for each scrape. When the scheduler does not answer, its part is left out."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def show(self, _request: Request) -> ASGIApp:
        deps, now = self._deps, self._deps.clock.now()
        snapshot = await deps.health()
        health, status = health_of(snapshot, now), snapshot.status
        if status is None:
            deps.logger.warn("metrics.incomplete", error=snapshot.scheduler_error)
        supported = await supported_tokens(deps.kv)
        prices = await prices_of(deps.kv, supported, now)
        loop_age = snapshot.loop_tick_age_s
        families = [
            MetricFamily("info", "the version", [(_label(version=deps.version), 1)]),
            MetricFamily("ready", "1 when /readyz says so", [("", health.ready)]),
            MetricFamily(
                "state",
                "1 for the state that the service is in",
                [(_label(state=state), health.state == state) for state in SERVICE_STATES],
            ),
            MetricFamily("scheduler_up", "1 when the scheduler answers", [("", status is not None)]),
            MetricFamily("loop_tick_age_seconds", "since the event loop last ran", [("", loop_age)]),
            *_of_runtime(deps.runtime_metrics() if deps.runtime_metrics is not None else {}),
            *_of_prices(prices, len(supported), now),
            *([] if status is None else _of_status(status, now)),
            *_of_lists(await self._lists(), now),
        ]
        text = "\n".join(line for family in families for line in family.lines()) + "\n"
        return Response(text, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    async def _lists(self) -> dict[str, int | None]:
        try:
            return await list_ages(self._deps.db, self._deps.rules.allowlist.contracts)
        except (StoreError, BindingMissing) as error:
            self._deps.logger.warn("metrics.incomplete", error=str(error)[:300])
            return {}


def _of_lists(lists: Mapping[str, int | None], now: int) -> list[MetricFamily]:
    ages = [
        (_label(contract=contract), None if read_at is None else (now - read_at) / 1000)
        for contract, read_at in lists.items()
    ]
    unread = sum(read_at is None for read_at in lists.values())
    return [
        MetricFamily("list_age_seconds", "since a contract's list was read to its end", ages),
        MetricFamily("lists_never_read", "contracts whose list was never read to its end", [("", unread)]),
    ]


def _of_runtime(counters: Mapping[str, int]) -> list[MetricFamily]:
    named = [(RUNTIME[name], count) for name, count in counters.items()]
    return [MetricFamily(name, text, [("", count)], "counter") for (name, text), count in named]


def _of_prices(prices: Mapping[str, Price], supported: int, now: int) -> list[MetricFamily]:
    ages = [(now - price.fetched_at) / 1000 for price in prices.values() if price.fetched_at is not None]
    priced = sum(price.price_usd is not None for price in prices.values())
    stale = sum(price.stale for price in prices.values())
    return [
        MetricFamily("prices_tracked", "tokens whose prices are kept fresh", [("", supported)]),
        MetricFamily("prices_known", "tokens that have a price", [("", priced)]),
        MetricFamily("prices_stale", "tokens with an old price", [("", stale)]),
        MetricFamily("price_age_newest_seconds", "age of the newest price", [("", min(ages, default=None))]),
        MetricFamily("price_age_oldest_seconds", "age of the oldest price", [("", max(ages, default=None))]),
    ]


def _of_status(status: Status, now: int) -> list[MetricFamily]:
    tasks = {_label(task=name): task for name, task in status.tasks.items()}
    failures = [(_label(task=task), count) for task, count in status.consecutive_failures.items()]
    left = [(_label(upstream=name), budget.left.month) for name, budget in status.budgets.items()]
    return [
        MetricFamily(
            "next_alarm_timestamp_seconds", "when the alarm rings", [("", _seconds(status.next_alarm_at))]
        ),
        MetricFamily("paused", "1 while paused", [("", (status.paused_until or 0) > now)]),
        MetricFamily(
            "task_enabled", "0 when switched off", [(label, task.enabled) for label, task in tasks.items()]
        ),
        MetricFamily(
            "task_overdue",
            "1 when late by its own cadence",
            [(label, task.overdue) for label, task in tasks.items()],
        ),
        MetricFamily(
            "task_condition",
            "1 for the condition that it is in",
            [
                (_label(task=name, condition=condition), task.condition == condition)
                for name, task in status.tasks.items()
                for condition in CONDITIONS
            ],
        ),
        MetricFamily(
            "task_running",
            "1 while it runs",
            [(label, task.running is not None) for label, task in tasks.items()],
        ),
        MetricFamily(
            "task_last_success_timestamp_seconds",
            "end of its last complete run",
            [(label, _seconds(task.last_success_at)) for label, task in tasks.items()],
        ),
        MetricFamily(
            "task_next_due_timestamp_seconds",
            "its next slot",
            [(label, _seconds(task.next_due_at)) for label, task in tasks.items()],
        ),
        MetricFamily(
            "task_cadence_seconds",
            "its effective cadence",
            [(label, _seconds(task.effective_cadence_ms)) for label, task in tasks.items()],
        ),
        MetricFamily("task_consecutive_failures", "failed runs in a row", failures),
        MetricFamily("task_runs_total", "runs that ended, by outcome", _runs(status), "counter"),
        MetricFamily("budget_month_left", "calls left of the month", left),
        MetricFamily(
            "chainhook_last_push_timestamp_seconds",
            "when the last push of Chainhook was received",
            [("", _seconds(status.last_job_at.get(RECEIVE)))],
        ),
        *_of_feed(status.last_result.get("feed") or {}),
    ]


def _of_feed(result: FreeForm) -> list[MetricFamily]:
    """How far the network's list was read; nothing while it is not followed."""
    shown = {name: value for name, value in result.items() if type(value) is int}
    return [
        MetricFamily(
            "feed_complete_block",
            "the block up to which the record is proven complete",
            [("", shown.get("completeUntilBlock"))],
        ),
        MetricFamily(
            "feed_blocks_behind", "blocks whose transactions are unread", [("", shown.get("blocksBehind"))]
        ),
        MetricFamily(
            "feed_missing_nonces", "transactions that no list has shown", [("", shown.get("missingNonces"))]
        ),
        MetricFamily("network_transactions_per_day", "of everybody", [("", shown.get("transactionsPerDay"))]),
    ]


def _runs(status: Status) -> list[tuple[str, float | None]]:
    """All outcomes of all tasks: a counter that exists from the start can be seen to rise."""
    return [
        (_label(task=name, outcome=outcome), task.run_counts.get(outcome, 0))
        for name, task in status.tasks.items()
        for outcome in OUTCOMES
    ]


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _label(**labels: str) -> str:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
