"""`GET /api/prices`, from the cache and never from an upstream, and the history of a price for operators.

`app.py` checks the cache of prices before any routing, because this is the busiest route. For a month the history reads
thousands of rows, so it is not public.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.errors import RequestRefused
from tocsin.prices.price import OnePrice, PastPrice, PriceHistory, PriceList, PricePeriod
from tocsin.prices.store import PricePoint, points_between, prices_of, supported_tokens
from tocsin.stacks import is_token_id
from tocsin.web.cache import ResponseCache, cache_for
from tocsin.web.deps import WebDeps
from tocsin.web.response import PRIVATE, RawHeaders, json_response
from tocsin.web.route import require_key

TOKENS_MAX = 100
MAX_AGE_S = 30
PERIODS: tuple[PricePeriod, ...] = get_args(PricePeriod)
POINTS_MAX = 400
DAY_MS = 86_400_000
LENGTH_MS: dict[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS}


@dataclass(frozen=True, slots=True)
class PriceQuery:
    """One token, some tokens, or all that are supported."""

    one: str | None = None
    some: tuple[str, ...] | None = None


def price_cache(deps: WebDeps, headers: RawHeaders) -> ResponseCache[PriceQuery]:
    """Kept for a second, or until a refresh through this process has ended."""
    return cache_for(deps, headers, MAX_AGE_S, price_query, partial(_prices, deps))


def price_query(query: QueryParams) -> PriceQuery:
    """The query. Refuses anything that is not a token id, even in a parameter that is not used."""
    one, some = query.get("token"), tuple(_ids(query))
    if one is not None:
        _check([one])
        return PriceQuery(one=one)
    return PriceQuery(some=some or None)


async def _prices(deps: WebDeps, query: PriceQuery) -> PriceList | OnePrice:
    kv, now, one = deps.kv, deps.clock.now(), query.one
    if one is not None:
        one = _whole_id(one, await supported_tokens(kv)) if "::" not in one else one
        price = (await prices_of(kv, [one], now)).get(one)
        if price is None:
            return OnePrice(one, None, None, None)
        return OnePrice(one, price.price_usd, price.decimals, price.fetched_at, price.stale, price.source)
    supported = await supported_tokens(kv)
    asked = supported if query.some is None else [_whole_id(each, supported) for each in query.some]
    wanted = list(dict.fromkeys(asked))
    prices = await prices_of(kv, wanted, now)
    return PriceList(prices, [token_id for token_id in wanted if token_id not in prices], list(supported))


def _whole_id(token_id: str, supported: Iterable[str]) -> str:
    """The full id. A contract alone stands for its token, if exactly one of its tokens is known."""
    of_contract = [each for each in supported if each.partition("::")[0] == token_id]
    return of_contract[0] if len(of_contract) == 1 else token_id


def _ids(query: QueryParams) -> list[str]:
    ids = [each for each in dict.fromkeys(",".join(query.getlist("tokens")).split(",")) if each]
    if len(ids) > TOKENS_MAX:
        sentence = f"At most {TOKENS_MAX} tokens can be requested at once, not {len(ids)}: split the request."
        raise RequestRefused(400, "too_many_tokens", sentence)
    _check(ids)
    return ids


def _check(ids: list[str]) -> None:
    for token_id in ids:
        if not is_token_id(token_id):
            sentence = f"{token_id[:120]!r} is not a token id: give `stx`, a contract, or `contract::asset`."
            raise RequestRefused(400, "malformed_token", sentence, token=token_id[:300])


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
        length_ms = LENGTH_MS[period]
        found = await points_between(deps.db, [token], now - length_ms, now)
        history = PriceHistory(token, period, now, thinned(found.get(token, []), length_ms // POINTS_MAX))
        return json_response(history.to_json(), headers=PRIVATE)


def thinned(points: Sequence[PricePoint], every_ms: int) -> list[PastPrice]:
    """The last point of each interval of this length."""
    last = {point.at // every_ms: point for point in points}
    return [PastPrice(point.at, None if point.price_usd is None else float(point.price_usd)) for point in last.values()]
