"""Tenero's token endpoints on the model: the list with cursors, and one token by address.

Not modeled: candles, wallets, trades. `quote`, `set_price` and `set_pool` change how a token is quoted.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.errors import UsageError
from stacks_simulator.http_messages import SimulatedReply, SimulatedRequest, json_reply
from stacks_simulator.tokens import FILLER_TOKENS, TRADED_TOKENS, Market, Quoting, SimulatedToken, price_usd

TENERO_PATH = "/v1/stacks"
PAGE_DEFAULT = 50
PAGE_MAX = 100
DAY_MS = 86_400_000
LIQUIDITY_USD = 250_000.0  # of a token whose pool was not set
VOLUME_USD = 18_000.0


@dataclass(slots=True)
class TeneroApi:
    """Tenero's API on a table of tokens. Addresses are contract ids without `::asset`; STX is `stx`."""

    market: Market = price_usd
    tokens: dict[str, SimulatedToken] = field(
        default_factory=lambda: {token.address: token for token in (*TRADED_TOKENS, *FILLER_TOKENS)}
    )
    fixed_prices: dict[str, float] = field(default_factory=dict)
    pools: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)

    def reply(self, request: SimulatedRequest, now_ms: int) -> SimulatedReply:
        """The reply to a request, without limits and faults."""
        if request.method == "GET" and request.path == f"{TENERO_PATH}/tokens":
            return self._list(request.query(), now_ms)
        address = request.path.removeprefix(f"{TENERO_PATH}/tokens/")
        token = self.tokens.get("stx" if address == "native" else address)
        if request.method != "GET" or address == request.path or token is None or token.quoting == "missing":
            return json_reply(404, {"statusCode": 404, "message": "Not found"})
        return _success(self._row(token, now_ms))

    def quote(self, token_id: str, quoting: Quoting) -> None:
        """Change how a token is quoted from now on."""
        token = self._token(token_id)
        self.tokens[token.address] = replace(token, quoting=quoting)

    def set_price(self, token_id: str, usd: float | None) -> None:
        """Fix a token's price; None lets it drift again."""
        address = self._token(token_id).address
        self.fixed_prices.pop(address, None)
        if usd is not None:
            self.fixed_prices[address] = usd

    def set_pool(self, token_id: str, liquidity_usd: float | None, volume_usd: float | None) -> None:
        """Fix what a token's pools hold and trade in a day; None: Tenero does not report it."""
        self.pools[self._token(token_id).address] = (liquidity_usd, volume_usd)

    def price(self, token_id: str, now_ms: int) -> float:
        """The price of a token now, however Tenero quotes it."""
        token = self._token(token_id)
        return self.fixed_prices.get(token.address, self.market(token, now_ms))

    def _token(self, token_id: str) -> SimulatedToken:
        address = token_id.partition("::")[0]
        if address not in self.tokens:
            traded = ", ".join(token.id for token in TRADED_TOKENS)
            raise UsageError(f"unknown token {token_id!r}; the traded tokens are {traded}")
        return self.tokens[address]

    def _list(self, query: Mapping[str, list[str]], now_ms: int) -> SimulatedReply:
        limit_text = query.get("limit", [str(PAGE_DEFAULT)])[-1]
        if not limit_text.isdigit() or not 1 <= int(limit_text) <= PAGE_MAX:
            message = f"limit must be an integer from 1 to {PAGE_MAX}"
            return json_reply(400, {"statusCode": 400, "message": message})
        first = _decode_cursor(query.get("cursor", [""])[-1])
        if first is None:
            return json_reply(400, {"statusCode": 400, "message": "cursor is not valid"})
        # The order does not depend on prices, which drift: otherwise rows would move between pages.
        listed = [token for token in self.tokens.values() if token.quoting not in {"missing", "unlisted"}]
        after = first + int(limit_text)
        rows = [self._row(token, now_ms) for token in listed[first:after]]
        return _success({"rows": rows, "next": _encode_cursor(after) if after < len(listed) else None})

    def _row(self, token: SimulatedToken, now_ms: int) -> dict[str, Any]:
        address = token.address
        fixed = self.fixed_prices.get(address)
        price = self.market(token, now_ms) if fixed is None else fixed
        day_ago = self.market(token, now_ms - DAY_MS)
        supply = 1_000_000_000
        liquidity, volume = self.pools.get(address, (LIQUIDITY_USD, VOLUME_USD))
        return {
            "address": address,
            "symbol": token.symbol,
            "name": token.symbol,
            "decimals": str(token.decimals) if token.quoting == "text" else token.decimals,
            "holder_count": 1200,
            "circulating_supply": supply,
            "total_supply": supply,
            "price_usd": _quoted(token.quoting, price),
            "marketcap_usd": round(price * supply, 2),
            "total_liquidity_usd": liquidity,
            "pool_count": 3,
            "metrics": {
                "volume_1d_usd": volume,
                "swaps_1d": 240,
                "buys_1d": 130,
                "sells_1d": 110,
                "buy_volume_1d_usd": 9_500,
                "sell_volume_1d_usd": 8_500,
            },
            "price": {
                # A token that is quoted without a price has none here either.
                "current_price": price if token.quoting in {"number", "text", "unlisted"} else 0,
                "price_1d_ago": day_ago,
                "price_change_1d_pct": round((price / day_ago - 1) * 100, 2),
            },
        }


def _quoted(quoting: Quoting, price: float) -> float | str | None:
    if quoting == "zero":
        return 0
    if quoting == "null":
        return None
    return f"{price:.10f}".rstrip("0") if quoting == "text" else price


def _success(data: object) -> SimulatedReply:
    return json_reply(200, {"statusCode": 200, "message": "Success", "data": data})


def _encode_cursor(first: int) -> str:
    return base64.urlsafe_b64encode(f"after:{first}".encode()).decode()


def _decode_cursor(text: str) -> int | None:
    if not text:
        return 0
    try:
        word, _, number = base64.urlsafe_b64decode(text).decode().partition(":")
    except ValueError:
        return None
    return int(number) if word == "after" and number.isdigit() else None
