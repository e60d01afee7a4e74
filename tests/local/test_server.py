"""The HTTP server over real connections: what a client may do, how many there may be, and how it stops."""

import asyncio
import json
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import StartError
from tocsin.local import server as http_protocol
from tocsin.local.server import Connections, HttpServer, authority, connections_max, listen, raise_descriptor_limit
from tocsin.web.limits import BUSY, STUCK, WAITING, Place, Use

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = GET.replace(b"/ ", b"/for/0.5 ", 1)
CHUNKED = b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
USES: dict[str, Use] = {"stuck": STUCK, "waits": WAITING, "busy": BUSY}
LARGE = b"x" * 16_000_000  # more than the two sockets hold
OK = b"HTTP/1.1 200 OK"
CLIENTS = 60  # as many as are accepted where a process may open 256 files
INFINITE = resource.RLIM_INFINITY


class App:
    """Answers at once, after a while or when it must stop, after the whole body, or at length."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, text = scope["path"], "fine"
        self.begun.append(path)
        if path == "/body":
            while (await receive()).get("more_body"):
                pass
        if path.startswith("/for/"):
            try:
                await asyncio.sleep(float(path.removeprefix("/for/")))
            except asyncio.CancelledError:
                self.ended.append(asyncio.get_running_loop().time())
                text = "cut off"
        await Response(LARGE if path == "/large" else text)(scope, receive, send)


@asynccontextmanager
async def server(total_max: int = 100, application: ASGIApp | None = None) -> AsyncIterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0)
    made.connections = Connections(total_max)
    await made.start(application or App())
    try:
        yield made
    finally:
        await made.stop()


async def connect(running: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", running.port)


@asynccontextmanager
async def connected(running: HttpServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await connect(running)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ask(running: HttpServer, request: bytes = GET) -> bytes:
    """Return the status line of the answer to a request on a new connection."""
    async with connected(running) as (reader, writer):
        writer.write(request)
        return (await asyncio.wait_for(reader.readline(), 5)).strip()


async def send_until_closed(running: HttpServer, first: bytes, piece: bytes, pieces: int) -> tuple[int, bytes]:
    """Return how many bytes of an endless request the server read, and what it answered."""
    reader, writer = await connect(running)
    writer.write(first)
    sent = 0
    try:
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    try:
        answer = await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        answer = b""
    writer.close()
    return sent, answer


@pytest.mark.parametrize(("chunk", "is_read"), [(b"1\r\n \r\n", False), (b"400\r\n" + b" " * 1_024 + b"\r\n", True)])
async def test_of_the_rest_of_a_body_only_usual_chunks_are_read(chunk: bytes, is_read: bool) -> None:
    """Its response is complete. Parsing millions of chunks of one byte would hold up everybody else."""
    async with server() as running:
        first = CHUNKED.replace(b"/body", b"/")
        sent, _ = await send_until_closed(running, first, chunk * (8_000 // len(chunk)), 3_000)

    assert (sent > 12_000_000) is is_read


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"GET / HTTP/1.1\r\n", b"x-a: b\r\n" * 1_000),
        (b"GET / HTTP/1.1\r\nx-long: ", b"a" * 8_000),
        (b"GET /", b"a" * 8_000),
    ],
)
async def test_a_head_without_end_is_refused(first: bytes, piece: bytes) -> None:
    """Whatever part is endless, little is read, and others are served."""
    async with server() as running:
        sent, answer = await send_until_closed(running, first, piece, 12_000)
        after = await ask(running)

    assert sent < 8_000_000  # what the two sockets hold; 96 MB were to be sent
    assert answer == b"" or json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "head_too_large"
    assert after == OK


@pytest.mark.parametrize(("size", "status"), [(65_536, b"200 OK"), (65_537, b"431 Request Header Fields Too Large")])
async def test_the_path_and_headers_may_have_64_kib_to_the_byte(size: int, status: bytes) -> None:
    """Only the path, the names and the values count; line breaks and the version do not."""
    path, name = b"/", b"x-a"
    value = b"a" * (size - len(path) - len(name))
    async with server() as running:
        assert await ask(running, b"GET / HTTP/1.1\r\nx-a: " + value + b"\r\n\r\n") == b"HTTP/1.1 " + status


async def test_an_open_head_may_have_64_kib_to_the_byte() -> None:
    """A head that has not ended is refused, with a sentence, with the first byte beyond the limit."""
    start = b"GET / HTTP/1.1\r\nx-a: "
    async with server() as running, connected(running) as (reader, writer):
        writer.write(start + b"a" * (65_536 - len(start)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        writer.write(b"a")
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert json.loads(body) == {
        "error": "The path and headers of a request may have 64 KiB together.",
        "code": "head_too_large",
        "retryable": False,
    }


async def test_a_large_body_is_not_a_head() -> None:
    """Nor is what follows it on the same connection."""
    async with server() as running, connected(running) as (reader, writer):
        post = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"b" * 300_000
        writer.write(post + post + GET)
        answers = []
        for _ in range(3):
            answers.append(await asyncio.wait_for(reader.readline(), 5))
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(4)

    assert answers == [b"HTTP/1.1 200 OK\r\n"] * 3


async def test_the_end_of_a_body_is_not_part_of_the_next_head() -> None:
    """Even if the head begins in the same piece."""
    async with server() as running, connected(running) as (reader, writer):
        writer.write(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(b"b" * 100_000 + GET[:20])
        await reader.readuntil(b"fine")
        writer.write(GET[20:])
        second = await asyncio.wait_for(reader.readuntil(b"fine"), 5)

    assert second.startswith(OK)


@pytest.mark.slow
async def test_silent_connections_make_room_for_requests() -> None:
    """The oldest idle one is closed; one with a request under way stays."""
    async with server(total_max=100) as running:
        busy = asyncio.create_task(ask(running, SLOW))
        await asyncio.sleep(0.05)
        silent = [await connect(running) for _ in range(300)]
        during = [await ask(running) for _ in range(20)]
        open_count = running.connections.count
        slow = await busy
        for _, writer in silent:
            writer.close()

    assert during == [OK] * 20
    assert slow == OK
    assert open_count <= 32  # one client's part
    assert running.connections.dropped >= 260


async def test_the_rest_of_a_body_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless body after its response is cut off, by size or by time."""
    monkeypatch.setattr(http_protocol, "DRAIN_S", 0.5)
    endless = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with server() as running:
        by_size, _ = await send_until_closed(running, endless, b"2000\r\n" + b"x" * 8192 + b"\r\n", 12_000)
        reader, writer = await connect(running)
        writer.write(endless)
        by_time = await asyncio.wait_for(reader.read(), 5)
        writer.close()

    assert by_size < 40_000_000  # of 98 MB; 16 MiB are taken, sockets hold some more
    assert by_time.startswith(OK)


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (CHUNKED + b"0\r\n", b"x-a: b\r\n" * 100),
        (CHUNKED + b"2\r\nok\r\n0\r\nx-long: ", b"a" * 800),
        (CHUNKED + b"2;", b"a" * 800),
        (CHUNKED + b"2\r\nok\r\n", (b"1;" + b"a" * 74 + b"\r\n \r\n") * 10),
        (GET, b"\r\n" * 400),
        (SLOW, b"\r\n" * 400),
        (b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n" + b"b" * 20_000 + GET, b"\r\n" * 400),
    ],
    ids=[
        "trailers",
        "a trailer",
        "an extension",
        "extensions",
        "blank lines",
        "blank lines while it waits",
        "after a body",
    ],
)
async def test_what_is_not_a_body_has_an_end(first: bytes, piece: bytes) -> None:
    """Only the body of a request may be long: everything else is cut off after 64 KiB, and others are served."""
    async with server() as running, connected(running) as (reader, writer):
        writer.write(first)
        await asyncio.sleep(0.1)
        for _ in range(100):  # 80,000 bytes
            writer.write(piece)
            await asyncio.sleep(0)
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 3)
        await asyncio.sleep(0.1)
        open_count = running.connections.count
        after = await ask(running)

    assert open_count == 0
    assert after == OK


