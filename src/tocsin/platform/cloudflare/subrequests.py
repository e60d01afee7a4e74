"""What one invocation may ask of others: Cloudflare counts fetches and calls to D1, KV and services together.

Each ring of the alarm and each call to an object is an invocation with a count of its own. When most of it
is spent, the next fetch ends the run as a pause would: what it did is kept, and the next ring goes on. The
rest is for writing that down.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tocsin.errors import RunStopped

SUBREQUESTS_MAX = 1_000  # per invocation; plans with more exist, and none is needed
RESERVED_FOR_STORES = 200


@dataclass(slots=True)
class Account:
    """What one invocation has asked for so far."""

    limit: int
    spent: int = 0


_ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)


@contextmanager
def invocation(limit: int = SUBREQUESTS_MAX) -> Iterator[Account]:
    """Count anew; tasks started within count here, also after its end."""
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
            spent = f"{account.spent} of this invocation's {account.limit} subrequests are made"
            raise RunStopped(f"{spent}; the next one goes on", outcome="partial")
        account.spent += 1
