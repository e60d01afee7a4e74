"""Hiro's lists: query parameters as Hiro checks them, the rows of a page, its cursors, and errors in Fastify's wording.

A v3 cursor names the first row of a page, inclusively: `current` that of this page, `next` the first row
after it, `previous` the row one page earlier. Paging down neither repeats nor skips a row. Paging up, the
newest page is always a full one, so it may repeat rows of the page below it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from stacks_simulator.chain_records import NO_MICROBLOCK, AssetKey, ChainPosition, ChainTransaction, count_up_to
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


def v3_transactions(
    transactions: Sequence[ChainTransaction],
    limit: int,
    cursor: str | None,
    *,
    end: int | None = None,
    is_shown: Callable[[ChainTransaction], bool] = lambda _: True,
) -> HiroPage[ChainTransaction]:
    """A page of the first `end` transactions of a list that is oldest first. The total includes those not shown."""
    end = len(transactions) if end is None else end
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
    transactions: Iterable[ChainTransaction], principal: str, limit: int, cursor: str | None
) -> HiroPage[ChangeRow]:
    """One row per transaction and asset, newest transaction first, then STX, tokens, NFTs."""
    mined = [tx for tx in transactions if tx.state == "mined"]
    mined.sort(key=lambda tx: tx.position, reverse=True)
    rows = [
        (tx, asset, sent, received)
        for tx in mined
        for asset, (sent, received) in sorted(tx.balance_changes(principal).items())
    ]
    first = 0
    if cursor is not None:
        height, sequence, index, kind, asset = cursor.split(":", 4)
        start = (-int(height), -int(sequence), -int(index), (int(kind), asset))
        first = sum(1 for tx, key, *_ in rows if (*(-part for part in tx.position), key) < start)
    after = first + limit
    page_rows = rows[first:after]
    return HiroPage(
        rows=page_rows,
        total=len(rows),
        current=_change_cursor(page_rows[0]) if page_rows else None,
        next=_change_cursor(rows[after]) if after < len(rows) else None,
        previous=_change_cursor(rows[max(0, first - limit)]) if page_rows and first > 0 else None,
    )


def _position(cursor: str) -> ChainPosition:
    height, sequence, index = (int(part) for part in cursor.split(":"))
    # `height:0:0` means the whole block, because no transaction is in a microblock since Nakamoto.
    return (height, NO_MICROBLOCK, TX_INDEX_MAX) if sequence == index == 0 else (height, sequence, index)


def _transaction_cursor(tx: ChainTransaction) -> str:
    return ":".join(str(part) for part in tx.position)


def _change_cursor(row: ChangeRow) -> str:
    tx, (kind, asset), *_ = row
    return f"{_transaction_cursor(tx)}:{kind}:{asset}"
