"""The documentation of all operations except the competition's, for `/openapi.json` and `/api/docs`."""

from typing import Any

from tocsin.board.types import News
from tocsin.prices.price import OnePrice, Price, PriceHistory, PriceList
from tocsin.scheduler.history import DAYS_KEPT
from tocsin.scheduler.types import (
    OUTCOMES,
    TRIGGERS,
    AuditList,
    DayList,
    EventBatch,
    Health,
    Paused,
    Refreshed,
    RefreshResult,
    RefreshRun,
    Reloaded,
    Resumed,
    RunDetail,
    RunList,
    SchedulerEvent,
    SchedulerOverview,
)
from tocsin.stacks import TOKEN_ID_PATTERN, TXID_PATTERN
from tocsin.swaps.types import SubmitAnswer
from tocsin.text import DURATION_PATTERN
from tocsin.web.admin import ACTIONS, AUDIT_MAX, DEFAULT_TASK, PARAMETERS, REASON_MAX, RUNS_PAGE_MAX, TASK_PATTERN
from tocsin.web.metrics import MEDIA_TYPE
from tocsin.web.prices import PERIODS, POINTS_MAX, TOKENS_MAX
from tocsin.web.response import ErrorBody
from tocsin.web.route import Alive, ApiDocument, CronDescription, OperationDoc, Parameter, ResponseDoc

TEXT: dict[str, Any] = {"type": "string"}
UNIX_MS: dict[str, Any] = {"type": "integer", "minimum": 0, "description": "unix milliseconds"}
TASK: dict[str, Any] = {"type": "string", "pattern": TASK_PATTERN}
DURATION: dict[str, Any] = {"type": "string", "pattern": DURATION_PATTERN}

_TOKEN_ID: dict[str, Any] = {"type": "string", "pattern": TOKEN_ID_PATTERN}
_TOKEN_ID_OR_NONE: dict[str, Any] = {"type": "string", "pattern": f"^$|{TOKEN_ID_PATTERN}"}
_STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
_AT = 1778700600000

