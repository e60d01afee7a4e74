"""The board as the object publishes it: one value in KV, so that a visitor costs no query.

It is written when something changed, and read as a whole; pages and orders are cut from it.
"""

import json
from dataclasses import dataclass

from tocsin.bindings import KV
from tocsin.errors import MalformedShape
from tocsin.shapes.base import Shape
from tocsin.shapes.competition import BoardRow

KEY = "board:v1"


@dataclass(frozen=True, slots=True)
class PublishedBoard(Shape):
    """All rows, in the default order. A final one is valued at the prices of the competition's end."""

    rows: list[BoardRow]
    as_of: int
    prices_as_of: int | None
    final: bool


async def publish(kv: KV, board: PublishedBoard) -> None:
    await kv.put(KEY, json.dumps(board.to_json(), separators=(",", ":")))


class BoardReader:
    """Reads the published board, and parses it once for each publication."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self._text = ""
        self._board: PublishedBoard | None = None

    async def read(self) -> PublishedBoard | None:
        """The board; None when there is none that can be read."""
        text = await self._kv.get(KEY)
        if text is None:
            return None
        if text != self._text:
            self._text, self._board = text, _parsed(text)
        return self._board


def _parsed(text: str) -> PublishedBoard | None:
    try:
        return PublishedBoard.from_json(json.loads(text))
    except (ValueError, MalformedShape):
        return None
