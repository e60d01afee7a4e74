"""`GET /metrics`: Prometheus text, written by hand: a page of numbers needs no library."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.errors import BindingMissing, ObjectError
from tocsin.prices.pricing import Price, prices_of
from tocsin.prices.tracked_tokens import tracked_tokens
from tocsin.scheduler.run import ENDINGS
from tocsin.web.deps import WebDeps
from tocsin.web.health import not_ready

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


# What the object runtime counts. Cloudflare counts for itself.
RUNTIME = {
    "calls": ("object_calls_total", "calls to objects since the process started"),
    "alarms_rung": ("alarms_rung_total", "alarms whose handler ended well since the process started"),
    "alarms_failed": ("alarms_failed_total", "alarms whose handler failed since the process started"),
    "alarms_exhausted": ("alarms_exhausted_total", "alarms given up after all retries, and armed again"),
    "objects_reset": ("objects_reset_total", "objects that broke and were made anew"),
}


@dataclass(frozen=True, slots=True)
class Family:
    """A name, what it means, and its values by label; None is left out."""

    name: str
    about: str
    values: Iterable[tuple[str, float | None]]
    kind: Literal["gauge", "counter"] = "gauge"

    def lines(self) -> Iterator[str]:
        yield f"# HELP tocsin_{self.name} {self.about}"
        yield f"# TYPE tocsin_{self.name} {self.kind}"
        for label, value in self.values:
            if value is not None:
                yield f"tocsin_{self.name}{label} {float(value):.15g}"


class MetricsRoute:
    """Reads everything anew for each scrape; a scheduler that does not answer leaves its part out."""

    def __init__(self, site: WebDeps) -> None:
        self._site = site

    async def show(self, _request: Request) -> ASGIApp:
        now = self._site.clock.now()
        snapshot = await self._site.health()
        status: JSON = None
        try:
            status = await self._site.scheduler().status()
        except (ObjectError, BindingMissing) as error:
            self._site.logger.warn("metrics.incomplete", error=str(error)[:300])
        tracked = await tracked_tokens(self._site.kv)
        prices = await prices_of(self._site.kv, tracked, now)
        families = [
            Family("info", "the version", [(_label(version=self._site.version), 1)]),
            Family("ready", "1 when /readyz says so", [("", not not_ready(snapshot, now))]),
            Family("scheduler_up", "1 when the scheduler answers", [("", status is not None)]),
            Family(
                "loop_tick_age_seconds", "since the event loop last ran", [("", snapshot.loop_tick_age_s)]
            ),
            *_of_runtime(self._site.runtime_metrics() if self._site.runtime_metrics is not None else {}),
            *_of_prices(prices, len(tracked), now),
            *([] if status is None else _of_status(status, now)),
        ]
        text = "\n".join(line for family in families for line in family.lines()) + "\n"
        return Response(text, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})


def _of_runtime(counted: Mapping[str, int]) -> list[Family]:
    found = [(RUNTIME[name], count) for name, count in counted.items()]
    return [Family(name, about, [("", count)], "counter") for (name, about), count in found]


def _of_prices(prices: dict[str, Price], tracked: int, now: int) -> list[Family]:
    ages = [(now - price.fetched_at) / 1000 for price in prices.values() if price.fetched_at is not None]
    priced = sum(price.price_usd is not None for price in prices.values())
    return [
        Family("prices_tracked", "tokens that are priced at all", [("", tracked)]),
        Family("prices_known", "tokens that have a price", [("", priced)]),
        Family("prices_stale", "tokens with an old price", [("", sum(p.stale for p in prices.values()))]),
        Family("price_age_newest_seconds", "age of the newest price", [("", min(ages, default=None))]),
        Family("price_age_oldest_seconds", "age of the oldest price", [("", max(ages, default=None))]),
    ]


def _of_status(status: JSON, now: int) -> list[Family]:
    tasks = status["tasks"]

    def each(name: str, scale: float = 1) -> list[tuple[str, float | None]]:
        found = [(_label(task=task), row.get(name)) for task, row in tasks.items()]
        return [(label, None if value is None else value / scale) for label, value in found]

    failures = status["consecutiveFailures"]
    left = [
        (_label(upstream=name), (budget.get("left") or {}).get("month"))
        for name, budget in status["budgets"].items()
    ]
    at = status["nextAlarmAt"]
    return [
        Family("next_alarm_timestamp_seconds", "when the alarm rings", [("", at and at / 1000)]),
        Family("paused", "1 while paused", [("", (status["pausedUntil"] or 0) > now)]),
        Family("task_enabled", "0 when switched off", each("enabled")),
        Family("task_overdue", "1 when late by its own cadence", each("overdue")),
        Family(
            "task_running",
            "1 while it runs",
            [(_label(task=task), row.get("running") is not None) for task, row in tasks.items()],
        ),
        Family("task_last_success_timestamp_seconds", "end of its last success", each("lastSuccessAt", 1000)),
        Family("task_next_due_timestamp_seconds", "its next slot", each("nextDueAt", 1000)),
        Family("task_cadence_seconds", "its effective cadence", each("effectiveCadenceMs", 1000)),
        Family(
            "task_consecutive_failures",
            "failed runs in a row",
            [(_label(task=task), count) for task, count in failures.items()],
        ),
        Family("task_runs_total", "runs that ended, by how they did", _runs(tasks), "counter"),
        Family("budget_month_left", "calls left of the month", left),
    ]


def _runs(tasks: Mapping[str, JSON]) -> list[tuple[str, float | None]]:
    """All outcomes of all tasks: a counter that is there from the beginning can be seen to rise."""
    return [
        (_label(task=task, outcome=outcome), row.get("runCounts", {}).get(outcome, 0))
        for task, row in tasks.items()
        for outcome in ENDINGS
    ]


def _label(**labels: str) -> str:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
