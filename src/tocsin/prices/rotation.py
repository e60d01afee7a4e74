"""Who is asked for in a round, and in which order, so that nobody starves. Pure.

Most tokens are in the source's list, a hundred for one call. Those that are not are asked for one by one,
a few a round, and are sought in the list again once a day. When a round is cut short (a limit, a
pause), whoever was not reached is the one asked longest ago, and goes first in the next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tocsin.bindings import JSON
from tocsin.model import TokenPrice

RELIST_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Note:
    """What is remembered of a token between rounds. `held` is a jump that was not believed yet."""

    asked_at: int = 0
    unlisted_at: int | None = None
    held: TokenPrice | None = None


NEW = Note()
Notes = dict[str, Note]


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens to look for in the list, and tokens to ask for singly; each the longest unasked first."""

    listed: tuple[str, ...]
    single: tuple[str, ...]
    single_first: bool


def plan_round(token_ids: Iterable[str], notes: Mapping[str, Note], now: int) -> Round:
    def asked_at(token_id: str) -> int:
        return notes.get(token_id, NEW).asked_at

    oldest_first = tuple(sorted(token_ids, key=asked_at))
    unlisted_at = {token_id: notes.get(token_id, NEW).unlisted_at for token_id in oldest_first}
    if any(at is not None and not 0 <= now - at < RELIST_MS for at in unlisted_at.values()):
        return Round(oldest_first, (), single_first=False)  # the pages are read anyway: seek all in them
    listed = tuple(token_id for token_id in oldest_first if unlisted_at[token_id] is None)
    single = tuple(token_id for token_id in oldest_first if unlisted_at[token_id] is not None)
    single_first = bool(listed and single) and asked_at(single[0]) < asked_at(listed[0])
    return Round(listed, single, single_first)


def notes_to_json(notes: Mapping[str, Note]) -> JSON:
    return {
        token_id: [
            note.asked_at,
            note.unlisted_at,
            None if note.held is None else [note.held.price_usd, note.held.decimals],
        ]
        for token_id, note in notes.items()
    }


def notes_from_json(stored: JSON, token_ids: Iterable[str]) -> Notes:
    """The notes of these tokens. Raises KeyError, TypeError or ValueError on what is none of ours."""
    notes: Notes = {}
    for token_id in token_ids:
        if token_id in stored:
            asked_at, unlisted_at, held = stored[token_id]
            price = None if held is None else TokenPrice(token_id, held[0], held[1])
            notes[token_id] = Note(int(asked_at), unlisted_at, price)
    return notes
