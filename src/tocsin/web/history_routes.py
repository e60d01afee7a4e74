"""The past, as visitors ask for it."""

from typing import get_args

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.competition.trades import check_address, trade_counts
from tocsin.errors import UsageError
from tocsin.history.agent_days import DAY_MS, history_of
from tocsin.history.curves import published_curves
from tocsin.shapes.history import Curves, HistoryView, Period
from tocsin.web.deps import WebDeps
from tocsin.web.prepared_response import PreparedResponse
from tocsin.web.respond import json_bytes
from tocsin.web.response_cache import ResponseCache
from tocsin.web.security import SECURITY_HEADERS, RawHeaders

PERIODS: tuple[Period, ...] = get_args(Period)
PERIOD_DEFAULT: Period = "7d"
HISTORY_AGE_S = 60

_HOUR_MS = 3_600_000
_LENGTH_MS: dict[str, int] = {
    "24h": 24 * _HOUR_MS,
    "7d": 7 * 24 * _HOUR_MS,
    "30d": 30 * 24 * _HOUR_MS,
    "90d": 90 * 24 * _HOUR_MS,
}


def history_cache(deps: WebDeps, headers: RawHeaders) -> ResponseCache[tuple[str, Period]]:
    """Responses to `GET /api/competition/history`."""

    async def respond(asked: tuple[str, Period]) -> HistoryView:
        address, period = asked
        now = deps.clock.now()
        agent_id = (await trade_counts(deps.db, address)).agent_id
        first_ms = 0 if period == "all" else now - _LENGTH_MS[period]
        points = [] if agent_id is None else await history_of(deps.db, agent_id, first_ms, now)
        return HistoryView(address, agent_id, period, now, points)

    return ResponseCache(
        deps.clock,
        HISTORY_AGE_S,
        _read_query,
        respond,
        in_one_loop=deps.in_one_loop,
        headers=headers,
        compress=deps.compress,
    )


class CurvesRoute:
    """`GET /api/competition/curves`: what the object published, prepared once for each publication."""

    def __init__(self, deps: WebDeps, headers: RawHeaders) -> None:
        self._deps = deps
        self._headers = [
            (b"cache-control", f"public, max-age={HISTORY_AGE_S}".encode()),
            *SECURITY_HEADERS,
            *headers,
        ]
        self._text = ""
        self._prepared: PreparedResponse | None = None

    async def show(self, _request: Request) -> ASGIApp:
        text = await published_curves(self._deps.kv)
        if text is None:  # nothing was published yet
            now = self._deps.clock.now()
            text = json_bytes(Curves(now, now // DAY_MS * DAY_MS, 0, []).to_json()).decode()
        if self._prepared is None or text != self._text:
            compress = self._deps.compress
            self._prepared = PreparedResponse(
                text.encode(), "application/json", self._headers, compress=compress
            )
            self._text = text
        return self._prepared


def _read_query(query: QueryParams) -> tuple[str, Period]:
    address, asked = query.get("address", ""), query.get("period") or PERIOD_DEFAULT
    check_address(address)
    for period in PERIODS:
        if asked == period:
            return address, period
    raise UsageError(f"period is one of {', '.join(PERIODS)}, not {asked[:40]!r}.")
