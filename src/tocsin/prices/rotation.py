"""Which tokens a refresh asks for, and in which order, so that none starves. Pure.

Most tokens are in the source's list, a hundred for one call. Tokens that a complete list lacked are asked for one by
one, a few in each refresh, and are looked for in the list again once a day; in every refresh when there are more of
them than the list has pages, because then looking is cheaper. Tokens that a list did not reach, because it was cut
short or partly unreadable, are asked for once by themselves before the list is tried again. When a refresh is cut
short (a limit, a pause), the tokens that it did not reach are the ones asked longest ago, and come first in the next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tocsin.bindings import JSON
from tocsin.chain_model import TokenPrice
from tocsin.errors import MalformedShape
from tocsin.shapes.base import Shape

RELIST_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class HeldPrice(Shape):
    """A jump that was held back."""

    price_usd: float | None
    decimals: int | None


@dataclass(frozen=True, slots=True)
class TokenMemory(Shape):
    """What is remembered of a token between refreshes."""

    asked_at: int = 0
    missed_at: int | None = None  # when the list was last read and did not have it
    unlisted: bool = False  # because it is not in the list
    held: HeldPrice | None = None

    def held_price(self, token_id: str) -> TokenPrice | None:
        held = self.held
        return None if held is None else TokenPrice(token_id, held.price_usd, held.decimals)


NEW = TokenMemory()


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """Tokens to look for in the list, and tokens to ask for singly; in each, the one asked longest ago is first.

    A token may be in both: asked for singly first, in case the list takes all calls there are, and then looked for, to
    see whether it is back.
    """

    listed: tuple[str, ...]
    single: tuple[str, ...]
    single_first: bool


def plan_refresh(
    token_ids: Iterable[str], memory: Mapping[str, TokenMemory], now: int, *, pages_max: int
) -> RefreshPlan:
    def of(token_id: str) -> TokenMemory:
        return memory.get(token_id, NEW)

    oldest_first = tuple(sorted(token_ids, key=lambda token_id: of(token_id).asked_at))
    listed = tuple(token_id for token_id in oldest_first if of(token_id).missed_at is None)
    single = tuple(token_id for token_id in oldest_first if of(token_id).missed_at is not None)
    if not single:
        return RefreshPlan(listed, (), single_first=False)
    asked_at, missed_at = of(single[0]).asked_at, of(single[0]).missed_at or 0
    single_first = asked_at < (of(listed[0]).asked_at if listed else missed_at)
    if len(single) <= pages_max and all(_is_unlisted(of(token_id), now) for token_id in single):
        return RefreshPlan(listed, single, single_first and bool(listed))
    return RefreshPlan(oldest_first, single if single_first else (), single_first)


def _is_unlisted(token: TokenMemory, now: int) -> bool:
    """Whether the list need not be searched for it."""
    return token.unlisted and token.missed_at is not None and 0 <= now - token.missed_at < RELIST_MS


def memory_to_json(memory: Mapping[str, TokenMemory]) -> JSON:
    return {token_id: token.to_json() for token_id, token in memory.items()}


def memory_from_json(stored: JSON, token_ids: Iterable[str]) -> dict[str, TokenMemory]:
    """The memory of these tokens. Raises `MalformedShape` when it is something else."""
    if not isinstance(stored, dict):
        raise MalformedShape(f"expected an object, found {type(stored).__name__}")
    return {token_id: TokenMemory.from_json(stored[token_id]) for token_id in token_ids if token_id in stored}
