"""`GET /api/competition/events`: changes as server-sent events, for everybody.

Each stream looks for news once a second, from its last position. Streams at the same position share one look, so a
thousand streams cost one query a second. Streams that catch up, each from its own position, take turns. Nothing is
buffered for a stream that does not read. A stream ends after some
minutes, because an invocation on Cloudflare must end; the client reconnects and continues from its position. It also
ends when all places are taken, its client has most of them, and another client comes.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.client_places import Place, Places
from tocsin.competition.agent_view import BoardRanks
from tocsin.competition.news_reader import newest_id, read_news
from tocsin.competition.published_board import BoardReader, PublishedBoard
from tocsin.competition.trades import check_address
from tocsin.errors import BindingMissing, RequestRefused, StoreError
from tocsin.shapes.news import News
from tocsin.web.deps import WebDeps
from tocsin.web.event_streams import EventResponse
from tocsin.web.request_limits import CLIENTS_PER_SITE, networks_of
from tocsin.web.respond import json_bytes
from tocsin.web.shared_results import keep

LOOK_EVERY_S = 1.0
LOOKS_MAX = 400  # per stream; on Cloudflare each is two subrequests
LOOKS_KEPT = 4  # of at most 200 news
CATCH_UP_EVERY_S = 0.02  # for all streams together
SILENT_LOOKS = 15  # then a comment shows that the stream is alive
STREAMS_MAX = 1_000
STREAMS_PER_CLIENT = 20
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


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
        self._open = Places(STREAMS_MAX, STREAMS_PER_CLIENT, STREAMS_PER_CLIENT * CLIENTS_PER_SITE)
        self._published = BoardReader(deps.kv)
        self._ranks = BoardRanks()
        self._looking = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._looks: dict[int, _Look] = {}  # the newest ones, by their position

    async def show(self, request: Request) -> ASGIApp:
        address = request.query_params.get("address") or None
        if address is not None:
            check_address(address)
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type="text/event-stream")
        place = self._open.open(networks_of(request.scope))
        if place is None:
            sentence = "Too many streams are open: close one, or ask for the board every few seconds instead."
            headers = {"Retry-After": "30"}
            raise RequestRefused(429, "too_many_streams", sentence, retryable=True, headers=headers)
        try:
            newest = await newest_id(self._deps.db)
        except BaseException:
            self._open.closed(place)
            raise
        last = request.headers.get("last-event-id", "")
        known = last.isascii() and last.isdecimal() and len(last) <= 15
        after = min(int(last), newest) if known else newest
        return EventResponse(
            self._stream(address, after, newest, place), HEADERS, lambda: self._open.closed(place)
        )

    async def _stream(
        self, address: str | None, after: int, newest: int, place: Place
    ) -> AsyncGenerator[bytes, None]:
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
            frames = b"".join(map(_frame, told))
            del look, told  # a client that does not read keeps the frames only
            if frames:
                yield frames
            if silent == SILENT_LOOKS:
                silent = 0
                yield b": heartbeat\n\n"
            await self._deps.clock.sleep(LOOK_EVERY_S)

    async def _look(self, after: int, *, catches_up: bool) -> _Look:
        """The news after this number; shared with a stream that has just looked from the same position."""
        async with AsyncExitStack() as stack:
            if self._deps.in_one_loop:
                await stack.enter_async_context(self._catching_up if catches_up else self._looking)
            known, now_s = self._looks.get(after), self._deps.clock.monotonic()
            if known is not None and now_s - known.at_s < LOOK_EVERY_S / 2:
                return known
            news, following = await read_news(self._deps.db, after)
            look = _Look(now_s, news, following, await self._published.read())
            keep(self._looks, after, look, LOOKS_KEPT)
            if catches_up and self._deps.in_one_loop:
                await self._deps.clock.sleep(CATCH_UP_EVERY_S)
            return look

    def _rank(self, board: PublishedBoard, address: str | None) -> int | None:
        found = None if address is None else self._ranks.find(board, address)
        return None if found is None else found[1]["pnl"]


def _concerns(news: News, address: str | None) -> bool:
    """Whether a stream for this agent, or for everything, gets this news. A refusal goes to its sender alone."""
    return news.address == address or (address is None and news.kind in {"counted", "withdrawn"})


def _frame(news: News) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (news.id, news.kind.encode(), json_bytes(news.to_json()))
