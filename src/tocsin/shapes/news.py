"""News for clients that watch the competition."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tocsin.shapes.base import Shape, without_nulls
from tocsin.shapes.competition import Trade

NewsKind: TypeAlias = Literal["counted", "withdrawn", "refused", "outranked", "board"]


@dataclass(frozen=True, slots=True)
class News(Shape):
    """A change. To continue after an interruption, send `id` as `Last-Event-ID`.

    `counted`: a swap was recorded; it is in `trade`. `withdrawn`: a swap was removed, for example by a reorg.
    `refused`: a transaction does not count, with `code` and `reason`. `outranked`: an agent's rank by P&L changed from
    `previous_rank` to `rank`. `board`: a new board was published at `as_of`.
    """

    id: int
    kind: NewsKind
    address: str | None = None
    txid: str | None = None
    trade: Trade | None = None
    code: str | None = None
    reason: str | None = None
    rank: int | None = None
    previous_rank: int | None = None
    as_of: int | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)
