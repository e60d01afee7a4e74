"""`GET /metrics`: metrics for Prometheus. Those of the same second share one answer.

A process knows the scheduler's status and measures already; on Cloudflare, a scrape makes one call for both. Requests
are counted by route and status in the memory of this process: a restart resets the counts, and on Cloudflare, where
each isolate counts for itself, they are samples. The values of labels are bounded: an unknown path counts as `other`, a
file of the pages as `/static`. docs/decisions.md explains why this uses no library.

Emits `metrics.incomplete` when the scheduler or the database does not answer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Send

from holdfast.errors import BindingMissing, StoreError
from holdfast.types import Clock
from tocsin import __version__
from tocsin.prices.price import Price
from tocsin.prices.store import prices_of, supported_tokens
from tocsin.scheduler.health import health_of
from tocsin.scheduler.types import CONDITIONS, OUTCOMES, SERVICE_STATES, Histogram, Measures, Status, TaskStatus
from tocsin.shape import FreeForm
from tocsin.swaps.position import list_ages
from tocsin.swaps.store import RecordSize, record_size
from tocsin.swaps.submit import RECEIVE
from tocsin.swaps.trades import refused_since
from tocsin.upstream.budget import BudgetStatus
from tocsin.upstream.lookups import LookupUse
from tocsin.web.cache import SharedResults
from tocsin.web.deps import WebDeps
from tocsin.web.response import NO_STORE
from tocsin.web.route import PathPatterns, get

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "tocsin_"
BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
STATIC = "/static"
OTHER = "other"
DAY_MS = 86_400_000
AGE_S = 1.0
Samples: TypeAlias = Sequence[tuple[dict[str, str], float | Histogram | None]]

# The counters of the local platform. Cloudflare has its own metrics.
RUNTIME = {
    "calls": ("object_calls_total", "calls to objects since the process started"),
    "alarms_rung": ("alarms_rung_total", "alarms whose handler succeeded since the process started"),
    "alarms_failed": ("alarms_failed_total", "alarms whose handler failed since the process started"),
    "alarms_exhausted": ("alarms_exhausted_total", "alarms whose retries were exhausted"),
    "objects_reset": ("objects_reset_total", "objects that were reset"),
    "log_lines_dropped": ("log_lines_dropped_total", "log lines that could not be written in time"),
    "connections_dropped": (
        "http_connections_dropped_total",
        "connections that were closed because there were too many",
    ),
    "connections_open": ("http_connections", "open connections"),
    "started_at_s": ("start_timestamp_seconds", "when the process started"),
}


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A name, its meaning, and its values by label; those that are None are left out.

    Numbers are a counter if the name ends with `_total`, or else a gauge.
    """

    name: str
    help: str
    values: Samples
    is_histogram: bool = False

    def lines(self) -> Iterator[str]:
        name = f"{PREFIX}{self.name}"
        kind = "histogram" if self.is_histogram else "counter" if name.endswith("_total") else "gauge"
        yield f"# HELP {name} {self.help}"
        yield f"# TYPE {name} {kind}"
        for labels, value in self.values:
            if not isinstance(value, Histogram):
                if value is not None:
                    yield f"{name}{label(**labels)} {float(value):.15g}"
                continue
            counts = [*accumulate(value.counts)]
            for bound, count in zip([*(f"{bound:g}" for bound in value.bounds), "+Inf"], counts, strict=True):
                yield f"{name}_bucket{label(**labels, le=bound)} {count}"
            yield f"{name}_sum{label(**labels)} {value.sum:.15g}"
            yield f"{name}_count{label(**labels)} {counts[-1]}"


HistogramFamily = partial(MetricFamily, is_histogram=True)


def one(value: float | None) -> Samples:
    return [({}, value)]


def by(name: str, values: Mapping[str, float | None] | Mapping[str, float]) -> Samples:
    """A value for each value of a label."""
    return [({name: key}, value) for key, value in values.items()]


