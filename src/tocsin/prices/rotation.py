"""Plans which tokens a refresh asks for, and in which order, so that none starves. Pure.

Most tokens are in the source's list, which has a hundred per call. Tokens that a complete list lacked get single calls,
a few in each refresh, and are searched in the list again once a day. If they outnumber the pages of the list, they are
searched in every refresh, because that is cheaper. Tokens that a list did not reach, because it was cut short or partly
unreadable, get one single call before the list is tried again. If a refresh is cut short (a limit, a pause), the tokens
that it did not reach have waited longest, and come first in the next one.
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
    """A price that jumped and was held back."""

    price_usd: float | None
    decimals: int | None


@dataclass(frozen=True, slots=True)
class TokenMemory(Shape):
    """What is remembered about a token between refreshes."""

    asked_at: int = 0
    missed_at: int | None = None  # when the list was last read without finding it
    unlisted: bool = False  # it was not found because it is not in the list
    held: HeldPrice | None = None

    def held_price(self, token_id: str) -> TokenPrice | None:
        held = self.held
        return None if held is None else TokenPrice(token_id, held.price_usd, held.decimals)


NEW = TokenMemory()


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """Tokens to look for in the list, and tokens that get a single call; in each, the one that waited longest is first.

    A token may be in both: it gets a single call first, in case the list uses up all calls, and is then searched in the
    list, in case it is back.
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
    """Whether there is no need to search the list for this token."""
    return token.unlisted and token.missed_at is not None and 0 <= now - token.missed_at < RELIST_MS


def memory_to_json(memory: Mapping[str, TokenMemory]) -> JSON:
    return {token_id: token.to_json() for token_id, token in memory.items()}


def memory_from_json(stored: JSON, token_ids: Iterable[str]) -> dict[str, TokenMemory]:
    """The memory of these tokens; raises `MalformedShape` if the stored value is invalid."""
    if not isinstance(stored, dict):
        raise MalformedShape(f"expected an object, found {type(stored).__name__}")
    return {token_id: TokenMemory.from_json(stored[token_id]) for token_id in token_ids if token_id in stored}
