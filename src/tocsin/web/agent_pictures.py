"""The pictures of agents: each is drawn once for a board, however many ask for it. Drawing blocks everybody."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

PICTURES_MAX = 100  # of 20 kB at most


class AgentPictures:
    """Pictures of the newest board, by address. Where requests share a loop, those who ask at once wait for one."""

    def __init__(self, *, in_one_loop: bool) -> None:
        self._in_one_loop = in_one_loop
        self._as_of: int | None = None
        self._kept: dict[str, bytes] = {}
        self._drawing: dict[str, asyncio.Task[bytes]] = {}

    async def get(self, address: str, as_of: int, draw: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The picture of this agent on the board of that time. Raises what `draw` raises."""
        if as_of != self._as_of:
            self._as_of = as_of
            self._kept.clear()
            self._drawing.clear()  # what is under way shows the board before
        kept = self._kept.get(address)
        if kept is not None:
            return kept
        if not self._in_one_loop:
            picture = await draw()
            if as_of == self._as_of:
                self._keep(address, picture)
            return picture
        return await self._drawn_once(address, draw)

    def _drawn_once(self, address: str, draw: Callable[[], Coroutine[Any, Any, bytes]]) -> Awaitable[bytes]:
        task = self._drawing.get(address)
        if task is None:
            task = self._drawing[address] = asyncio.create_task(draw())
            task.add_done_callback(lambda done: self._drawn(address, done))
        return asyncio.shield(task)

    def _drawn(self, address: str, task: "asyncio.Task[bytes]") -> None:
        """Keep it, unless there is a newer board. An error is for those who wait."""
        failed = task.cancelled() or task.exception() is not None
        if self._drawing.get(address) is task:
            del self._drawing[address]
            if not failed:
                self._keep(address, task.result())

    def _keep(self, address: str, picture: bytes) -> None:
        if len(self._kept) >= PICTURES_MAX:
            del self._kept[next(iter(self._kept))]  # the oldest
        self._kept[address] = picture