async def test_a_body_may_come_in_chunks_of_one_byte_and_with_trailers() -> None:
    """Trailers are not headers of the request."""
    seen: list[tuple[int, list[bytes]]] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        seen.append((size, [name for name, _ in scope["headers"]]))
        await Response("fine")(scope, receive, send)

    async with server(application=application) as running, connected(running) as (reader, writer):
        for _ in range(2):
            writer.write(CHUNKED + b"1\r\nb\r\n" * 30_000 + b"0\r\nx-trailer: b\r\n\r\n")
            assert await reader.readuntil(b"fine")

    assert seen == [(30_000, [b"host", b"transfer-encoding"])] * 2


async def pipelined(running: HttpServer, count: int) -> bytes:
    """Return what a client gets that sends so many requests at once; the last ends the connection."""
    reader, writer = await connect(running)
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    writer.write(SLOW + GET * (count - 2) + last)
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_sixteen_requests_may_wait_for_their_turn() -> None:
    """One more cuts the connection, and none of those that wait is answered: the rest is not even read."""
    app = App()
    async with server(application=app) as running:
        fine = await pipelined(running, 17)
        in_turn = len(app.begun)
        too_many = [await pipelined(running, count) for count in (18, 5_000)]

    assert fine.count(OK) == in_turn == 17
    assert too_many == [b"", b""]
    assert app.begun[17:] in (["/for/0.5"] * 2, ["/for/0.5"], [])


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_cut_off() -> None:
    """After 30 seconds without progress; others are served meanwhile."""
    async with server() as running, connected(running) as (_, writer):
        writer.write(GET.replace(b"/ ", b"/large ", 1))
        await asyncio.sleep(29)
        before = running.connections.count
        during = await ask(running)
        await asyncio.sleep(3)
        after = running.connections.count

    assert (before, after) == (1, 0)
    assert during == OK


