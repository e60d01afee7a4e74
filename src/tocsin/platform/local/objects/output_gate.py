"""The output gate, as bindings see it: what leaves an object waits until its writes are durable.

Fetch, KV and DB await `output_gate()` before they act. Outside of an object it answers at once.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

# Set by the runtime in every task that runs an object's code.
GATE: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("tocsin_output_gate", default=None)


async def output_gate() -> None:
    """Wait for the calling object's writes to be durable; raises if its object was reset."""
    gate = GATE.get()
    if gate is not None:
        await gate()
