"""The scheduler's events as a stream (server-sent events), with a heartbeat while nothing happens."""

import asyncio
from collections.abc import AsyncGenerator

from tocsin.bindings import JSON
from tocsin.errors import ObjectError, RequestRefused
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_bytes

HEARTBEAT_MS = 15_000
STREAMS_MAX = 16
AGAIN_S = 1.0  # after the object was reset
POLLS_MAX = 500  # of a stream: an invocation on Cloudflare may not ask for ever; the client comes back


class EventStreams:
    """All open streams; bounded, each costs a waiting call."""

    def __init__(self, site: WebDeps) -> None:
        self._site = site
        self._open = 0

    def open(self, after: int) -> AsyncGenerator[bytes, None]:
        if self._open >= STREAMS_MAX:
            sentence = f"{STREAMS_MAX} event streams are open already: close one."
            raise RequestRefused(429, "too_many_streams", sentence, retryable=True)
        self._site.scheduler()  # one that is not there is told before the stream begins
        return self._stream(after)

    async def _stream(self, after: int) -> AsyncGenerator[bytes, None]:
        """From the event after that number on; ends when the service does, or after so many questions."""
        self._open += 1
        closing = asyncio.ensure_future(self._site.closing.wait())
        poll: asyncio.Future[JSON] | None = None
        try:
            yield b"retry: 2000\n\n"
            for _ in range(POLLS_MAX):
                if closing.done():
                    return
                poll = asyncio.ensure_future(self._site.scheduler().events(after, HEARTBEAT_MS))
                await asyncio.wait({poll, closing}, return_when=asyncio.FIRST_COMPLETED)
                if not poll.done():
                    return
                try:
                    news = poll.result()
                except ObjectError as error:
                    self._site.logger.warn("events.interrupted", error=str(error)[:300])
                    await self._site.clock.sleep(AGAIN_S)
                    yield b": the scheduler is away\n\n"
                    continue
                for event in news["events"]:
                    yield _frame(event)
                if not news["events"]:
                    yield b": heartbeat\n\n"
                after = news["next"]
        finally:
            self._open -= 1
            closing.cancel()
            if poll is not None:
                poll.cancel()


def _frame(event: JSON) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event["seq"], event["event"].encode(), json_bytes(event))
