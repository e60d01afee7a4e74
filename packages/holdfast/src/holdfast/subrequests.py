"""The subrequests of one invocation: Cloudflare counts fetches and calls to D1, KV and services together.

Each ring of the alarm and each call to an object is an invocation with its own count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

SUBREQUESTS_MAX = 1_000  # per invocation; some plans have more, which is not needed
RESERVED_FOR_STORES = 200


@dataclass(slots=True)
class Account:
    """The subrequests of one invocation so far."""

    limit: int
    spent: int = 0


_ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)


@contextmanager
def invocation(limit: int = SUBREQUESTS_MAX) -> Iterator[Account]:
    """Start a new count. Tasks that start inside the block count here, even after its end."""
    account = Account(limit)
    token = _ACCOUNT.set(account)
    try:
        yield account
    finally:
        _ACCOUNT.reset(token)


def current_invocation() -> Account | None:
    """The count of the current invocation; None outside of objects."""
    return _ACCOUNT.get()


def spend_on_store() -> None:
    account = _ACCOUNT.get()
    if account is not None:
        account.spent += 1
