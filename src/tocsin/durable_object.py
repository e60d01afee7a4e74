"""The base class of objects. It holds what every object is given; the platform does the rest."""

from typing import Any

from tocsin.bindings import ObjectContext


class DurableObject:
    """Subclass this. Public methods are callable through a stub; `alarm(info)` rings when it was set.

    The constructor must be quick and must not await: use `ctx.block_concurrency_while` to load state.
    """

    def __init__(self, ctx: ObjectContext, env: Any) -> None:
        self.ctx = ctx
        self.env = env
