"""The scheduler's events as a stream (server-sent events), with a heartbeat while nothing happens."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tocsin.client_places import Places
from tocsin.errors import ObjectError, RequestRefused
from tocsin.shapes.scheduler import EventBatch, SchedulerEvent
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_bytes

HEARTBEAT_MS = 15_000
STREAMS_MAX = 16
AGAIN_S = 1.0  # after the object was reset
POLLS_MAX = 500  # per stream: an invocation on Cloudflare must end; the client reconnects


class EventStreams:
    """All open streams. Their number is limited, because each holds a waiting call."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._open = Places(STREAMS_MAX)

    def open(self, after: int, is_allowed: Callable[[], bool], headers: Mapping[str, str]) -> "EventResponse":
        """Events after that number, for as long as the key is in force."""
        self._deps.scheduler()  # a missing binding is an error before the stream begins
        place = self._open.open(("everybody",))
        if place is None:
            sentence = f"{STREAMS_MAX} event streams are open already: close one."
            raise RequestRefused(429, "too_many_streams", sentence, retryable=True)
        return EventResponse(self._stream(after, is_allowed), headers, lambda: self._open.closed(place))

    async def _stream(self, after: int, is_allowed: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """Events after that number; ends when the service stops, or after `POLLS_MAX` polls."""
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
            closing.cancel()
            if poll is not None:
                poll.cancel()


class EventResponse(StreamingResponse):
    """Closes its generator when the client disconnects, not whenever it is garbage-collected.

    Then it calls `on_end`, even if the client left before the first event.
    """

    body_iterator: AsyncGenerator[bytes, None]

    def __init__(
        self, stream: AsyncGenerator[bytes, None], headers: Mapping[str, str], on_end: Callable[[], None]
    ) -> None:
        super().__init__(stream, headers=headers, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self.body_iterator.aclose()


def _frame(event: SchedulerEvent) -> bytes:
    data = json_bytes(event.to_json())
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.event.encode(), data)