@pytest.mark.slow
async def test_a_few_bytes_that_nobody_takes_do_not_keep_a_connection() -> None:
    """The server closes it after the last response, and does not wait for them for ever."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * 40_000)(scope, receive, send)

    async with server(application=application) as running, connected(running) as (_, writer):
        assert running._server is not None
        [protocol] = running._server.server_state.connections
        while not protocol.transport.get_write_buffer_size():
            writer.write(GET)
            await asyncio.sleep(0.01)
        unsent = protocol.transport.get_write_buffer_size()
        await asyncio.sleep(20)
        before = running.connections.count
        await asyncio.sleep(30)
        after = running.connections.count

    assert 0 < unsent < 65_536
    assert (before, after) == (1, 0)


@pytest.mark.slow
async def test_a_client_that_reads_slowly_gets_everything() -> None:
    """However long it takes, as long as there is progress."""
    async with server() as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=1_000_000)
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received, began = 0, asyncio.get_running_loop().time()
        while not reader.at_eof():
            await asyncio.sleep(20)
            received += len(await reader.read(2_000_000))
        took = asyncio.get_running_loop().time() - began
        writer.close()

    assert received > 16_000_000
    assert took > 100


async def test_a_connection_whose_client_does_not_read_makes_room_first() -> None:
    """Before those that wait for a request, even if they have waited longer."""
    async with server(total_max=64) as running:
        idle = [await connect(running) for _ in range(31)]
        _, stuck = await connect(running)
        stuck.write(GET.replace(b"/ ", b"/large ", 1))
        await asyncio.sleep(0.2)
        fine = await ask(running)
        await asyncio.sleep(0.1)
        idle_ones = [reader.at_eof() for reader, _ in idle]
        for _, writer in [*idle, (None, stuck)]:
            writer.close()

    assert fine == OK
    assert running.connections.dropped == 1
    assert idle_ones == [False] * 31


@pytest.mark.parametrize("wait_s", [0, 4])
async def test_line_breaks_do_not_keep_a_connection_open(wait_s: float) -> None:
    """After a response, one line break or one every four seconds: closed like any silent connection."""
    async with server() as running, connected(running) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"fine")
        for _ in range(3):
            with suppress(ConnectionError):
                writer.write(b"\r\n")
            await asyncio.sleep(wait_s)
        rest = await asyncio.wait_for(reader.read(), 15)

    assert rest == b""


async def test_the_end_of_a_body_that_nobody_waits_for_does_not_keep_a_connection_open() -> None:
    """The response was sent before the body was complete; then nothing comes."""
    async with server() as running, connected(running) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        await reader.readuntil(b"fine")
        writer.write(b"cd")
        rest = await asyncio.wait_for(reader.read(), 15)

    assert rest == b""


async def test_a_body_may_take_its_time_behind_another_request() -> None:
    """The response to the request before it does not end the wait for it."""
    async with server() as running, connected(running) as (reader, writer):
        writer.write(SLOW + b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        first = await reader.readuntil(b"fine")
        await asyncio.sleep(8)
        writer.write(b"cd")
        second = await reader.readuntil(b"fine")

    assert first.startswith(OK)
    assert second.startswith(OK)


def test_a_reset_is_a_disconnect_for_the_request_that_is_answered() -> None:
    """Also when another one waits behind it: nothing is written to a closed connection, and nothing fails."""
    seen: list[str] = []

    async def application(_scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while (message := await receive())["type"] != "http.disconnect":
                pass
            await send({"type": "http.response.body", "body": b"late", "more_body": False})
        except Exception as error:  # noqa: BLE001 - whatever it is
            seen.append(repr(error))
        else:
            seen.append(message["type"])

    async def reset() -> None:
        async with server(application=application) as running:
            _, writer = await connect(running)
            writer.write(GET * 2)
            await asyncio.sleep(0.1)
            writer.transport.abort()
            async with asyncio.timeout(5):
                while not seen:
                    await asyncio.sleep(0.01)

    uvloop.run(reset())

    assert seen == ["http.disconnect"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["open", "busy", "waits", "stuck", "close"])), max_size=200),
    st.integers(8, 40),
)
def test_there_are_never_too_many_connections(steps: list[tuple[int, str]], total_max: int) -> None:
    """In total and per client, however they open and close; in the end nothing is remembered."""
    connections = Connections(total_max)
    connections.shares = (5, 5)
    alive: dict[int, tuple[int, Place, bool]] = {}
    numbers = count()

    def closer(number: int) -> Callable[[], None]:
        def close() -> None:
            del alive[number]

        return close

    for client, step in steps:
        mine = [number for number, (owner, _, _) in alive.items() if owner == client]
        if step == "open":
            number = next(numbers)
            place = connections.connect(f"192.0.2.{client}", closer(number))
            if place is not None:
                alive[number] = (client, place, True)
        elif mine:
            owner, place, _ = alive[mine[0]]
            if step == "close":
                connections.closed(place)
                del alive[mine[0]]
            else:
                connections.mark(place, USES[step])
                alive[mine[0]] = (owner, place, step == "waits")
        assert connections.count == len(alive) <= total_max
        assert all(sum(owner == c for owner, _, _ in alive.values()) <= 5 for c in range(6))
    for _, place, _ in list(alive.values()):
        connections.closed(place)
    assert (connections.count, connections._networks) == (0, {})


@pytest.mark.parametrize(("descriptors", "expected"), [(1_024, 768), (100, 64), (65_536, 10_000)])
def test_descriptors_are_left_for_the_stores(descriptors: int, expected: int) -> None:
    """256 of them."""
    assert connections_max(descriptors) == expected


class Open:
    """Connections by name, and which of them were closed to make room."""

    def __init__(self, total_max: int, *proxies: str) -> None:
        self.all = Connections(total_max, proxies)
        self.dropped: list[str] = []

    def open(self, name: str, host: str, *, busy: bool = False) -> Place | None:
        place = self.all.connect(host, self._closer(name))
        if place is not None and busy:
            self.all.mark(place, BUSY)
        return place

    def _closer(self, name: str) -> Callable[[], None]:
        return lambda: self.dropped.append(name)


def test_a_client_that_gives_up_its_own_connection_keeps_its_place() -> None:
    """All places are taken by one connection each: the client's own one is closed, and the new one counts."""
    made = Open(64)
    first = made.open("first", "192.0.2.1")
    for number in range(63):
        made.open("busy", f"198.51.100.{number}", busy=True)
    second = made.open("second", "192.0.2.1")

    assert first is not None
    assert second is not None
    assert (made.dropped, made.all.count, made.all.dropped) == (["first"], 64, 1)
    made.all.mark(second, BUSY)
    made.all.mark(second, WAITING)
    made.all.closed(second)
    assert made.all.count == 63


