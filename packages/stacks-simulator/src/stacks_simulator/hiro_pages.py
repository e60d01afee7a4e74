"""Hiro's lists: query parameters as Hiro checks them, the rows of a page, its cursors, and errors in Fastify's wording.

A v3 cursor names the first row of a page, inclusively: `current` that of this page, `next` the first row
after it, `previous` the row one page earlier. Paging down neither repeats nor skips a row. Paging up, the
newest page is always a full one, so it may repeat rows of the page below it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar, overload

from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import (
    NO_MICROBLOCK,
    AssetKey,
    ChainEvent,
    ChainPosition,
    ChainTransaction,
    count_up_to,
)
from stacks_simulator.http_messages import SimulatedReply, SimulatedRequest, json_reply

TX_INDEX_MAX = 0x7FFF

RowT = TypeVar("RowT")
ChangeRow: TypeAlias = tuple[ChainTransaction, AssetKey, int, int]

_TITLES = {400: "Bad Request", 404: "Not Found"}


class HiroHttpError(Exception):
    """Ends the handling of a request with this reply: an error, a redirect, or a 304."""

    def __init__(self, status: int, message: str, reply: SimulatedReply | None = None) -> None:
        super().__init__(message)
        body = {"statusCode": status, "error": _TITLES.get(status, ""), "message": message}
        self.reply = reply or json_reply(status, body)


class HiroQuery:
    """The query parameters of one request. A value that Hiro does not accept raises HiroHttpError."""

    def __init__(self, request: SimulatedRequest) -> None:
        self._values = request.query()
        self._headers = request.headers

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def integer(self, name: str, default: int, low: int, high: int | None = None) -> int:
        if name not in self._values:
            return default
        text = self._values[name][-1]
        if not re.fullmatch(r"-?\d{1,15}", text):
            raise HiroHttpError(400, f"querystring/{name} must be integer")
        number = int(text)
        if number < low:
            raise HiroHttpError(400, f"querystring/{name} must be >= {low}")
        if high is not None and number > high:
            raise HiroHttpError(400, f"querystring/{name} must be <= {high}")
        return number

    def count(self, name: str, default: int, high: int) -> int:
        """Return how many rows to return. v1 treats 0 as its default."""
        return self.integer(name, default, 0, high) or default

    def text(self, name: str, pattern: str) -> str | None:
        if name not in self._values:
            return None
        text = self._values[name][-1]
        if not re.fullmatch(pattern, text):
            raise HiroHttpError(400, f'querystring/{name} must match pattern "^{pattern}$"')
        return text

    def flag(self, name: str) -> bool:
        return self.text(name, "true|false") == "true"

    def words(self, name: str, allowed: Collection[str]) -> set[str]:
        words = {word for text in self.all(name) for word in text.split(",") if word}
        if not words <= set(allowed):
            raise HiroHttpError(400, f"querystring/{name}/0 must be equal to one of the allowed values")
        return words

    def end_if_known(self, etag: str) -> None:
        """End with an empty 304 if the caller already has the reply with this tag."""
        header = self._headers.get("if-none-match", "")
        tags = {tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")}
        if etag and etag in tags:
            raise HiroHttpError(304, "", SimulatedReply(304, b"", tag_headers(etag)))


def tag_headers(etag: str) -> dict[str, str]:
    return {"etag": f'"{etag}"', "cache-control": "public, no-cache, must-revalidate"} if etag else {}


@dataclass(frozen=True, slots=True)
class HiroPage(Generic[RowT]):
    """A page of a cursor-paged list."""

    rows: Sequence[RowT]
    total: int
    current: str | None
    next: str | None
    previous: str | None

    def body(self, limit: int, render: Callable[[RowT], dict[str, Any]]) -> dict[str, Any]:
        cursor = {"next": self.next, "previous": self.previous, "current": self.current}
        # As in the real API, which reads the total from a row: an empty page has a total of 0.
        total = self.total if self.rows else 0
        return {"total": total, "limit": limit, "cursor": cursor, "results": [render(row) for row in self.rows]}


def cut_page(rows: Sequence[RowT], first: int, limit: int, name: Callable[[RowT], str]) -> HiroPage[RowT]:
    """The page that begins at index `first` of a complete list in page order."""
    page_rows = rows[first : first + limit]
    after = first + limit
    return HiroPage(
        rows=page_rows,
        total=len(rows),
        current=name(page_rows[0]) if page_rows else None,
        next=name(rows[after]) if after < len(rows) else None,
        previous=name(rows[max(0, first - limit)]) if page_rows and first > 0 else None,
    )


def v1_span(chain: Chain, principal: str, query: HiroQuery) -> range:
    """The part of a principal's list that `height` or `until_block` selects."""
    height, until = query.text("height", r"\d+"), query.text("until_block", r"\d+|0x[a-fA-F0-9]{64}")
    if height is not None and until is not None:
        raise HiroHttpError(400, "Can't handle both `height` and `until_block` in the same request")
    if height is not None:
        return range(_count(chain, principal, int(height) - 1), _count(chain, principal, int(height)))
    if until is not None:
        return range(_count(chain, principal, _height(chain, until)))
    return range(len(chain.index.of(principal)))


