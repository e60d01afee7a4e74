"""Who is asked for in a round, and in which order, so that nobody starves. Pure.

Most tokens are in the source's list, a hundred for one call. Those that a whole list lacked are asked for one
by one, a few a round, and are sought in the list again once a day; in every round when they are more than
the list has pages, for then it is dearer to believe that than to look. Those that a list did not come to, cut
short or half readable, have one turn alone before it is tried again. When a round is cut short (a limit, a
pause), whoever was not reached is the one asked longest ago, and goes first in the next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tocsin.bindings import JSON
from tocsin.chain_model import TokenPrice

RELIST_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TokenMemory:
    """What is remembered of a token between rounds. `held` is a jump that was not believed yet."""

    asked_at: int = 0
    missed_at: int | None = None  # when the list was last read and did not give it
    unlisted: bool = False  # because it is not in it
    held: TokenPrice | None = None


NEW = TokenMemory()
Notes = dict[str, TokenMemory]


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Tokens to look for in the list, and tokens to ask for singly; each the longest unasked first.

    A token may be in both: asked for singly first, in case the list takes all calls there are, and then
    looked for, to see whether it is back.
    """

    listed: tuple[str, ...]
    single: tuple[str, ...]
    single_first: bool


def plan_round(
    token_ids: Iterable[str], notes: Mapping[str, TokenMemory], now: int, *, pages_max: int
) -> RoundPlan:
    def note(token_id: str) -> TokenMemory:
        return notes.get(token_id, NEW)

    oldest_first = tuple(sorted(token_ids, key=lambda token_id: note(token_id).asked_at))
    listed = tuple(token_id for token_id in oldest_first if note(token_id).missed_at is None)
    single = tuple(token_id for token_id in oldest_first if note(token_id).missed_at is not None)
    if not single:
        return RoundPlan(listed, (), single_first=False)
    asked_at, missed_at = note(single[0]).asked_at, note(single[0]).missed_at or 0
    single_first = asked_at < (note(listed[0]).asked_at if listed else missed_at)
    if len(single) <= pages_max and all(_is_unlisted(note(token_id), now) for token_id in single):
        return RoundPlan(listed, single, single_first and bool(listed))
    return RoundPlan(oldest_first, single if single_first else (), single_first)


def _is_unlisted(note: TokenMemory, now: int) -> bool:
    """Whether the list need not be searched for it."""
    return note.unlisted and note.missed_at is not None and 0 <= now - note.missed_at < RELIST_MS


def notes_to_json(notes: Mapping[str, TokenMemory]) -> JSON:
    return {
        token_id: [
            note.asked_at,
            note.missed_at,
            note.unlisted,
            None if note.held is None else [note.held.price_usd, note.held.decimals],
        ]
        for token_id, note in notes.items()
    }


def notes_from_json(stored: JSON, token_ids: Iterable[str]) -> Notes:
    """The notes of these tokens. Raises KeyError, TypeError or ValueError on what is none of ours."""
    notes: Notes = {}
    for token_id in token_ids:
        if token_id in stored:
            asked_at, missed_at, unlisted, held = stored[token_id]
            price = None if held is None else TokenPrice(token_id, held[0], held[1])
            notes[token_id] = TokenMemory(int(asked_at), missed_at, bool(unlisted), price)
    return notes