def label(**labels: str) -> str:
    """Labels in the form that follows a name; empty when there are none."""
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}" if escaped else ""


def metric_text(families: Iterable[MetricFamily]) -> str:
    return "\n".join(line for family in families for line in family.lines()) + "\n"


class HttpMetrics:
    """The responses so far."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.monotonic
        self._paths = PathPatterns()
        self._routes: dict[str | None, str] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._seconds = {OTHER: Histogram([*BOUNDS_S])}

    def know(self, paths: Iterable[str]) -> None:
        """Add known paths: each is counted separately, files of the pages together."""
        known = list(paths)
        self._paths = PathPatterns(known)
        self._routes = {path: STATIC if path.startswith(f"{STATIC}/") else path for path in known}
        self._seconds |= {route: Histogram([*BOUNDS_S]) for route in self._routes.values()}

    def count(self, path: str, status: int, began_s: float) -> None:
        """Count a response that begins now, to a request that began at this (monotonic) time."""
        route = self._routes.get(self._paths.find(path), OTHER)
        key = (route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._seconds[route].add(self.now() - began_s)

    def counted(self, path: str, send: Send) -> Send:
        """A `send` that counts the response when it begins, so that streams are counted too."""
        began_s = self.now()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.count(path, message["status"], began_s)
            await send(message)

        return send_counted

    def families(self) -> list[MetricFamily]:
        counts = [({"route": route, "status": str(status)}, count) for (route, status), count in self._counts.items()]
        times = [({"route": route}, counted) for route, counted in self._seconds.items() if any(counted.counts)]
        return [
            MetricFamily("http_requests_total", "requests by route and status since the process started", counts),
            HistogramFamily(
                "http_request_duration_seconds", "from the head of a request to the head of its response", times
            ),
        ]


class MetricsRoute:
    """Reads everything, at most once a second, without the scheduler's part when it does not answer."""

    def __init__(self, deps: WebDeps, http: HttpMetrics) -> None:
        self._deps = deps
        self._http = http
        age_max_s = AGE_S if deps.in_one_loop else 0  # elsewhere each isolate would have its own age
        self._texts: SharedResults[None, str] = SharedResults(deps, age_max_s)

    @get("/metrics", "getMetrics", "Prometheus text", media_type=MEDIA_TYPE)
    async def show(self, _request: Request) -> ASGIApp:
        """Gauges, counters and histograms for Prometheus."""
        text = await self._texts.get(None, self._read)
        return Response(text, media_type=MEDIA_TYPE, headers=NO_STORE)

    async def _read(self) -> str:
        deps, now = self._deps, self._deps.clock.now()
        snapshot = await deps.health()
        health, status = health_of(snapshot, now), snapshot.status
        if status is None:
            deps.logger.warning("metrics.incomplete", error=snapshot.scheduler_error)
        supported = await supported_tokens(deps.kv)
        prices = await prices_of(deps.kv, supported, now)
        families = [
            MetricFamily("info", "the version", [({"version": __version__}, 1)]),
            MetricFamily("ready", "1 when the service is ready", one(health.ready)),
            MetricFamily(
                "state",
                "1 for the state that the service is in",
                by("state", {state: health.state == state for state in SERVICE_STATES}),
            ),
            MetricFamily("scheduler_up", "1 when the scheduler answers", one(status is not None)),
            MetricFamily("loop_tick_age_seconds", "since the event loop last ran", one(snapshot.loop_tick_age_s)),
            *(MetricFamily(*RUNTIME[name], one(count)) for name, count in deps.process.metrics().items()),
            *_of_prices(prices, len(supported), now),
            *([] if status is None else _of_status(status, now)),
            *([] if snapshot.measures is None else _of_measures(snapshot.measures)),
            *await self._on_record(now),
            *self._http.families(),
        ]
        return metric_text(families)

    async def _on_record(self, now: int) -> list[MetricFamily]:
        db, contracts = self._deps.db, self._deps.rules.allowlist.contracts
        try:
            size, refused = await record_size(db), await refused_since(db, now - DAY_MS)
            return [*_of_record(size, refused, now), *_of_lists(await list_ages(db, contracts), now)]
        except (StoreError, BindingMissing) as error:
            self._deps.logger.warning("metrics.incomplete", error=str(error)[:300])
            return []