def test_a_client_that_is_refused_is_not_remembered() -> None:
    """However many come while all places are busy."""
    made = Open(64)
    for number in range(64):
        made.open("busy", f"198.51.100.{number}", busy=True)
    refused = [made.open("more", f"203.0.113.{number}") for number in range(200)]

    assert refused == [None] * 200
    assert (made.all.count, len(made.all._networks)) == (64, 64)


def test_who_has_most_connections_waiting_makes_room_the_longest_first() -> None:
    """Busy ones count for nothing: they are not dropped."""
    made = Open(64)
    for number in range(30):
        made.open(f"busy {number}", "192.0.2.1", busy=True)
    for number in range(20):
        made.open(f"waits {number}", "192.0.2.2")
    for number in range(14):
        made.open(f"few {number}", f"198.51.100.{number}")
    for number in range(3):
        made.open("new", f"203.0.113.{number}")

    assert made.dropped == ["waits 0", "waits 1", "waits 2"]
    assert made.all.count == 64


@pytest.mark.parametrize(("total_max", "expected"), [(64, 32), (128, 32), (132, 33), (1_020, 255), (10_000, 256)])
def test_one_client_may_have_a_quarter(total_max: int, expected: int) -> None:
    """At least 32, at most 256. One more replaces the one that is idle longest, or is refused if all are busy."""
    made = Open(total_max)
    places = [made.open(str(number), "192.0.2.1") for number in range(expected)]
    made.open("one more", "192.0.2.1")
    assert (made.dropped, made.all.count) == (["0"], expected)

    for place in places[1:]:
        assert place is not None
        made.all.mark(place, BUSY)
    made.open("and more", "192.0.2.1", busy=True)
    assert made.dropped == ["0", "one more"]
    assert made.open("too many", "192.0.2.1") is None
    assert made.open("another", "192.0.2.2") is not None


