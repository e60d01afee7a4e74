"""The subrequests of one invocation: Cloudflare counts fetches and calls to D1, KV and services together.

Each ring of the alarm and each call to an object is an invocation with its own count. When most of the limit
is used, the next fetch ends the run like a pause: its work is kept, and the next ring continues. The rest of
the limit is for storing that work.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tocsin.errors import RunStopped

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


def spend_on_store() -> None:
    account = _ACCOUNT.get()
    if account is not None:
        account.spent += 1


def spend_on_fetch() -> None:
    account = _ACCOUNT.get()
    if account is not None:
        if account.spent >= account.limit - RESERVED_FOR_STORES:
            spent = f"{account.spent} of {account.limit} subrequests of this invocation are used"
            raise RunStopped(f"{spent}; the next invocation continues", outcome="partial")
        account.spent += 1