def _of_measures(measures: Measures) -> list[MetricFamily]:
    runs = [({"task": task}, counted) for task, counted in measures.run_seconds.items()]
    calls = [
        ({"upstream": upstream, "answer": kind}, counted)
        for upstream, kinds in measures.call_seconds.items()
        for kind, counted in kinds.items()
    ]
    return [
        HistogramFamily("run_duration_seconds", "how long runs took, without interrupted ones", runs),
        HistogramFamily("upstream_call_duration_seconds", "call attempts by upstream and class of answer", calls),
        HistogramFamily("alarm_lateness_seconds", "how late the alarm rang", [({}, measures.alarm_lateness)]),
    ]


def _of_record(size: RecordSize, refused: Mapping[str, int], now: int) -> list[MetricFamily]:
    return [
        MetricFamily("swaps_recorded", "swaps on record; a reorg may remove some", one(size.swaps)),
        MetricFamily("queue_length", "transactions waiting to be verified", one(size.queue_length)),
        MetricFamily(
            "queue_oldest_seconds", "how long the oldest transaction has waited", one(_age(size.queue_oldest_at, now))
        ),
        MetricFamily("refusals_last_day", "transactions refused in the last 24 hours, by code", by("code", refused)),
    ]


def _of_lists(lists: Mapping[str, int | None], now: int) -> list[MetricFamily]:
    ages = by("contract", {contract: _age(read_at, now) for contract, read_at in lists.items()})
    unread = sum(read_at is None for read_at in lists.values())
    return [
        MetricFamily("list_age_seconds", "since a contract's list was read to its end", ages),
        MetricFamily("lists_never_read", "contracts whose list was never read to its end", one(unread)),
    ]


def _of_prices(prices: Mapping[str, Price], supported: int, now: int) -> list[MetricFamily]:
    ages = [(now - price.fetched_at) / 1000 for price in prices.values() if price.fetched_at is not None]
    priced = sum(price.price_usd is not None for price in prices.values())
    stale = sum(price.stale for price in prices.values())
    return [
        MetricFamily("prices_tracked", "tokens whose prices are kept fresh", one(supported)),
        MetricFamily("prices_known", "tokens that have a price", one(priced)),
        MetricFamily("prices_stale", "tokens with an old price", one(stale)),
        MetricFamily("price_age_newest_seconds", "age of the newest price", one(min(ages, default=None))),
        MetricFamily("price_age_oldest_seconds", "age of the oldest price", one(max(ages, default=None))),
    ]