def test_a_connection_that_waits_again_waits_behind_the_others() -> None:
    """The one that has been idle longest is closed first."""
    made = Open(64)
    first = made.open("first", "192.0.2.1")
    for number in range(31):
        made.open(str(number), "192.0.2.1")
    assert first is not None
    made.all.mark(first, BUSY)
    made.all.mark(first, WAITING)
    made.open("one more", "192.0.2.1")

    assert made.dropped == ["0"]


def test_only_the_named_proxies_speak_for_many() -> None:
    """A host that is not an address is none of them."""
    made = Open(200, "10.0.0.0/8")
    proxy = [made.open("proxy", "10.1.2.3", busy=True) for _ in range(60)]
    other = [made.open("other", "11.1.2.3", busy=True) for _ in range(60)]
    odd = [made.open("odd", "unknown", busy=True) for _ in range(60)]

    assert [sum(place is not None for place in each) for each in (proxy, other, odd)] == [60, 50, 50]


def test_one_ipv6_network_may_have_twice_as_many() -> None:
    """Each /64 has its quarter, and all of one /48 together have two; then the oldest of them makes room."""
    made = Open(400)
    for number in range(250):
        made.open(str(number), f"2001:db8:7:{number % 5:x}::1")

    assert (made.all.count, made.dropped) == (200, [str(number) for number in range(50)])
    assert made.open("another /48", "2001:db8:8::1") is not None
    assert (made.all.count, len(made.dropped)) == (201, 50)