def v3_transactions(chain: Chain, principal: str, limit: int, cursor: str | None) -> HiroPage[ChainTransaction]:
    transactions = chain.index.of(principal)
    count = len(transactions) if cursor is None else chain.index.up_to(principal, _position(cursor))
    return cut_page(_NewestFirst(transactions), len(transactions) - count, limit, _transaction_cursor)


def v3_network_transactions(
    transactions: Sequence[ChainTransaction],
    end: int,
    limit: int,
    cursor: str | None,
    is_shown: Callable[[ChainTransaction], bool],
) -> HiroPage[ChainTransaction]:
    """Return a page of the first `end` transactions of the chain. The total includes those not shown."""
    first = end if cursor is None else min(end, count_up_to(transactions, _position(cursor)))
    older = (transactions[at] for at in range(first - 1, -1, -1))
    newer = (transactions[at] for at in range(first, end))
    below = list(islice(filter(is_shown, older), limit + 1))
    above = list(islice(filter(is_shown, newer), limit))
    return HiroPage(
        rows=below[:limit],
        total=end,
        current=_transaction_cursor(below[0]) if below else None,
        next=_transaction_cursor(below[limit]) if len(below) > limit else None,
        previous=_transaction_cursor(above[-1]) if above else None,
    )


def v3_balance_changes(
    transactions: Sequence[ChainTransaction], principal: str, limit: int, cursor: str | None
) -> HiroPage[ChangeRow]:
    """One row per transaction and asset, newest transaction first, then STX, tokens, NFTs."""
    mined = [tx for tx in transactions if tx.state == "mined"]
    mined.sort(key=lambda tx: tx.position, reverse=True)
    rows = [row for tx in mined for row in _changes(tx, principal)]
    first = 0
    if cursor is not None:
        height, sequence, index, kind, asset = cursor.split(":", 4)
        start = (-int(height), -int(sequence), -int(index), (int(kind), asset))
        first = sum(1 for tx, key, *_ in rows if (*(-part for part in tx.position), key) < start)
    return cut_page(rows, first, limit, lambda row: f"{_transaction_cursor(row[0])}:{_asset_cursor(row)}")


def v3_transaction_balance_changes(
    tx: ChainTransaction | None, principal: str, limit: int, cursor: str | None
) -> HiroPage[ChangeRow]:
    rows = _changes(tx, principal) if tx and tx.state == "mined" else []
    first = 0
    if cursor is not None:
        kind, asset = cursor.split(":", 1)
        first = sum(1 for _, key, *_ in rows if key < (int(kind), asset))
    return cut_page(rows, first, limit, _asset_cursor)


def v3_events(tx: ChainTransaction, limit: int, first: int) -> HiroPage[tuple[ChainEvent, int]]:
    rows = list(zip(tx.events, range(len(tx.events)), strict=True))
    return cut_page(rows, min(first, len(rows)), limit, lambda row: str(row[1]))


class _NewestFirst(Sequence[ChainTransaction]):
    """A reversed view of a list. It does not copy the list, which is long for an old wallet."""

    def __init__(self, rows: Sequence[ChainTransaction]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> ChainTransaction: ...
    @overload
    def __getitem__(self, at: slice) -> list[ChainTransaction]: ...
    def __getitem__(self, at: int | slice) -> ChainTransaction | list[ChainTransaction]:
        if isinstance(at, slice):
            return [self[n] for n in range(*at.indices(len(self)))]
        return self._rows[len(self._rows) - 1 - at]


def _changes(tx: ChainTransaction, principal: str) -> list[ChangeRow]:
    changes = sorted(tx.balance_changes(principal).items())
    return [(tx, asset, sent, received) for asset, (sent, received) in changes]


def _position(cursor: str) -> ChainPosition:
    height, sequence, index = (int(part) for part in cursor.split(":"))
    # `height:0:0` means the whole block, because no transaction is in a microblock since Nakamoto.
    return (height, NO_MICROBLOCK, TX_INDEX_MAX) if sequence == index == 0 else (height, sequence, index)


def _transaction_cursor(tx: ChainTransaction) -> str:
    return ":".join(str(part) for part in tx.position)


def _asset_cursor(row: ChangeRow) -> str:
    kind, asset = row[1]
    return f"{kind}:{asset}"


def _count(chain: Chain, principal: str, height: int) -> int:
    """The number of a principal's transactions in blocks up to this height."""
    return chain.index.up_to(principal, (height, NO_MICROBLOCK, TX_INDEX_MAX))


def _height(chain: Chain, block_id: str) -> int:
    """The height of a block that is given by its height or hash."""
    if not block_id.startswith("0x"):
        return int(block_id)
    height = next((block.height for block in chain.blocks if block.hash == block_id.lower()), None)
    if height is None:
        raise HiroHttpError(404, "Could not find block by hash")
    return height
