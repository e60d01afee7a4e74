"""`/api/admin/prices/history`: the price of a token over time, for callers with a key.

For a month it reads thousands of rows, so it is not public.
"""

from collections.abc import Sequence
from typing import get_args

from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.errors import RequestRefused
from tocsin.prices.series import PricePoint, points_between
from tocsin.shapes.price_history import PastPrice, PriceHistory, PricePeriod
from tocsin.stacks_address import is_token_id
from tocsin.web.auth import require_key
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_response

PERIODS: tuple[PricePeriod, ...] = get_args(PricePeriod)
POINTS_MAX = 400
HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex"}

_HOUR_MS = 3_600_000
_LENGTH_MS: dict[str, int] = {"24h": 24 * _HOUR_MS, "7d": 168 * _HOUR_MS, "30d": 720 * _HOUR_MS}


class PriceHistoryRoute:
    """Reads the database."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def show(self, request: Request) -> ASGIApp:
        deps = self._deps
        require_key(request, "X-Admin-Key", deps.keys.admin, "ADMIN_KEY")
        token, asked = request.query_params.get("token", ""), request.query_params.get("period") or PERIODS[0]
        if not is_token_id(token):
            sentence = f"{token[:120]!r} is not a token id: give `stx`, a contract, or `contract::asset`."
            raise RequestRefused(400, "malformed_token", sentence)
        period = next((each for each in PERIODS if each == asked), None)
        if period is None:
            sentence = f"period is one of {', '.join(PERIODS)}, not {asked[:40]!r}."
            raise RequestRefused(400, "bad_period", sentence)
        now = deps.clock.now()
        length_ms = _LENGTH_MS[period]
        found = await points_between(deps.db, [token], now - length_ms, now)
        history = PriceHistory(token, period, now, thinned(found.get(token, []), length_ms // POINTS_MAX))
        return json_response(history.to_json(), headers=HEADERS)


def thinned(points: Sequence[PricePoint], every_ms: int) -> list[PastPrice]:
    """The last point of each interval of this length."""
    last = {point.at // every_ms: point for point in points}
    return [
        PastPrice(point.at, None if point.price_usd is None else float(point.price_usd))
        for point in last.values()
    ]
