"""The pictures of agents. Each is drawn once per board, however often it is requested: drawing blocks every request."""

from collections.abc import Callable, Coroutine
from typing import Any

from tocsin.web.shared_results import SharedResults

PICTURES_MAX = 100  # of at most 20 kB each


class AgentPictures:
    """Pictures of the newest board, by address."""

    def __init__(self, *, in_one_loop: bool) -> None:
        self._as_of: int | None = None
        self._pictures: SharedResults[str, bytes] = SharedResults(PICTURES_MAX, in_one_loop=in_one_loop)

    async def get(self, address: str, as_of: int, draw: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The picture of this agent on the board of that time. Raises what `draw` raises."""
        if as_of != self._as_of:
            self._as_of = as_of
            self._pictures.forget()
        kept = self._pictures.get(address)
        return await self._pictures.computed(address, draw) if kept is None else kept
