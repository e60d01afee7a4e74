"""The Tenero API: token prices. One page of the list has a hundred of them and costs one call of the budget."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from holdfast.errors import UsageError
from holdfast.types import JSON, Logger
from tocsin.errors import MalformedBody
from tocsin.stacks import DECIMALS_MAX, POOL_USD_MAX, PRICE_USD_MAX, PRICE_USD_MIN, STX, TokenPrice, is_token_id
from tocsin.upstream.answer import BadRequest, Failure, NotFound, Ok
from tocsin.upstream.budget import LimitReading, Quota, WindowReading
from tocsin.upstream.client import Upstream, UpstreamClient, header_number
from tocsin.upstream.decode import JsonObject, as_record, optional_text, record, text
from tocsin.upstream.limiter import CallSession, task_session

PAGE = 100  # Tenero's maximum
ANONYMOUS_TYPE = "web-ui-ip"  # what Tenero calls a client without a key
NO_QUOTA = Quota()

_NUMBER = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
_MISSING = object()


def tenero_upstream(base_url: str, key: str | None, quota: Quota = NO_QUOTA) -> Upstream:
    """What a client must know about Tenero. That the key travels in the usual header is a guess."""
    return Upstream(
        "tenero",
        base_url,
        "TENERO_API_URL",
        key,
        "TENERO_API_KEY",
        read_tenero_limits,
        TeneroClient,
        "/v1/stacks/tokens/stx",
        quota,
    )


def read_tenero_limits(headers: Mapping[str, str]) -> LimitReading:
    """Tenero reports the remaining calls of the minute and the month, and the account type, but no limit."""
    account = headers.get("x-ratelimit-type")
    return LimitReading(
        minute=WindowReading(remaining=header_number(headers, "x-ratelimit-minute-remaining")),
        month=WindowReading(remaining=header_number(headers, "x-ratelimit-month-remaining")),
        anonymous=None if account is None else account.strip().lower() == ANONYMOUS_TYPE,
    )


@dataclass(slots=True)
class ListedPrices:
    """What the list has of the requested tokens, by id. After a `failure`, the rest of it is not known."""

    prices: dict[str, TokenPrice] = field(default_factory=dict)
    seen_at: dict[str, int] = field(default_factory=dict)  # when each price arrived
    missing: tuple[str, ...] = ()  # not found so far
    unlisted: frozenset[str] = frozenset()  # known not to be in the list
    pages: int = 0  # read so far
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class _ListPage:
    prices: dict[str, TokenPrice]  # by address
    next_cursor: str | None
    refused: tuple[tuple[str | None, str], ...]  # of each row that was skipped: its address, if readable, and why


class TeneroClient:
    """The calls that Tocsin makes to Tenero."""

    def __init__(self, client: UpstreamClient) -> None:
        self.client = client

    async def listed_prices(self, token_ids: Sequence[str], session: CallSession, pages_max: int) -> ListedPrices:
        """Find the prices of these tokens in the list: in `pages_max` pages, or in fewer if nothing is missing."""
        missing = {token_id: token_address(token_id) for token_id in token_ids}
        found = ListedPrices()
        refused: set[str | None] = set()  # the addresses of rows that cannot be read
        cursor: str | None = ""
        while missing and cursor is not None and found.pages < pages_max:
            target = f"/v1/stacks/tokens?limit={PAGE}" + (f"&cursor={quote(cursor, safe='')}" if cursor else "")
            answer = await self.client.get(target, list_page, session)
            if isinstance(answer, NotFound):
                found.failure = BadRequest("tenero has no token list here: check TENERO_API_URL", 404)
            elif not isinstance(answer, Ok):
                found.failure = answer
            if not isinstance(answer, Ok):
                break
            page = answer.value
            found.pages += 1
            self.client.rows_refused(target, [reason for _, reason in page.refused], session)
            refused.update(address for address, _ in page.refused)
            for token_id in [token_id for token_id, address in missing.items() if address in page.prices]:
                found.prices[token_id] = replace(page.prices[missing.pop(token_id)], token_id=token_id)
                found.seen_at[token_id] = self.client.now()
            cursor = page.next_cursor
        found.missing = tuple(missing)
        if found.failure is None and found.pages and None not in refused:
            found.unlisted = frozenset(token_id for token_id, address in missing.items() if address not in refused)
        return found

    async def fetch_token_price_usd(
        self, asset_id: str, logger: Logger, session: CallSession | None = None
    ) -> Ok[TokenPrice] | Failure:
        """Get one token's price and decimals. A token that Tenero does not know has no price; that is `Ok` too."""
        address = token_address(asset_id)
        target = f"/v1/stacks/tokens/{quote(address, safe='')}"
        answer = await self.client.get(
            target, lambda body: token_price(body, asset_id, address), session or task_session(logger)
        )
        return Ok(TokenPrice(asset_id, None, None)) if isinstance(answer, NotFound) else answer


def token_address(token_id: str) -> str:
    """Tenero's name of a token: its contract, without `::asset`."""
    if not is_token_id(token_id):
        raise UsageError(f"A token id is `{STX}` or `contract::asset`, not {token_id[:80]!r}.")
    return token_id.partition("::")[0]


def token_price(body: JSON, token_id: str, address: str) -> TokenPrice:
    row = record(as_record(body, "body"), "data")
    if text(row, "address") != address:
        raise MalformedBody("address: not the requested token")
    return _token_price(token_id, row)


def list_page(body: JSON) -> _ListPage:
    """A page of the list. Unreadable rows are skipped and reported; if all are unreadable, it is an error."""
    data = record(as_record(body, "body"), "data")
    rows = data.get("rows")
    if not isinstance(rows, list):
        raise MalformedBody("rows: expected a list")
    prices: dict[str, TokenPrice] = {}
    refused: list[tuple[str | None, str]] = []
    for row in rows:
        address = None
        try:
            address = text(as_record(row, "row"), "address")
            prices[address] = _token_price(address, row)
        except MalformedBody as error:
            refused.append((address, str(error)))
    if refused and not prices:
        raise MalformedBody(f"rows: none of {len(rows)} can be read: {refused[0][1]}")
    return _ListPage(prices, optional_text(data, "next"), tuple(refused))


def _token_price(token_id: str, row: JsonObject) -> TokenPrice:
    metrics = row.get("metrics")
    volume = metrics.get("volume_1d_usd") if isinstance(metrics, dict) else None
    liquidity = row.get("total_liquidity_usd")
    return TokenPrice(token_id, _price_usd(row), _decimals(row), _pool_usd(liquidity), _pool_usd(volume))


def _price_usd(row: JsonObject) -> float | None:
    """A price within its bounds, or None. A missing field is an error: it does not mean "no price"."""
    value = row.get("price_usd", _MISSING)
    if value is None:
        return None
    if isinstance(value, str):
        price = _float(value) if _NUMBER.fullmatch(value) else 0.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        price = _float(value)
    else:
        raise MalformedBody("price_usd: expected a number, text or null")
    return price if PRICE_USD_MIN <= price <= PRICE_USD_MAX else None


def _decimals(row: JsonObject) -> int | None:
    """Decimals as a number or text; None if there are none. They are never guessed."""
    value = row.get("decimals")
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,2}", value):
        value = int(value)
    if value is None or (type(value) is int and 0 <= value <= DECIMALS_MAX):
        return value
    raise MalformedBody(f"decimals: expected 0 to {DECIMALS_MAX}")


def _pool_usd(value: JSON) -> float | None:
    """What a pool holds or trades. An implausible value counts as unknown: the price in the same row is still good."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= POOL_USD_MAX else None


def _float(value: str | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return 0.0
