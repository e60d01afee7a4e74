"""What `/openapi.json` and `/api/docs` say of each route."""

from tocsin.bindings import JSON
from tocsin.scheduler.state import RUNS_MAX
from tocsin.web import schemas
from tocsin.web.admin import ACTIONS
from tocsin.web.metrics import MEDIA_TYPE
from tocsin.web.operations import OperationDoc, Parameter, ResponseDoc
from tocsin.web.prices import TOKENS_MAX
from tocsin.web.schemas import BOOLEAN, MS, TEXT, TOKEN_ID, record

_OBJECT: dict[str, JSON] = {"type": "object"}
_STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"

PRICES = OperationDoc(
    summary="Token prices in USD, from the cache. Without parameters: every tracked token.",
    parameters=(
        Parameter(
            "tokens",
            {"type": "array", "items": TOKEN_ID, "minItems": 1, "maxItems": TOKENS_MAX},
            f"ids, separated by commas, {TOKENS_MAX} at most",
        ),
        Parameter("token", TOKEN_ID, "one id, for a short answer; `tokens` is ignored then"),
        Parameter("If-None-Match", TEXT, "the ETag of what you have: 304 if unchanged", "header"),
    ),
    answers={
        200: ResponseDoc(
            "prices, with their age and source; `missing` were never priced",
            {"anyOf": [schemas.PRICES, schemas.ONE_PRICE]},
            {
                "prices": {
                    "stx": {
                        "priceUsd": 0.85,
                        "decimals": 6,
                        "fetchedAt": 1778700600000,
                        "stale": False,
                        "source": "tenero",
                    }
                },
                "missing": [_STSTX],
                "supportedTokens": ["stx", _STSTX],
            },
        ),
        304: ResponseDoc("unchanged since the ETag that was sent", None),
    },
)
CRON = OperationDoc(
    summary="What the POST does, and why nobody needs it.",
    answers={200: ResponseDoc("a description", _OBJECT)},
)
SWEEP = OperationDoc(
    summary="Run the competition sweep now, or join the one that is running.",
    key="X-Cron-Secret",
    answers={
        200: ResponseDoc(
            "the sweep's summary",
            _OBJECT,
            {
                "startedAt": 1778700600000,
                "durationMs": 2140,
                "scanned": 430,
                "found": 12,
                "inserted": 11,
                "alreadyKnown": 1,
                "pending": 0,
                "rejected": 0,
                "rejectionReasons": {},
                "failedWallets": 0,
                "cursor": None,
            },
        )
    },
)
STATUS = OperationDoc(
    summary="Everything the scheduler knows of itself, at once; and what was refused of late.",
    key="X-Admin-Key",
    answers={
        200: ResponseDoc(
            "the status; `refusals` of the last 24 hours by code, null while the database does not answer",
            record(
                name=TEXT,
                status=schemas.STATUS,
                refusals=schemas.or_null(schemas.by_name(schemas.INTEGER)),
            ),
        )
    },
)
ACT = OperationDoc(
    summary=f"Pause, resume or refresh: {ACTIONS}.",
    key="X-Admin-Key",
    parameters=(
        Parameter("action", {"enum": ["pause", "resume", "refresh"]}, "what to do", required=True),
        Parameter("until", MS, "pause: until when"),
        Parameter("task", TEXT, "refresh: a task's name, or all"),
    ),
    answers={
        200: ResponseDoc(
            "what was done",
            record(name=TEXT),
            {
                "name": "v1",
                "task": "tenero",
                "result": {
                    "startedAt": 1778700600000,
                    "durationMs": 210,
                    "tokensAttempted": 9,
                    "succeeded": 9,
                    "failed": 0,
                    "rateLimitRemaining": {"minute": 97, "month": 48211},
                },
            },
        )
    },
)
RUNS = OperationDoc(
    summary="The run history, newest first.",
    key="X-Admin-Key",
    parameters=(
        Parameter("task", TEXT, "only runs of this task"),
        Parameter("limit", {"type": "integer", "minimum": 1, "maximum": RUNS_MAX}, "50 by default"),
    ),
    answers={200: ResponseDoc("runs", record(name=TEXT, runs=schemas.listed(_OBJECT)))},
)
EVENTS = OperationDoc(
    summary="Server-sent events: runs started, progressed, ended; alarm armed; paused, resumed; budget"
    " changed.",
    key="X-Admin-Key",
    parameters=(Parameter("Last-Event-ID", TEXT, "go on after this event", "header"),),
    answers={200: ResponseDoc("a stream, for ever", TEXT, media_type="text/event-stream")},
)
HEALTHZ = OperationDoc(
    summary="The process is alive.",
    answers={200: ResponseDoc("it is", record(ok=BOOLEAN, version=TEXT))},
)
READYZ = OperationDoc(
    summary="It does its work. 503 with `reasons` when a task is overdue, disabled or blind, no alarm is set,"
    " the loop is stuck, or the store cannot be written.",
    answers={200: ResponseDoc("it does", record(ready=BOOLEAN))},
)
METRICS = OperationDoc(
    summary="Gauges for Prometheus.",
    answers={200: ResponseDoc("Prometheus text", TEXT, media_type=MEDIA_TYPE)},
)
OPENAPI = OperationDoc(
    summary="This API as OpenAPI 3.1.",
    answers={200: ResponseDoc("a document", _OBJECT)},
)
DOCS = OperationDoc(
    summary="This API as a page.",
    answers={200: ResponseDoc("a page", TEXT, media_type="text/html")},
)
