"""Server-sent events: the scheduler's for operators, and `GET /api/competition/events` for everybody.

Each public stream looks for news once a second, from its last position. Streams at the same position share one look,
so a thousand streams cost one query a second. Streams that catch up, each from its own position, take turns. Nothing
is buffered for a stream that does not read. A stream ends after some minutes, because an invocation on Cloudflare must
end; the client reconnects and continues from its position. It also ends when all places are taken, its client has most
of them, and another client comes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import BindingMissing, ObjectError, StoreError
from tocsin.board.agents import BoardRanks
from tocsin.board.board import PublishedBoard
from tocsin.board.news import newest_id, read_news
from tocsin.board.types import News
from tocsin.errors import RequestRefused
from tocsin.scheduler.types import EventBatch, SchedulerEvent
from tocsin.web.cache import keep
from tocsin.web.deps import WebDeps
from tocsin.web.limits import CLIENTS_PER_SITE, Place, Places, networks_of
from tocsin.web.parameters import ADDRESS, LAST_EVENT
from tocsin.web.response import json_bytes
from tocsin.web.route import get

HEARTBEAT_MS = 15_000
STREAMS_MAX = 16
AGAIN_S = 1.0  # after the object was reset
POLLS_MAX = 500  # per stream: an invocation on Cloudflare must end; the client reconnects
LOOK_EVERY_S = 1.0
LOOKS_MAX = 400  # per stream; on Cloudflare each is two subrequests
LOOKS_KEPT = 4  # of at most 200 news
CATCH_UP_EVERY_S = 0.02  # for all streams together
SILENT_LOOKS = 15  # then a comment shows that the stream is alive
NEWS_STREAMS_MAX = 1_000
STREAMS_PER_CLIENT = 20
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


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
                    self._deps.logger.warning("events.interrupted", error=str(error)[:300])
                    await self._deps.clock.sleep(AGAIN_S)
                    yield b": the scheduler is away\n\n"
                    continue
                for event in batch.events:
                    yield _frame(event.seq, event.event, event)
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


def _frame(number: int, kind: str, shown: SchedulerEvent | News) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), json_bytes(shown.to_json()))


@dataclass(frozen=True, slots=True)
class _Look:
    """The news after a number, the number to continue from, and the board. `at_s` is monotonic."""

    at_s: float
    news: list[News]
    next: int
    board: PublishedBoard | None


class NewsStreams:
    """All open streams of this process."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._open = Places(NEWS_STREAMS_MAX, STREAMS_PER_CLIENT, STREAMS_PER_CLIENT * CLIENTS_PER_SITE)
        self._ranks = BoardRanks()
        self._looking = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._looks: dict[int, _Look] = {}  # the newest ones, by their position

    @get(
        "/api/competition/events",
        "streamNews",
        "the stream",
        media_type="text/event-stream",
        errors={429: "too_many_streams, or too_many_requests: too many reads; see Retry-After"},
    )
    async def show(
        self,
        request: Request,
        address: Annotated[
            str | None, replace(ADDRESS, description="only events of this agent, of every kind", strict=False)
        ] = None,
        after: Annotated[int | None, LAST_EVENT] = None,
    ) -> ASGIApp:
        """Server-sent events: swaps that are counted or withdrawn, and each new board; or all events of one agent.

        Each event's `data` is `News`. With an address there are also `refused` and `outranked`. While nothing happens,
        a comment is sent every 15 s. `Last-Event-ID` continues after an interruption.
        """
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type="text/event-stream")
        newest = await newest_id(self._deps.db)
        place = self._open.open(networks_of(request.scope))
        if place is None:
            sentence = "Too many streams are open: close one, or ask for the board every few seconds instead."
            headers = {"Retry-After": "30"}
            raise RequestRefused(429, "too_many_streams", sentence, retryable=True, headers=headers)
        start = newest if after is None else min(after, newest)
        stream = self._stream(address, start, newest, place)
        return EventResponse(stream, HEADERS, lambda: self._open.closed(place))

    async def _stream(self, address: str | None, after: int, newest: int, place: Place) -> AsyncGenerator[bytes, None]:
        """The news after a number. The stream catches up until it has reached the newest one."""
        yield b"retry: 3000\n\n"
        board: PublishedBoard | None = None
        rank: int | None = None
        silent = 0
        for _ in range(LOOKS_MAX):
            if self._deps.closing.is_set() or place.gone:
                return
            try:
                look = await self._look(after, catches_up=after < newest)
            except (StoreError, BindingMissing):
                return  # the client reconnects and continues from its position
            told = [news for news in look.news if _concerns(news, address)]
            after = look.next
            if look.board is not None and look.board is not board:
                previous, board, rank = rank, look.board, self._rank(look.board, address)
                told.append(News(after, "board", as_of=board.as_of))
                if previous is not None and rank is not None and rank > previous:
                    told.append(News(after, "outranked", address, rank=rank, previous_rank=previous))
            silent = 0 if told else silent + 1
            frames = b"".join(_frame(news.id, news.kind, news) for news in told)
            del look, told  # a client that does not read keeps the frames only
            if frames:
                yield frames
            if silent == SILENT_LOOKS:
                silent = 0
                yield b": heartbeat\n\n"
            await self._deps.clock.sleep(LOOK_EVERY_S)

    async def _look(self, after: int, *, catches_up: bool) -> _Look:
        """The news after this number; shared with a stream that has just looked from the same position."""
        one_loop, turn = self._deps.in_one_loop, self._catching_up if catches_up else self._looking
        async with turn if one_loop else nullcontext():
            known, now_s = self._looks.get(after), self._deps.clock.monotonic()
            if known is not None and now_s - known.at_s < LOOK_EVERY_S / 2:
                return known
            news, following = await read_news(self._deps.db, after)
            look = _Look(now_s, news, following, await self._deps.board.read())
            keep(self._looks, after, look, LOOKS_KEPT)
            if catches_up and one_loop:
                await self._deps.clock.sleep(CATCH_UP_EVERY_S)
            return look

    def _rank(self, board: PublishedBoard, address: str | None) -> int | None:
        found = None if address is None else self._ranks.find(board, address)
        return None if found is None else found[1]["pnl"]


def _concerns(news: News, address: str | None) -> bool:
    """Whether a stream for this agent, or for everything, gets this news. A refusal goes to its sender alone."""
    return news.address == address or (address is None and news.kind in {"counted", "withdrawn"})
