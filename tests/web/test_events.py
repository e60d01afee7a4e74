"""Server-sent events: the scheduler's for operators, and news for everybody."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import START_MS
from holdfast.types import Database, DBResult, Statement
from support.asgi import serving
from support.competition_site import CompetitionSite
from support.world import ADMIN_KEY, SETTINGS, Tocsin, named_keys, tocsin_in
from tocsin.board.board import PublishedBoard, publish
from tocsin.board.news import newest_id, read_news, trim_news
from tocsin.board.publish import board_at
from tocsin.board.types import News
from tocsin.errors import RequestRefused
from tocsin.scheduler.types import SchedulerEvent
from tocsin.swaps import store as swap_store
from tocsin.web import events as news_streams
from tocsin.web.events import STREAMS_MAX, STREAMS_PER_CLIENT, EventStreams, NewsStreams
from tocsin.web.parameters import parameters, read_values, sent_text

EVENTS = "/api/competition/events"


async def opened(streams: NewsStreams, address: str = "", last_id: str = "") -> AsyncGenerator[bytes, None]:
    """The frames of a new stream, the first of which says how soon to come back."""
    headers = [(b"last-event-id", last_id.encode())] if last_id else []
    query = f"address={address}".encode() if address else b""
    request = Request(scope_of(query=query, headers=headers))
    response = await streams.show(request, **read_values(parameters(streams.show), partial(sent_text, request)))
    assert isinstance(response, StreamingResponse)
    frames = one_by_one(cast("AsyncGenerator[bytes, None]", response.body_iterator))
    assert await anext(frames) == b"retry: 3000\n\n"
    return frames


async def one_by_one(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The frames of a stream: those of one look come together."""
    async with aclosing(chunks):
        async for chunk in chunks:
            for frame in chunk.removesuffix(b"\n\n").split(b"\n\n"):
                yield frame + b"\n\n"


async def told(frames: AsyncGenerator[bytes, None], *but: str) -> Any:
    """The next piece of news, comments and news of a kind left out."""
    async for frame in frames:
        if not frame.startswith(b":"):
            lines = dict(line.split(": ", 1) for line in frame.decode().strip().split("\n"))
            news = json.loads(lines["data"])
            assert (lines["event"], lines["id"]) == (news["kind"], str(news["id"]))
            if news["kind"] not in but:
                return news
    return None


async def trade(made: CompetitionSite, wallet: int, kind: str = "simple") -> str:
    return (await made.trade(made.chain.wallets[wallet], kind)).tx_id