def test_who_does_not_read_makes_room_before_who_waits() -> None:
    """For the client itself and for others; the one that has not read for longest goes first."""
    made = Open(128)
    places = [made.open(str(number), "192.0.2.1") for number in range(32)]
    for number in (20, 10):
        place = places[number]
        assert place is not None
        made.all.mark(place, STUCK)
    made.open("own", "192.0.2.1")
    for number in range(96):
        made.open("other", f"198.51.100.{number}", busy=True)
    made.open("new", "203.0.113.1")
    made.open("newer", "203.0.113.2")

    assert made.dropped == ["20", "10", "0"]


def test_when_all_are_busy_the_oldest_of_who_has_most_makes_room() -> None:
    """But only for a client that has fewer, even with the new one."""
    made = Open(64)
    for number in range(32):
        made.open(f"many {number}", "192.0.2.1", busy=True)
    for number in range(32):
        made.open("one", f"198.51.100.{number}", busy=True)
    for _ in range(30):
        made.open("few", "203.0.113.7", busy=True)

    assert made.dropped == [f"many {number}" for number in range(16)]
    assert made.open("too many", "203.0.113.7") is None


@pytest.mark.parametrize(
    ("soft", "hard", "raised_to", "expected"),
    [
        (1_024, 1_048_576, 65_536, 65_536),
        (1_024, 4_096, 4_096, 4_096),
        (1_024, INFINITE, 65_536, 65_536),
        (4_096, 4_096, None, 4_096),
        (65_536, 1_048_576, None, 65_536),
        (100_000, 1_048_576, None, 100_000),
        (INFINITE, INFINITE, None, 65_536),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised_to: int | None, expected: int
) -> None:
    """To 65,536 or what the system allows; never lowered."""
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: changed.append(limits))

    assert raise_descriptor_limit() == expected
    assert changed == ([] if raised_to is None else [(raised_to, hard)])


def test_an_inherited_socket_says_where_it_listens() -> None:
    """Not the host and the port of the settings."""
    with listen("127.0.0.1", 0) as passed:
        port = passed.getsockname()[1]
        made = HttpServer("192.0.2.1", 1, inherited=[passed])

        assert (made.port, made.url) == (port, f"http://127.0.0.1:{port}")
        made.close()


async def test_a_server_that_never_started_can_be_stopped() -> None:
    """Its port is free again."""
    made = HttpServer("127.0.0.1", 0)
    await made.stop()
    with listen("127.0.0.1", made.port) as again:
        assert again.getsockname()[1] == made.port


def test_a_port_that_is_taken_is_named() -> None:
    """With the fix; the socket that failed is closed."""
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*; another port: --port"):
            listen("127.0.0.1", port)


@pytest.mark.skipif(sys.platform != "linux", reason="the open files are counted in /proc")
async def test_a_stopped_server_leaves_no_file_open() -> None:
    """Neither its sockets nor those of its clients."""

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    async with server() as running:
        _, writer = await connect(running)
        writer.write(GET)
        await asyncio.sleep(0.1)
        writer.close()
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)

    assert open_files() == before


async def stopped_while(path: str) -> tuple[bytes, float, list[float]]:
    """Return the answer to a request under way when the server stops, how long that took, and when it was cut off."""
    app, loop = App(), asyncio.get_running_loop()
    made = HttpServer("127.0.0.1", 0)
    await made.start(app)
    reader, writer = await connect(made)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await asyncio.sleep(0.2)
    began = loop.time()
    await made.stop()
    took = loop.time() - began
    answer = await reader.read()
    writer.close()
    return answer, took, [at - began for at in app.ended]


async def test_a_request_under_way_is_answered_before_the_end() -> None:
    """It has three seconds; its connection ends with it."""
    answer, took, cut_off = await stopped_while("/for/2.5")

    assert answer.endswith(b"fine")
    assert b"connection: close" in answer
    assert (2 < took < 3, cut_off) == (True, [])


async def test_a_request_that_takes_longer_is_cut_off_and_can_still_answer() -> None:
    """After three seconds it is cancelled; then it has another one."""
    answer, took, cut_off = await stopped_while("/for/60")

    assert answer.endswith(b"cut off")
    assert cut_off == [pytest.approx(3, abs=0.2)]
    assert took < 4


