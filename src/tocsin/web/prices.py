"""`GET /api/prices`, from the cache and never from an upstream, and the history of a price for operators.

For a month the history reads thousands of rows, so it is not public.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, get_args

from starlette.requests import Request

from tocsin.prices.price import OnePrice, PastPrice, Price, PriceHistory, PriceList, PricePeriod
from tocsin.prices.store import PricePoint, points_between, prices_of, supported_tokens
from tocsin.web.deps import WebDeps
from tocsin.web.parameters import TOKEN_ID, TOKEN_IDS, one_of
from tocsin.web.route import get

MAX_AGE_S = 30
RESPONSES_MAX = 64
PERIODS: tuple[PricePeriod, ...] = get_args(PricePeriod)
POINTS_MAX = 400
DAY_MS = 86_400_000
LENGTH_MS: dict[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS}


_STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
_PRICE = Price(0.85, 6, 1778700600000, stale=False, source="tenero")


class PriceRoutes:
    """Prices come from KV, the history from the database."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    @get(
        "/api/prices",
        "getPrices",
        "prices, with their age and source; `missing` tokens were never priced",
        PriceList,
        OnePrice,
        example=PriceList({"stx": _PRICE}, [_STSTX], ["stx", _STSTX]),
        max_age_s=MAX_AGE_S,
        kept=RESPONSES_MAX,
    )
    async def prices(
        self,
        _request: Request,
        tokens: Annotated[tuple[str, ...], TOKEN_IDS] = (),
        token: Annotated[
            str | None, replace(TOKEN_ID, description="one id, for a short answer; `tokens` is then ignored")
        ] = None,
    ) -> PriceList | OnePrice:
        """Token prices in USD, from the cache. Without parameters: every tracked token."""
        kv, now = self._deps.kv, self._deps.clock.now()
        if token is not None:
            one = _whole_id(token, await supported_tokens(kv)) if "::" not in token else token
            price = (await prices_of(kv, [one], now)).get(one)
            if price is None:
                return OnePrice(one, None, None, None)
            return OnePrice(one, price.price_usd, price.decimals, price.fetched_at, price.stale, price.source)
        supported = await supported_tokens(kv)
        asked = [_whole_id(each, supported) for each in tokens] or supported
        wanted = list(dict.fromkeys(asked))
        prices = await prices_of(kv, wanted, now)
        return PriceList(prices, [token_id for token_id in wanted if token_id not in prices], list(supported))

    @get("/api/admin/prices/history", "getPriceHistory", "prices, oldest first", access="viewer")
    async def history(
        self,
        _request: Request,
        token: Annotated[str, TOKEN_ID],
        period: Annotated[PricePeriod, one_of(PERIODS, f"{PERIODS[0]} by default", "bad_period")] = PERIODS[0],
    ) -> PriceHistory:
        """The price of a token over time: a few hundred points, the last of each interval. Pegs have no history."""
        now, length_ms = self._deps.clock.now(), LENGTH_MS[period]
        found = await points_between(self._deps.db, [token], now - length_ms, now)
        return PriceHistory(token, period, now, thinned(found.get(token, []), length_ms // POINTS_MAX))


def _whole_id(token_id: str, supported: Iterable[str]) -> str:
    """The full id. A contract alone stands for its token, if exactly one of its tokens is known."""
    of_contract = [each for each in supported if each.partition("::")[0] == token_id]
    return of_contract[0] if len(of_contract) == 1 else token_id


def thinned(points: Sequence[PricePoint], every_ms: int) -> list[PastPrice]:
    """The last point of each interval of this length."""
    last = {point.at // every_ms: point for point in points}
    return [PastPrice(point.at, None if point.price_usd is None else float(point.price_usd)) for point in last.values()]
