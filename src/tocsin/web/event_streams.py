"""The scheduler's events as a stream (server-sent events), with a heartbeat while nothing happens."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tocsin.errors import ObjectError, RequestRefused
from tocsin.shapes.scheduler import EventBatch, SchedulerEvent
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_bytes

HEARTBEAT_MS = 15_000
STREAMS_MAX = 16
AGAIN_S = 1.0  # after the object was reset
POLLS_MAX = 500  # of a stream: an invocation on Cloudflare must end; the client reconnects


class EventStreams:
    """All open streams. They are bounded: each costs a waiting call."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._open = 0

    def open(self, after: int, is_allowed: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """Events after that number, for as long as the key is in force."""
        if self._open >= STREAMS_MAX:
            sentence = f"{STREAMS_MAX} event streams are open already: close one."
            raise RequestRefused(429, "too_many_streams", sentence, retryable=True)
        self._deps.scheduler()  # a missing binding is an error before the stream begins
        return self._stream(after, is_allowed)

    async def _stream(self, after: int, is_allowed: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """Events after that number; ends when the service stops, or after `POLLS_MAX` polls."""
        self._open += 1
        closing = asyncio.ensure_future(self._deps.closing.wait())
        poll: asyncio.Future[EventBatch] | None = None
        try:
            yield b"retry: 2000\n\n"
            for _ in range(POLLS_MAX):
                if closing.done():
                    return
                poll = asyncio.ensure_future(self._deps.scheduler().events(after, HEARTBEAT_MS))
                await asyncio.wait({poll, closing}, return_when=asyncio.FIRST_COMPLETED)
                if not poll.done() or not is_allowed():
                    return
                try:
                    batch = poll.result()
                except ObjectError as error:
                    self._deps.logger.warn("events.interrupted", error=str(error)[:300])
                    await self._deps.clock.sleep(AGAIN_S)
                    yield b": the scheduler is away\n\n"
                    continue
                for event in batch.events:
                    yield _frame(event)
                if not batch.events:
                    yield b": heartbeat\n\n"
                after = batch.next
        finally:
            self._open -= 1
            closing.cancel()
            if poll is not None:
                poll.cancel()


class EventResponse(StreamingResponse):
    """Closes its generator when the client disconnects, not whenever it is garbage-collected."""

    body_iterator: AsyncGenerator[bytes, None]

    def __init__(self, stream: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        super().__init__(stream, headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()


def _frame(event: SchedulerEvent) -> bytes:
    data = json_bytes(event.to_json())
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.event.encode(), data)