async def test_a_connection_that_waits_for_a_request_has_half_a_second_when_the_server_stops() -> None:
    """A request on its way is answered; a later one finds the connection closed."""
    answers = []
    for wait_s in (0.3, 0.8):
        made = HttpServer("127.0.0.1", 0)
        await made.start(App())
        reader, writer = await connect(made)
        writer.write(GET)
        await reader.readuntil(b"fine")
        stopping = asyncio.create_task(made.stop())
        await asyncio.sleep(wait_s)
        writer.write(GET)
        answers.append((await reader.read()).partition(b"\r\n")[0])
        writer.close()
        await stopping

    assert answers == [b"HTTP/1.1 200 OK", b""]


@pytest.mark.parametrize(("sent", "expected"), [(b"", None), (b"GET / HTTP/1.1\r\nHost: x\r\n", "head_too_slow")])
async def test_a_head_has_ten_seconds(sent: bytes, expected: str | None) -> None:
    """A client that sent a part of it gets an answer, one that sent nothing does not. A request ends the wait."""
    loop = asyncio.get_running_loop()
    async with server() as running, connected(running) as (reader, writer):
        began = loop.time()
        writer.write(sent)
        answer = await reader.read()
        took = loop.time() - began

    assert took == pytest.approx(10, abs=0.5)
    assert (json.loads(answer.partition(b"\r\n\r\n")[2])["code"] if answer else None) == expected


async def test_a_connection_is_kept_for_further_requests() -> None:
    """The wait for the first head ends with it: a second request eleven seconds later is answered."""
    async with server() as running, connected(running) as (reader, writer):
        writer.write(b"GET /for/11 HTTP/1.1\r\nHost: x\r\n\r\n")
        first = await reader.readuntil(b"fine")
        writer.write(GET)
        second = await reader.readuntil(b"fine")

    assert first.startswith(OK)
    assert second.startswith(OK)


def test_a_listening_socket_takes_many_connections_at_once() -> None:
    """A burst must not be refused by the system while the loop is busy for a moment."""
    with listen("127.0.0.1", 0) as listening:
        clients = []
        for _ in range(200):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
            clients.append(client)
        accepted = 0
        listening.settimeout(5)
        for _ in range(200):
            listening.accept()[0].close()
            accepted += 1
        for client in clients:
            client.close()

    assert accepted == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1:8787"),
        ("0.0.0.0", "127.0.0.1:8787"),
        ("::", "127.0.0.1:8787"),
        ("::1", "[::1]:8787"),
        ("2001:db8::7", "[2001:db8::7]:8787"),
        ("localhost", "localhost:8787"),
    ],
)
def test_the_address_can_be_opened_as_it_is(host: str, expected: str) -> None:
    """An IPv6 address has brackets in a URL. An address that means "all" is shown as this machine's own."""
    assert authority(host, 8787) == expected


def test_replies_are_sent_at_once() -> None:
    """The listener has the protocol TCP set: only then asyncio sends small writes without a delay."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_many_clients_that_come_at_once_are_accepted_together() -> None:
    """Libuv accepts one connection per loop iteration: under load, the last would wait for a second."""

    async def accepted() -> tuple[int, int]:
        server = HttpServer("127.0.0.1", 0, trusted_proxies=["127.0.0.1"])
        loop, looks = asyncio.get_running_loop(), 0

        def look() -> None:
            nonlocal looks
            looks += 1
            if server.connections.count < CLIENTS and looks < 10 * CLIENTS:
                loop.call_soon(look)

        with ExitStack() as stack:
            for _ in range(CLIENTS):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            await server.start(Response("fine"))
            look()
            while server.connections.count < CLIENTS and looks < 10 * CLIENTS:
                await asyncio.sleep(0)
            count = server.connections.count
        await server.stop()
        return count, looks

    count, looks = uvloop.run(accepted())

    assert count == CLIENTS
    assert looks < CLIENTS / 4