def _of_status(status: Status, now: int) -> list[MetricFamily]:
    def tasks(value: Callable[[TaskStatus], float | None]) -> Samples:
        return by("task", {name: value(task) for name, task in status.tasks.items()})

    conditions = [
        ({"task": name, "condition": condition}, task.condition == condition)
        for name, task in status.tasks.items()
        for condition in CONDITIONS
    ]
    # All outcomes of all tasks: a rise is visible only if the counter exists from the start.
    runs = [
        ({"task": name, "outcome": outcome}, task.run_counts.get(outcome, 0))
        for name, task in status.tasks.items()
        for outcome in OUTCOMES
    ]
    pushed_at = status.last_job_at.get(RECEIVE)
    push_age = None if pushed_at is None else max(0, now - pushed_at) / 1000
    return [
        MetricFamily("next_alarm_timestamp_seconds", "when the alarm rings", one(_seconds(status.next_alarm_at))),
        MetricFamily("paused", "1 while paused", one((status.paused_until or 0) > now)),
        MetricFamily("task_enabled", "0 when switched off", tasks(lambda task: task.enabled)),
        MetricFamily("task_overdue", "1 when the task is overdue", tasks(lambda task: task.overdue)),
        MetricFamily("task_condition", "1 for the condition that the task is in", conditions),
        MetricFamily("task_running", "1 while the task runs", tasks(lambda task: task.running is not None)),
        MetricFamily(
            "task_last_success_timestamp_seconds",
            "end of the task's last complete run",
            tasks(lambda task: _seconds(task.last_success_at)),
        ),
        MetricFamily(
            "task_next_due_timestamp_seconds", "the task's next slot", tasks(lambda task: _seconds(task.next_due_at))
        ),
        MetricFamily(
            "task_cadence_seconds",
            "the task's effective cadence",
            tasks(lambda task: _seconds(task.effective_cadence_ms)),
        ),
        MetricFamily("task_consecutive_failures", "failed runs in a row", by("task", status.consecutive_failures)),
        MetricFamily("task_runs_total", "runs that ended, by outcome", runs),
        *_of_budgets(status),
        *_of_lookups(status.lookups),
        MetricFamily(
            "chainhook_last_push_timestamp_seconds",
            "when the last push from Chainhook was received",
            one(_seconds(pushed_at)),
        ),
        MetricFamily("chainhook_push_age_seconds", "since the last push from Chainhook was received", one(push_age)),
        *_of_feed(status.last_result.get("feed") or {}),
    ]


def _of_budgets(status: Status) -> list[MetricFamily]:
    def budgets(value: Callable[[BudgetStatus], float | None]) -> Samples:
        return by("upstream", {name: value(budget) for name, budget in status.budgets.items()})

    return [
        MetricFamily("budget_month_left", "calls left this month", budgets(lambda budget: budget.left.month)),
        MetricFamily(
            "budget_month_forecast",
            "calls used at the end of the month, at the call rate of the last day",
            budgets(lambda budget: None if budget.forecast is None else budget.forecast.used_at_end),
        ),
        MetricFamily("budget_month_limit", "the monthly limit of calls", budgets(lambda budget: budget.limits.month)),
        MetricFamily(
            "budget_month_end_timestamp_seconds",
            "when the month of the plan ends",
            budgets(lambda budget: _seconds(budget.month_ends_at)),
        ),
    ]


def _of_lookups(uses: Mapping[str, LookupUse]) -> list[MetricFamily]:
    """What other programs have asked the upstreams for; empty while there are none."""
    outcomes = [
        ({"key": key, "outcome": outcome}, count)
        for key, use in uses.items()
        for outcome, count in (
            ("asked", use.lookups - use.hits - use.stale - use.refused - use.failed),
            ("hit", use.hits),
            ("stale", use.stale),
            ("refused", use.refused),
            ("failed", use.failed),
        )
    ]
    calls = by("key", {key: use.calls for key, use in uses.items()})
    return [
        MetricFamily("lookup_calls_total", "calls made for look-ups since the start, by the key that asked", calls),
        MetricFamily("lookups_total", "look-ups since the start, by key and outcome", outcomes),
    ]


def _of_feed(result: FreeForm) -> list[MetricFamily]:
    """How far the network's list has been read; empty while it is not followed."""

    def shown(name: str) -> Samples:
        value = result.get(name)
        return one(value if isinstance(value, int) and not isinstance(value, bool) else None)

    return [
        MetricFamily(
            "feed_complete_block", "the block up to which the record is proven complete", shown("completeUntilBlock")
        ),
        MetricFamily("feed_blocks_behind", "blocks whose transactions are unread", shown("blocksBehind")),
        MetricFamily("feed_missing_nonces", "transactions that no list has shown", shown("missingNonces")),
        MetricFamily("network_transactions_per_day", "of the whole network", shown("transactionsPerDay")),
    ]


def _age(at: int | None, now: int) -> float | None:
    return None if at is None else (now - at) / 1000


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
