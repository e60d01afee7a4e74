"""What one invocation may ask of others: Cloudflare counts fetches and calls to D1, KV and services together.

Each ring of the alarm and each call to an object is an invocation with a count of its own. When most of it
is spent, the next fetch ends the run as a pause would: what it did is kept, and the next ring goes on. The
rest is for writing that down.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tocsin.errors import RunStopped

SUBREQUESTS_MAX = 1_000  # per invocation; plans with more exist, and none is needed
RESERVED_FOR_STORES = 200

_SPENT: ContextVar[list[int] | None] = ContextVar("spent", default=None)


@contextmanager
def invocation() -> Iterator[None]:
    """Count anew; tasks started within count here, also after its end."""
    token = _SPENT.set([0])
    try:
        yield
    finally:
        _SPENT.reset(token)


def spend_on_store() -> None:
    spent = _SPENT.get()
    if spent is not None:
        spent[0] += 1


def spend_on_fetch() -> None:
    spent = _SPENT.get()
    if spent is not None:
        if spent[0] >= SUBREQUESTS_MAX - RESERVED_FOR_STORES:
            raise RunStopped(
                f"this invocation has made {spent[0]} of its {SUBREQUESTS_MAX} subrequests; the next goes on"
            )
        spent[0] += 1