async def withdraw(db: Database, count: int) -> None:
    """Write so many news, of the transactions x1, x2 and so on."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    insert = f"INSERT INTO news (kind, txid, sender) {numbers} SELECT 'withdrawn', 'x' || i, 'y' FROM n"
    await db.prepare(insert).bind(count).run()


def scope_of(client: str = "127.0.0.1", query: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> Any:
    get = {"type": "http", "method": "GET", "path": EVENTS}
    return {**get, "query_string": query, "headers": headers, "client": (client, 1)}


async def test_a_counted_swap_is_told_to_all_and_a_refusal_to_its_agent(contest: CompetitionSite) -> None:
    """Within a second or two of the record."""
    streams = NewsStreams(contest.deps)
    own = contest.chain.wallets[1].address
    everything, mine = await opened(streams), await opened(streams, own)
    waiting = [asyncio.create_task(told(frames, "board")) for frames in (everything, mine)]
    await asyncio.sleep(2)
    began = contest.clock.now()
    first, refused = await trade(contest, 0), await trade(contest, 1, "abort_by_response")
    news, about_me = await asyncio.gather(*waiting)

    assert (news["kind"], news["txid"], news["trade"]["txid"]) == ("counted", first, first)
    assert (about_me["kind"], about_me["txid"], about_me["code"]) == ("refused", refused, "tx_failed")
    assert contest.clock.now() - began <= 2_000
    await everything.aclose()
    await mine.aclose()


async def test_a_refusal_is_not_told_to_everybody(contest: CompetitionSite) -> None:
    """Neither to a stream for everything nor to one of another agent; both hear what comes next."""
    streams, wallets = NewsStreams(contest.deps), contest.chain.wallets
    others = [await opened(streams), await opened(streams, wallets[0].address)]
    waiting = [asyncio.create_task(told(frames)) for frames in others]
    await asyncio.sleep(2)
    await trade(contest, 1, "abort_by_response")
    await asyncio.sleep(5)
    early = [task.done() for task in waiting]
    counted = await trade(contest, 0)
    heard = await asyncio.gather(*waiting)
    for frames in others:
        await frames.aclose()

    assert early == [False, False]
    assert [(news["kind"], news["txid"]) for news in heard] == [("counted", counted)] * 2


async def test_a_swap_that_moves_is_not_news_and_one_that_goes_is(contest: CompetitionSite) -> None:
    """Deleted and written again in one batch, as after a reorg: nothing; deleted: withdrawn."""
    txid = await trade(contest, 0)
    db = contest.world.db
    after = await newest_id(db)
    columns = [row["name"] for row in (await db.prepare("PRAGMA table_info(swaps)").all()).results]
    copy = ", ".join(columns)
    await db.batch(
        [
            db.prepare("CREATE TEMP TABLE moved AS SELECT * FROM swaps"),
            db.prepare("DELETE FROM swaps"),
            db.prepare(f"INSERT INTO swaps ({copy}) SELECT {copy} FROM moved"),
        ]
    )
    moved, next_id = await read_news(db, after)
    await db.prepare("DELETE FROM swaps").run()
    gone, _ = await read_news(db, next_id)

    assert moved == []
    assert [(news.kind, news.txid, news.trade) for news in gone] == [("withdrawn", txid, None)]


async def test_a_swap_that_does_not_count_any_more_is_withdrawn_and_its_agent_is_told_why(
    contest: CompetitionSite,
) -> None:
    """The dates of the competition changed; a swap counted only in between was never news to withdraw."""
    db = contest.world.db
    before = await newest_id(db)
    txid = await trade(contest, 0)
    after = await newest_id(db)
    [swap] = await contest.world.all("SELECT * FROM swaps")
    rules = replace(contest.world.rules, start_s=swap["burn_block_time"] + 1)
    outdated = await swap_store.outdated(db, rules, 10)
    await db.batch(swap_store.refuse(db, outdated, rules, contest.clock.now()))
    news, _ = await read_news(db, after)
    all_at_once, _ = await read_news(db, before)

    assert [(each.kind, each.txid, each.code) for each in news] == [
        ("refused", txid, "before_comp_start"),
        ("withdrawn", txid, None),
    ]
    assert [each.kind for each in all_at_once] == ["refused"]


async def test_who_comes_back_is_told_what_was_missed(contest: CompetitionSite) -> None:
    """From the number of the last event on, also by another process."""
    first = await newest_id(contest.world.db)
    txids = [await trade(contest, 0), await trade(contest, 1)]
    frames = await opened(NewsStreams(contest.deps), last_id=str(first))
    missed = [await told(frames), await told(frames)]
    await frames.aclose()

    assert [news["txid"] for news in missed] == txids


async def test_streams_that_catch_up_take_turns(contest: CompetitionSite) -> None:
    """Each from its own position: at most one look in 20 ms for all of them; one that is up to date does not wait."""
    await withdraw(contest.world.db, 150)
    streams, clock = NewsStreams(replace(contest.deps, in_one_loop=True)), contest.clock
    current = await opened(streams)
    behind = [await opened(streams, last_id=str(number)) for number in range(19)]
    began = clock.monotonic()
    reading = [asyncio.create_task(told(frames)) for frames in behind]
    newest = asyncio.create_task(told(current))
    await asyncio.sleep(0.1)
    early = sum(task.done() for task in reading)
    first = [(await task)["txid"] for task in reading]
    took = clock.monotonic() - began
    txid = await trade(contest, 0)
    heard = await newest
    for frames in (current, *behind):
        await frames.aclose()

    assert first == [f"x{number + 1}" for number in range(19)]
    assert 4 <= early <= 6
    assert took == pytest.approx(0.38, abs=0.05)
    assert (heard["txid"], clock.monotonic() - began < 2.5) == (txid, True)


async def test_an_agent_is_told_that_it_was_outranked(contest: CompetitionSite) -> None:
    """When a new board has it lower than the one before."""
    deps = contest.deps
    await trade(contest, 0)
    await trade(contest, 1)
    board = await board_at(deps.db, deps.kv, deps.clock.now(), deps.rules)
    best, second = board.rows
    await publish(deps.kv, board)
    frames = await opened(NewsStreams(deps), best.stx_address)
    begun = await told(frames)
    swapped = PublishedBoard(
        [
            replace(second, rank=1, pnl_usd=(best.pnl_usd or 0.0) + 1),
            replace(best, rank=2, pnl_usd=best.pnl_usd or 0.0),
        ],
        board.as_of + 1,
        board.prices_as_of,
        final=False,
    )
    await publish(deps.kv, swapped)
    published, outranked = await told(frames), await told(frames)
    await frames.aclose()

    assert (begun["kind"], begun["asOf"]) == ("board", board.as_of)
    assert (published["kind"], published["asOf"]) == ("board", board.as_of + 1)
    assert (outranked["kind"], outranked["previousRank"], outranked["rank"]) == ("outranked", 1, 2)


async def test_whatever_was_missed_is_told_however_much(contest: CompetitionSite) -> None:
    """More than one look reads: nothing is left out, nothing comes twice; a number from the future is the newest."""
    await withdraw(contest.world.db, 450)
    frames = await opened(NewsStreams(contest.deps), last_id="0")
    missed = [(await told(frames))["txid"] for _ in range(450)]
    await frames.aclose()
    ahead = await opened(NewsStreams(contest.deps), last_id="999999")
    waiting = asyncio.create_task(told(ahead))
    txid = await trade(contest, 0)

    assert missed == [f"x{number}" for number in range(1, 451)]
    assert (await waiting)["txid"] == txid
    await ahead.aclose()


async def test_streams_at_the_same_place_share_one_look(
    contest: CompetitionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten streams for ten seconds: about one query a second, not ten."""
    looks: list[int] = []

    async def counted(db: Database, after: int) -> tuple[list[News], int]:
        looks.append(after)
        return await read_news(db, after)

    monkeypatch.setattr(news_streams, "read_news", counted)
    streams = NewsStreams(replace(contest.deps, in_one_loop=True))
    waiting = [asyncio.create_task(told(await opened(streams))) for _ in range(10)]
    await asyncio.sleep(10)
    for each in waiting:
        each.cancel()

    assert 9 <= len(looks) <= 13


