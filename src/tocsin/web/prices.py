"""`GET /api/prices`: from the cache, never from an upstream.

`tocsin.web.app` looks at these pages first, before any routing: nothing else is asked for as often.
"""

from starlette.datastructures import QueryParams

from tocsin.bindings import JSON
from tocsin.errors import RequestRefused
from tocsin.prices.pricing import prices_of
from tocsin.prices.tracked_tokens import is_token_id, tracked_tokens
from tocsin.web.deps import WebDeps
from tocsin.web.response_cache import ResponseCache

TOKENS_MAX = 100
MAX_AGE_S = 30


def price_cache(site: WebDeps) -> ResponseCache:
    """Kept until a refresh on this process has ended, or for a second."""

    async def answer(query: QueryParams) -> dict[str, JSON]:
        return await _prices(site, query)

    return ResponseCache(site.clock, MAX_AGE_S, answer)


async def _prices(site: WebDeps, query: QueryParams) -> dict[str, JSON]:
    kv, now = site.kv, site.clock.now()
    one = query.get("token")
    if one is not None:
        _check([one])
        price = (await prices_of(kv, [one], now)).get(one)
        if price is None:
            return {"tokenId": one, "priceUsd": None, "decimals": None, "fetchedAt": None}
        return {"tokenId": one, **price.to_json()}
    tracked = await tracked_tokens(kv)
    wanted = _ids(query) if "tokens" in query else list(tracked)
    found = await prices_of(kv, wanted, now)
    return {
        "prices": {token_id: price.to_json() for token_id, price in found.items()},
        "missing": [token_id for token_id in wanted if token_id not in found],
        "supportedTokens": list(tracked),
    }


def _ids(query: QueryParams) -> list[str]:
    ids = list(dict.fromkeys(",".join(query.getlist("tokens")).split(",")))
    if len(ids) > TOKENS_MAX:
        sentence = f"At most {TOKENS_MAX} tokens can be asked for at once, not {len(ids)}: ask in parts."
        raise RequestRefused(400, "too_many_tokens", sentence)
    _check(ids)
    return ids


def _check(ids: list[str]) -> None:
    for token_id in ids:
        if not is_token_id(token_id):
            sentence = f"{token_id[:120]!r} is no token id: give `stx`, a contract, or `contract::asset`."
            raise RequestRefused(400, "malformed_token", sentence, token=token_id[:300])
