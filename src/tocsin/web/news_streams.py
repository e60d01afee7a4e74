"""`GET /api/competition/events`: what changes, as server-sent events, for everybody.

One reader looks at the database once a second, while anybody watches, and passes what it finds to all streams: a
thousand of them cost a thousand sockets, not a thousand queries. A stream that does not read is closed.

Emits `news.reading_failed`.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.competition.agent_view import BoardRanks
from tocsin.competition.news_reader import newest_id, read_news
from tocsin.competition.published_board import BoardReader, PublishedBoard
from tocsin.competition.trades import check_address
from tocsin.errors import BindingMissing, RequestRefused, StoreError
from tocsin.shapes.news import News
from tocsin.web.deps import WebDeps
from tocsin.web.event_streams import EventResponse
from tocsin.web.request_limits import networks_of
from tocsin.web.respond import json_bytes

LOOK_EVERY_S = 1.0
HEARTBEAT_S = 15.0
STREAMS_MAX = 1_000
STREAMS_PER_CLIENT = 20
WAITING_MAX = 100  # pieces of news that a stream may be behind
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(slots=True, eq=False)
class _Watcher:
    """One open stream. None in its queue: it is closed."""

    client: str
    address: str | None
    news: "asyncio.Queue[News | None]" = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))


class NewsStreams:
    """All open streams of this process."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._watchers: set[_Watcher] = set()
        self._reading: asyncio.Task[None] | None = None
        self._published = BoardReader(deps.kv)
        self._ranks = BoardRanks()
        self._board: PublishedBoard | None = None
        self._after: int | None = None  # the newest piece of news that was told

    async def show(self, request: Request) -> ASGIApp:
        address = request.query_params.get("address") or None
        if address is not None:
            check_address(address)
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type="text/event-stream")
        client = networks_of(request.scope)[0]
        mine = sum(watcher.client == client for watcher in self._watchers)
        if len(self._watchers) >= STREAMS_MAX or mine >= STREAMS_PER_CLIENT:
            sentence = "Too many streams are open: close one, or ask for the board every few seconds instead."
            headers = {"Retry-After": "30"}
            raise RequestRefused(429, "too_many_streams", sentence, retryable=True, headers=headers)
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdecimal() and len(last) <= 15 else None
        return EventResponse(self._stream(client, address, after), HEADERS)

    async def _stream(
        self, client: str, address: str | None, after: int | None
    ) -> AsyncGenerator[bytes, None]:
        watcher = _Watcher(client, address)
        self._watchers.add(watcher)
        closing = asyncio.ensure_future(self._deps.closing.wait())
        try:
            yield b"retry: 3000\n\n"
            if after is not None:
                for news in (await read_news(self._deps.db, after))[0]:
                    if _concerns(news, address):
                        yield _frame(news)
            self._start_reading()
            while not closing.done():
                waiting = asyncio.ensure_future(watcher.news.get())
                done, _ = await asyncio.wait(
                    {waiting, closing}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if waiting not in done:
                    waiting.cancel()
                    yield b": heartbeat\n\n"
                    continue
                found = waiting.result()
                if found is None:
                    return
                yield _frame(found)
        finally:
            self._watchers.discard(watcher)
            closing.cancel()

    def _start_reading(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Look again and again while anybody watches."""
        self._after = self._board = None
        while self._watchers and not self._deps.closing.is_set():
            try:
                await self._look()
            except (StoreError, BindingMissing) as error:
                self._deps.logger.warn("news.reading_failed", error=str(error)[:300])
            await self._deps.clock.sleep(LOOK_EVERY_S)

    async def _look(self) -> None:
        after = await newest_id(self._deps.db) if self._after is None else self._after
        found, self._after = await read_news(self._deps.db, after)
        for news in found:
            self._tell(news)
        board = await self._published.read()
        if board is not None and board is not self._board:
            self._tell_ranks(self._board, board)
            self._board = board

    def _tell(self, news: News) -> None:
        """Pass news to those whom it concerns; to one who does not read, that it is over."""
        for watcher in list(self._watchers):
            if not _concerns(news, watcher.address):
                continue
            try:
                watcher.news.put_nowait(news)
            except asyncio.QueueFull:
                self._close(watcher)

    def _close(self, watcher: _Watcher) -> None:
        self._watchers.discard(watcher)
        while not watcher.news.empty():
            watcher.news.get_nowait()
        watcher.news.put_nowait(None)

    def _tell_ranks(self, before: PublishedBoard | None, board: PublishedBoard) -> None:
        watched = {watcher.address for watcher in self._watchers} - {None}
        previous = {} if before is None else {address: self._rank(before, address) for address in watched}
        last = self._after or 0
        self._tell(News(last, "board", as_of=board.as_of))
        for address, was in previous.items():
            rank = self._rank(board, address)
            if address is not None and was is not None and rank is not None and rank > was:
                self._tell(News(last, "outranked", address, rank=rank, previous_rank=was))

    def _rank(self, board: PublishedBoard, address: str | None) -> int | None:
        found = None if address is None else self._ranks.find(board, address)
        return None if found is None else found[1]["pnl"]


def _concerns(news: News, address: str | None) -> bool:
    """Whether somebody who watches this agent, or everything, is told. A refusal concerns its sender alone."""
    if news.kind == "board" or news.address == address:
        return True
    return address is None and news.kind in {"counted", "withdrawn"}


def _frame(news: News) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (news.id, news.kind.encode(), json_bytes(news.to_json()))
