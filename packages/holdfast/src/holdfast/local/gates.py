"""The output gate, for the bindings: what leaves an object waits until its writes are durable.

Fetch, KV and DB await `output_gate()` before they act. Outside of an object it returns at once.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

# Set by the runtime in every task that runs an object's code.
GATE: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("output_gate", default=None)


async def output_gate() -> None:
    """Wait until the writes of the calling object are durable. Raises if the object was reset."""
    gate = GATE.get()
    if gate is not None:
        await gate()