class Unreachable:
    """A database that does not answer."""

    def prepare(self, _sql: str) -> Statement:
        raise StoreUnavailable("not now")

    async def batch(self, _statements: Sequence[Any]) -> list[DBResult]:
        raise StoreUnavailable("not now")


class Client:
    """Reads a stream until it leaves."""

    def __init__(self, address: str) -> None:
        self.left = asyncio.Event()
        self.started = asyncio.Event()
        self.scope = scope_of(address)

    async def read(self, streams: NewsStreams) -> None:
        response = await streams.show(Request(self.scope))
        self.started.set()
        await response(self.scope, self._receive, self._send)

    async def _receive(self) -> dict[str, str]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, _message: Any) -> None:
        pass


async def ended(tasks: list["asyncio.Task[None]"]) -> list[BaseException | None]:
    return [result for result in await asyncio.gather(*tasks, return_exceptions=True) if result is not None]


@pytest.mark.parametrize(("addresses", "expected"), [(["192.0.2.1"], 20), ([f"192.0.2.{n}" for n in range(60)], 1_000)])
async def test_the_number_of_streams_is_bounded_also_at_once(
    contest: CompetitionSite, addresses: list[str], expected: int
) -> None:
    """Of one client, and of all; excess streams get a time to wait; closed ones make room."""
    streams = NewsStreams(contest.deps)
    clients = [Client(address) for address in addresses * (1_100 // len(addresses))]
    reading = [asyncio.create_task(client.read(streams)) for client in clients]
    await asyncio.sleep(0.5)
    opened_ones = [client for client in clients if client.started.is_set()]
    for client in clients:
        client.left.set()
    refused = await ended(reading)
    again = [Client(address) for address in addresses[:20]]
    reading = [asyncio.create_task(client.read(streams)) for client in again]
    await asyncio.sleep(0.5)
    for client in again:
        client.left.set()

    assert len(opened_ones) == expected
    assert len(refused) == len(clients) - expected
    assert {(error.status, error.code) for error in refused if isinstance(error, RequestRefused)} == {
        (429, "too_many_streams")
    }
    assert await ended(reading) == []
    assert all(client.started.is_set() for client in again)


async def test_one_ipv6_network_may_have_200_streams(contest: CompetitionSite) -> None:
    """Twenty for each /64, and ten times as many for all of a /48."""
    streams = NewsStreams(contest.deps)
    clients = [Client(f"2001:db8:7:{n % 30:x}::1") for n in range(300)] + [Client("2001:db8:8::1")]
    reading = [asyncio.create_task(client.read(streams)) for client in clients]
    await asyncio.sleep(0.5)
    opened_ones = [client.started.is_set() for client in clients]
    for client in clients:
        client.left.set()
    await ended(reading)

    assert opened_ones == [True] * 200 + [False] * 100 + [True]


async def test_when_all_streams_are_taken_the_largest_client_makes_room(
    contest: CompetitionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its oldest stream ends within a second; a client that has as many as the others is refused."""
    monkeypatch.setattr(news_streams, "NEWS_STREAMS_MAX", 12)
    streams = NewsStreams(contest.deps)
    many = [Client("192.0.2.1") for _ in range(8)]
    few = [Client("192.0.2.2") for _ in range(4)]
    new = [Client("192.0.2.3") for _ in range(9)]
    reading = []
    for client in [*many, *few, *new]:
        reading.append(asyncio.create_task(client.read(streams)))
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.1)
    ended_ones = [task.done() for task in reading]
    begun = [client.started.is_set() for client in new]
    for client in [*many, *few, *new]:
        client.left.set()
    refused = await ended(reading)

    assert begun == [True] * 4 + [False] * 5
    assert ended_ones == [True] * 4 + [False] * 4 + [False] * 4 + [False] * 4 + [True] * 5
    assert {error.code for error in refused if isinstance(error, RequestRefused)} == {"too_many_streams"}


async def test_a_client_that_leaves_before_the_first_frame_makes_room(contest: CompetitionSite) -> None:
    """Nothing of its stream has run then; a store that does not answer keeps no place either."""
    streams = NewsStreams(contest.deps)
    for _ in range(STREAMS_PER_CLIENT + 1):
        client = Client("192.0.2.1")
        client.left.set()
        await client.read(streams)
    broken = NewsStreams(replace(contest.deps, db=Unreachable()))
    for _ in range(STREAMS_PER_CLIENT + 1):
        with pytest.raises(StoreUnavailable):
            await Client("192.0.2.1").read(broken)


async def test_a_stream_ends_after_a_while_and_when_the_service_stops(contest: CompetitionSite) -> None:
    """400 checks; its client reconnects and continues."""
    frames = await opened(NewsStreams(contest.deps))
    began = contest.clock.monotonic()
    heartbeats = [frame async for frame in frames]
    lasted = contest.clock.monotonic() - began
    contest.deps.closing.set()
    closed = [frame async for frame in await opened(NewsStreams(contest.deps))]

    assert set(heartbeats) == {b": heartbeat\n\n"}
    assert len(heartbeats) == 400 // 15
    assert 390 <= lasted <= 410
    assert closed == []


async def test_the_news_are_trimmed(contest: CompetitionSite) -> None:
    """Ten thousand are kept, and numbers are never used again."""
    db = contest.world.db
    await withdraw(db, 10_050)
    trimmed = await trim_news(db)
    newest = await newest_id(db)
    await db.prepare("DELETE FROM news").run()
    await trade(contest, 0)

    assert trimmed == 50
    assert await newest_id(db) == newest + 1


async def test_the_route_is_public_and_checks_the_address(contest: CompetitionSite) -> None:
    """HEAD answers at once; a wrong address is 400."""
    wrong = await contest.get(f"{EVENTS}?address=SP1")

    assert (wrong.status, wrong.json()["code"]) == (400, "bad_request")


class Stream:
    """A client that reads a stream as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self) -> str:
        return (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()

    async def frame(self) -> str:
        """The next event or comment, without the framing of its chunk."""
        return (await self._chunk()).removesuffix("\n\n")

    async def rest(self) -> str:
        return (await self._reader.read()).decode()

    async def _chunk(self) -> str:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2)).decode()[:-2]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def stream(port: int, *headers: str) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = ["GET /api/admin/scheduler/events HTTP/1.1", "Host: x", f"X-Admin-Key: {ADMIN_KEY}", *headers, "", ""]
    writer.write("\r\n".join(head).encode())
    made = Stream(reader, writer)
    try:
        yield made
    finally:
        await made.close()


async def begun(client: Stream) -> None:
    """Read up to the first event."""
    head = await client.head()
    assert head.startswith("http/1.1 200")
    assert "content-type: text/event-stream" in head
    assert "cache-control: no-store" in head
    assert await client.frame() == "retry: 2000"


async def event_frames(client: Stream, until: str) -> list[str]:
    """Read up to an event with this name."""
    frames = [await client.frame()]
    while f"event: {until}\n" not in frames[-1]:
        frames.append(await client.frame())
    return frames


async def test_events_come_as_they_happen(tmp_path: Path) -> None:
    """Each with its number, its name and all of its fields, as the documented shape."""
    async with tocsin_in(tmp_path) as made, serving(made.app) as port, stream(port) as client:
        await begun(client)
        await made.client().refresh("rounds")
        first = await client.frame()
        *_, last = await event_frames(client, "run.ended")

        number = START_MS  # numbers begin with the time when the object was started
        assert first.startswith(f"id: {number}\nevent: run.started\ndata: {{")
        event = json.loads(first.partition("data: ")[2])
        assert event == {
            "seq": number,
            "at": made.clock.now(),
            "event": "run.started",
            "task": "rounds",
            "run": 1,
            "trigger": "refresh",
            "slotAt": None,
        }
        assert SchedulerEvent.from_json(event).to_json() == event
        assert int(last.split("\n")[0].removeprefix("id: ")) > number
        made.deps.closing.set()


async def test_a_reader_continues_where_it_was(tmp_path: Path) -> None:
    """By `Last-Event-ID`; without one, or with nonsense, it begins with the latest events."""
    async with tocsin_in(tmp_path) as made, serving(made.app) as port:
        await made.client().refresh("rounds")
        first, last = START_MS, (await made.client().events(0, 0)).next
        assert last > first
        for headers, expected in (((), first), ((f"Last-Event-ID: {last - 1}",), last), (("Last-Event-ID: x",), first)):
            async with stream(port, *headers) as client:
                await begun(client)
                assert (await client.frame()).startswith(f"id: {expected}\n")
        made.deps.closing.set()


@pytest.mark.slow
async def test_silence_has_a_heartbeat(tmp_path: Path) -> None:
    """Every 15 seconds, so that both ends notice a dead connection."""
    async with tocsin_in(tmp_path) as made, serving(made.app) as port, stream(port) as client:
        await begun(client)
        began_at = made.clock.now()

        assert await client.frame() == ": heartbeat"
        assert await client.frame() == ": heartbeat"
        assert made.clock.now() - began_at == pytest.approx(30_000, abs=100)
        made.deps.closing.set()


async def test_a_stream_outlives_the_object(tmp_path: Path) -> None:
    """A reset shows as a comment, and the next instance is asked for the same events."""
    async with tocsin_in(tmp_path) as made, serving(made.app) as port:
        async with stream(port) as client:
            await begun(client)
            await asyncio.sleep(1)
            made.scheduler.reset()
            assert await client.frame() == ": the scheduler is away"
            await made.client().refresh("rounds")
            assert (await event_frames(client, "run.ended"))[0].partition("\n")[2].startswith("event: run.started\n")
        assert made.log.named("events.interrupted")
        made.deps.closing.set()


async def test_streams_end_with_the_service(tmp_path: Path) -> None:
    """An open console does not delay a stop."""
    async with tocsin_in(tmp_path) as made, serving(made.app) as port, stream(port) as client:
        await begun(client)
        made.deps.closing.set()

        assert await client.rest() == "0\r\n\r\n"


@pytest.mark.slow
async def test_the_number_of_streams_is_bounded_and_closed_ones_do_not_count(tmp_path: Path) -> None:
    """One too many is refused; when a client disconnects, its place is free again."""
    async with tocsin_in(tmp_path) as made, serving(made.app) as port:
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(STREAMS_MAX)]
        streams = [Stream(reader, writer) for reader, writer in clients]
        request = f"GET /api/admin/scheduler/events HTTP/1.1\r\nHost: x\r\nX-Admin-Key: {ADMIN_KEY}\r\n\r\n"
        for (_, writer), client in zip(clients, streams, strict=True):
            writer.write(request.encode())
            await begun(client)
        async with stream(port) as extra:
            assert (await extra.head()).startswith("http/1.1 429")
        for client in streams:
            await client.close()
        for _ in range(3):  # heartbeats find out which clients have left
            await made.clock.sleep(16)
        async with stream(port) as again:
            await begun(again)
        made.deps.closing.set()


async def test_streams_that_are_opened_at_once_are_bounded_too(made: Tocsin) -> None:
    """A stream counts from its request on, not from its first event on."""
    streams = EventStreams(made.deps)
    for _ in range(16):
        streams.open(0, lambda: True, {})
    with pytest.raises(RequestRefused, match="16 event streams are open already"):
        streams.open(0, lambda: True, {})


async def test_a_stream_ends_when_its_key_is_removed(tmp_path: Path) -> None:
    """With the next event or heartbeat: a client whose key was removed sees no more."""
    async with tocsin_in(tmp_path) as made, serving(made.app) as port, stream(port) as client:
        await begun(client)
        await made.act("action=resume")
        assert "admin.acted" in (await event_frames(client, "admin.acted"))[-1]
        made.deps.in_force.settings = replace(SETTINGS, admin_key=named_keys("another-key-of-a-test"))
        await made.client().refresh("rounds")

        async with asyncio.timeout(60):
            assert "run.started" not in await client.rest()
