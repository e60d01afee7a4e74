"""The routes for the history of agents."""

from typing import get_args

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.competition.trades import check_address, trade_counts
from tocsin.errors import UsageError
from tocsin.history.agent_days import DAY_MS, history_of
from tocsin.history.curves import are_curves, published_curves
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
    """`GET /api/competition/curves`: the curves that the object published, prepared once for each publication."""

    def __init__(self, deps: WebDeps, headers: RawHeaders) -> None:
        self._deps = deps
        self._headers = [
            (b"cache-control", f"public, max-age={HISTORY_AGE_S}".encode()),
            *SECURITY_HEADERS,
            *headers,
        ]
        self._published: str | None = None  # the newest usable text
        self._refused: str | None = None  # the newest unusable one
        self._prepared: PreparedResponse | None = None

    async def show(self, _request: Request) -> ASGIApp:
        text = await published_curves(self._deps.kv)
        if self._prepared is not None and text == self._published:
            return self._prepared
        if text is None or text == self._refused or not are_curves(text):  # nothing that can be sent yet
            self._refused = text
            now = self._deps.clock.now()
            return self._response(json_bytes(Curves(now, now // DAY_MS * DAY_MS, 0, []).to_json()))
        self._published, self._prepared = text, self._response(text.encode())
        return self._prepared

    def _response(self, body: bytes) -> PreparedResponse:
        return PreparedResponse(body, "application/json", self._headers, compress=self._deps.compress)


def _read_query(query: QueryParams) -> tuple[str, Period]:
    address, asked = query.get("address", ""), query.get("period") or PERIOD_DEFAULT
    check_address(address)
    for period in PERIODS:
        if asked == period:
            return address, period
    raise UsageError(f"period is one of {', '.join(PERIODS)}, not {asked[:40]!r}.")