PRICES = OperationDoc(
    operation_id="getPrices",
    tag="prices",
    summary="Token prices in USD, from the cache. Without parameters: every tracked token.",
    parameters=(
        Parameter(
            "tokens",
            {"type": "array", "items": _TOKEN_ID_OR_NONE, "maxItems": TOKENS_MAX},
            f"ids, separated by commas, {TOKENS_MAX} at most",
        ),
        Parameter("token", _TOKEN_ID, "one id, for a short answer; `tokens` is then ignored"),
        Parameter("If-None-Match", TEXT, "the ETag that you have: 304 if it is unchanged", "header"),
    ),
    responses={
        200: ResponseDoc(
            "prices, with their age and source; `missing` tokens were never priced",
            (PriceList, OnePrice),
            PriceList({"stx": Price(0.85, 6, _AT, stale=False, source="tenero")}, [_STSTX], ["stx", _STSTX]),
        ),
        304: ResponseDoc("unchanged since the ETag that was sent"),
    },
)
PRICE_HISTORY = OperationDoc(
    operation_id="getPriceHistory",
    tag="prices",
    summary="The price of a token over time.",
    description=f"At most {POINTS_MAX} points plus one, the last of each interval. Pegs have no history.",
    key="X-Admin-Key",
    parameters=(
        Parameter("token", _TOKEN_ID, "a token id", required=True, example="stx"),
        Parameter("period", {"type": "string", "enum": ["", *PERIODS]}, f"{PERIODS[0]} by default"),
    ),
    responses={200: ResponseDoc("prices, oldest first", (PriceHistory,))},
)
CRON = OperationDoc(
    operation_id="describeCron",
    tag="competition",
    summary="What the POST does, and why it is not needed.",
    responses={200: ResponseDoc("a description", (CronDescription,))},
    store=False,
)
SWEEP = OperationDoc(
    operation_id="sweepNow",
    tag="competition",
    summary="Run the competition sweep now, or join the one that is running.",
    key="X-Cron-Secret",
    responses={
        200: ResponseDoc(
            "the sweep's counters",
            (RefreshResult,),
            RefreshResult(
                {
                    "startedAt": _AT,
                    "durationMs": 2140,
                    "scanned": 5,
                    "contractsScanned": 40,
                    "found": 12,
                    "inserted": 11,
                    "alreadyKnown": 1,
                    "pending": 0,
                    "rejected": 0,
                    "rejectionReasons": {},
                    "failedWallets": 0,
                    "cursor": None,
                },
                RefreshRun(17, "ok", None, None, joined=False, paused_until=None),
            ),
        ),
        400: ResponseDoc("bad_request: this instance of the scheduler is not the active one", (ErrorBody,)),
    },
)
STATUS = OperationDoc(
    operation_id="getScheduler",
    tag="scheduler",
    summary="Everything the scheduler knows about itself, and what was refused in the last 24 hours.",
    key="X-Admin-Key",
    responses={
        200: ResponseDoc(
            "the status; `refusals` by code, null while the database does not answer", (SchedulerOverview,)
        )
    },
)
ACT = OperationDoc(
    operation_id="controlScheduler",
    tag="scheduler",
    summary="Pause, resume, refresh, recheck or reload.",
    description=f"One of: {ACTIONS}. The audit log records each action before it starts and when it ends.",
    key="X-Admin-Key",
    parameters=(
        Parameter("action", {"enum": list(PARAMETERS)}, "what to do", required=True),
        Parameter("until", UNIX_MS, "pause: until when"),
        Parameter("for", DURATION, "pause: for how long, such as 90s, 15m, 2h, 1d"),
        Parameter("task", TASK, f"refresh: a task's name, or all; {DEFAULT_TASK} by default"),
        Parameter("txid", {"type": "string", "pattern": TXID_PATTERN}, "recheck: a transaction"),
        Parameter("reason", {"type": "string", "maxLength": REASON_MAX}, "why, for the audit log"),
    ),
    responses={
        403: ResponseDoc("read_only_key: a viewer's key may not act", (ErrorBody,)),
        409: ResponseDoc("reload_is_a_deployment: on Cloudflare, settings change with a deployment", (ErrorBody,)),
        422: ResponseDoc("settings_refused: the new settings are invalid; the old ones stay in force", (ErrorBody,)),
        200: ResponseDoc(
            "what was done",
            (Paused, Resumed, Refreshed, SubmitAnswer, Reloaded),
            Refreshed(
                "v1", "tenero", {"startedAt": _AT, "durationMs": 210, "tokensAttempted": 9, "succeeded": 9, "failed": 0}
            ),
        ),
    },
)
RUNS = OperationDoc(
    operation_id="listRuns",
    tag="scheduler",
    summary="The runs of the last 30 days, newest first.",
    description="`next` is the `cursor` of the next page. With a filter, a page may be short and still have a `next`.",
    key="X-Admin-Key",
    parameters=(
        Parameter("task", {**TASK, "pattern": f"^$|{TASK_PATTERN}"}, "only runs of this task"),
        Parameter("outcome", {"type": "string", "enum": ["", "running", *OUTCOMES]}, "only runs with this outcome"),
        Parameter("trigger", {"type": "string", "enum": ["", *TRIGGERS]}, "only runs with this trigger"),
        Parameter("since", {"type": "integer", "minimum": 0}, "only runs that started at or after it, unix ms"),
        Parameter("until", {"type": "integer", "minimum": 0}, "only runs that started at or before it, unix ms"),
        Parameter("limit", {"type": "integer", "minimum": 1, "maximum": RUNS_PAGE_MAX}, "50 by default"),
        Parameter("cursor", {"type": "integer", "minimum": 0}, "`next` of the previous page"),
    ),
    responses={200: ResponseDoc("runs", (RunList,))},
)
RUN = OperationDoc(
    operation_id="getRun",
    tag="scheduler",
    summary="One run: how it was started, what it did, how it ended, and its log lines.",
    description="The first 10 lines and the last 20 are kept. They are stored when a run ends.",
    key="X-Admin-Key",
    parameters=(
        Parameter("number", {"type": "string", "pattern": "^[0-9]{1,15}$"}, "the run's `id`", "path", example="17"),
    ),
    responses={
        200: ResponseDoc("the run", (RunDetail,)),
        404: ResponseDoc("unknown_run: it never began, or its record has expired", (ErrorBody,)),
    },
)
DAYS = OperationDoc(
    operation_id="listDays",
    tag="scheduler",
    summary="The totals of each day and task, newest first.",
    key="X-Admin-Key",
    parameters=(Parameter("limit", {"type": "integer", "minimum": 1, "maximum": DAYS_KEPT}, "30 by default"),),
    responses={200: ResponseDoc("days", (DayList,))},
)
AUDIT = OperationDoc(
    operation_id="listActions",
    tag="scheduler",
    summary="The latest actions of operators, newest first: who, what, why, and how it ended.",
    key="X-Admin-Key",
    parameters=(Parameter("limit", {"type": "integer", "minimum": 1, "maximum": AUDIT_MAX}, "50 by default"),),
    responses={200: ResponseDoc("the audit log", (AuditList,))},
)
EVENTS = OperationDoc(
    operation_id="streamEvents",
    tag="scheduler",
    summary="Server-sent events: runs, alarms, pauses, changes of budgets.",
    description="Each event's `data` is a `SchedulerEvent`. While nothing happens, a comment is sent every 15 s.",
    key="X-Admin-Key",
    parameters=(Parameter("Last-Event-ID", TEXT, "continue after this event", "header"),),
    responses={
        200: ResponseDoc("a stream that does not end", (SchedulerEvent,), media_type="text/event-stream"),
        429: ResponseDoc("too_many_streams: close one", (ErrorBody,)),
    },
)
HEALTHZ = OperationDoc(
    operation_id="getHealth",
    tag="service",
    summary="Whether the process is alive.",
    responses={200: ResponseDoc("it is", (Alive,))},
    store=False,
)
READYZ = OperationDoc(
    operation_id="getReadiness",
    tag="service",
    summary="Whether the service is ready.",
    responses={
        200: ResponseDoc("it is ready", (Health,), Health(ready=True, state="ready", reasons=[], notes=[])),
        503: ResponseDoc(
            "not_ready, with `reasons`: a task is overdue, disabled or failing, no alarm is set, the event"
            " loop is stuck, or the store cannot be written",
            (ErrorBody,),
        ),
    },
)
METRICS = OperationDoc(
    operation_id="getMetrics",
    tag="service",
    summary="Gauges, counters and histograms for Prometheus.",
    responses={200: ResponseDoc("Prometheus text", media_type=MEDIA_TYPE)},
)
UNCHANGED = ResponseDoc("unchanged since the ETag that was sent")
OPENAPI = OperationDoc(
    operation_id="getOpenApi",
    tag="service",
    summary="This API as OpenAPI 3.1.",
    responses={200: ResponseDoc("a document", (ApiDocument,)), 304: UNCHANGED},
    store=False,
)
SITE_OPENAPI = OperationDoc(
    operation_id="getSiteOpenApi",
    tag="service",
    summary="The same document, at the path that the site's clients use.",
    responses={200: ResponseDoc("a document", (ApiDocument,)), 304: UNCHANGED},
    store=False,
)
DOCS = OperationDoc(
    operation_id="getApiDocs",
    tag="service",
    summary="This API as a page.",
    responses={200: ResponseDoc("a page", media_type="text/html"), 304: UNCHANGED},
    store=False,
)

# Shapes that are not responses themselves, but that a reader of the API needs.
OTHER_SHAPES = (EventBatch, News)
