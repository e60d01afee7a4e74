"""What a client may do before it has sent a request: over real connections, and how they are counted."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.local import server as http_protocol
from tocsin.local.server import Connections, HttpServer, connections_max, raise_descriptor_limit
from tocsin.web.limits import BUSY, STUCK, WAITING, Place, Use, client_network

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = GET.replace(b"/ ", b"/slow ", 1)
CHUNKED = b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
USES: dict[str, Use] = {"stuck": STUCK, "waits": WAITING, "busy": BUSY}
LARGE = b"x" * 16_000_000  # more than the two sockets hold


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, after a while, after the whole body, or at length."""
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    if scope["path"] == "/body":
        while (await receive()).get("more_body"):
            pass
    await Response(LARGE if scope["path"] == "/large" else "fine")(scope, receive, send)


@asynccontextmanager
async def server(total_max: int = 100, application: ASGIApp = app) -> AsyncIterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0)
    made.connections = Connections(total_max)
    await made.start(application)
    try:
        yield made
    finally:
        await made.stop()


async def connect(running: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", running.port)


async def ask(running: HttpServer, request: bytes = GET) -> bytes:
    """Return the status line of the answer to a request on a new connection."""
    reader, writer = await connect(running)
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    return line.strip()


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
    assert after == b"HTTP/1.1 200 OK"


async def test_a_large_head_in_one_piece_is_refused_with_a_sentence() -> None:
    """64 KiB are accepted, more are not."""
    async with server() as running:
        fine = await ask(running, b"GET / HTTP/1.1\r\nx-a: " + b"a" * 60_000 + b"\r\n\r\n")
        reader, writer = await connect(running)
        writer.write(b"GET / HTTP/1.1\r\nx-a: " + b"a" * 70_000 + b"\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()

    head, _, body = answer.partition(b"\r\n\r\n")
    assert fine == b"HTTP/1.1 200 OK"
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body) == {
        "error": "The path and headers of a request may have 64 KiB together.",
        "code": "head_too_large",
        "retryable": False,
    }


@pytest.mark.parametrize(("size", "status"), [(65_536, b"200 OK"), (65_537, b"431 Request Header Fields Too Large")])
async def test_the_path_and_headers_may_have_64_kib_to_the_byte(size: int, status: bytes) -> None:
    """Only the path, the names and the values count; line breaks and the version do not."""
    path, name = b"/", b"x-a"
    value = b"a" * (size - len(path) - len(name))
    async with server() as running:
        assert await ask(running, b"GET / HTTP/1.1\r\nx-a: " + value + b"\r\n\r\n") == b"HTTP/1.1 " + status


async def test_an_open_head_may_have_64_kib_to_the_byte() -> None:
    """A head that has not ended is refused with the first byte beyond the limit."""
    start = b"GET / HTTP/1.1\r\nx-a: "
    async with server() as running:
        reader, writer = await connect(running)
        writer.write(start + b"a" * (65_536 - len(start)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        writer.write(b"a")
        refused = await asyncio.wait_for(reader.readline(), 5)
        writer.close()

    assert refused == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


async def test_a_large_body_is_not_a_head() -> None:
    """Nor is what follows it on the same connection."""
    async with server() as running:
        reader, writer = await connect(running)
        post = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"b" * 300_000
        writer.write(post + post + GET)
        answers = []
        for _ in range(3):
            answers.append(await asyncio.wait_for(reader.readline(), 5))
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(4)
        writer.close()

    assert answers == [b"HTTP/1.1 200 OK\r\n"] * 3


async def test_the_end_of_a_body_is_not_part_of_the_next_head() -> None:
    """Even if the head begins in the same piece."""
    async with server() as running:
        reader, writer = await connect(running)
        writer.write(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(b"b" * 100_000 + GET[:20])
        await reader.readuntil(b"fine")
        writer.write(GET[20:])
        second = await asyncio.wait_for(reader.readuntil(b"fine"), 5)
        writer.close()

    assert second.startswith(b"HTTP/1.1 200 OK")


async def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sent nothing gets nothing; one that began a head gets an answer."""
    monkeypatch.setattr(http_protocol, "HEAD_WAIT_S", 0.2)
    async with server() as running:
        silent, writer_a = await connect(running)
        begun, writer_b = await connect(running)
        writer_b.write(b"GET / HTTP/1.1\r\nHost:")
        slow = asyncio.create_task(ask(running, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"))
        nothing = await asyncio.wait_for(silent.read(), 5)
        told = await asyncio.wait_for(begun.read(), 5)
        served = await slow
        writer_a.close()
        writer_b.close()

    assert nothing == b""
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"head_too_slow"' in told
    assert served == b"HTTP/1.1 200 OK"  # it takes longer than a head may


@pytest.mark.slow
async def test_silent_connections_make_room_for_requests() -> None:
    """The oldest idle one is closed; one with a request under way stays."""
    async with server(total_max=100) as running:
        busy = asyncio.create_task(ask(running, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"))
        await asyncio.sleep(0.05)
        silent = [await connect(running) for _ in range(300)]
        during = [await ask(running) for _ in range(20)]
        open_count = running.connections.count
        slow = await busy
        for _, writer in silent:
            writer.close()

    assert during == [b"HTTP/1.1 200 OK"] * 20
    assert slow == b"HTTP/1.1 200 OK"
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
    assert by_time.startswith(b"HTTP/1.1 200 OK")


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
    async with server() as running:
        reader, writer = await connect(running)
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
        writer.close()

    assert open_count == 0
    assert after == b"HTTP/1.1 200 OK"


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

    async with server(application=application) as running:
        reader, writer = await connect(running)
        for _ in range(2):
            writer.write(CHUNKED + b"1\r\nb\r\n" * 30_000 + b"0\r\nx-trailer: b\r\n\r\n")
            assert await reader.readuntil(b"fine")
        writer.close()

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
    begun: list[str] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        await app(scope, receive, send)

    async with server(application=application) as running:
        fine = await pipelined(running, 17)
        in_turn = len(begun)
        too_many = [await pipelined(running, count) for count in (18, 5_000)]

    assert fine.count(b"HTTP/1.1 200 OK") == in_turn == 17
    assert too_many == [b"", b""]
    assert begun[17:] in (["/slow"] * 2, ["/slow"], [])


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_cut_off() -> None:
    """After 30 seconds without progress; others are served meanwhile."""
    async with server() as running:
        _, writer = await connect(running)
        writer.write(GET.replace(b"/ ", b"/large ", 1))
        await asyncio.sleep(29)
        before = running.connections.count
        during = await ask(running)
        await asyncio.sleep(3)
        after = running.connections.count
        writer.close()

    assert (before, after) == (1, 0)
    assert during == b"HTTP/1.1 200 OK"


@pytest.mark.slow
async def test_a_few_bytes_that_nobody_takes_do_not_keep_a_connection() -> None:
    """The server closes it after the last response, and does not wait for them for ever."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * 40_000)(scope, receive, send)

    async with server(application=application) as running:
        _, writer = await connect(running)
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
        writer.close()

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

    assert fine == b"HTTP/1.1 200 OK"
    assert running.connections.dropped == 1
    assert idle_ones == [False] * 31


@pytest.mark.parametrize("wait_s", [0, 4])
async def test_line_breaks_do_not_keep_a_connection_open(wait_s: float) -> None:
    """After a response, one line break or one every four seconds: closed like any silent connection."""
    async with server() as running:
        reader, writer = await connect(running)
        writer.write(GET)
        await reader.readuntil(b"fine")
        for _ in range(3):
            with suppress(ConnectionError):
                writer.write(b"\r\n")
            await asyncio.sleep(wait_s)
        rest = await asyncio.wait_for(reader.read(), 15)
        writer.close()

    assert rest == b""


async def test_the_end_of_a_body_that_nobody_waits_for_does_not_keep_a_connection_open() -> None:
    """The response was sent before the body was complete; then nothing comes."""
    async with server() as running:
        reader, writer = await connect(running)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        await reader.readuntil(b"fine")
        writer.write(b"cd")
        rest = await asyncio.wait_for(reader.read(), 15)
        writer.close()

    assert rest == b""


async def test_a_body_may_take_its_time_behind_another_request() -> None:
    """The response to the request before it does not end the wait for it."""
    async with server() as running:
        reader, writer = await connect(running)
        writer.write(SLOW + b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        first = await reader.readuntil(b"fine")
        await asyncio.sleep(8)
        writer.write(b"cd")
        second = await reader.readuntil(b"fine")
        writer.close()

    assert first.startswith(b"HTTP/1.1 200 OK")
    assert second.startswith(b"HTTP/1.1 200 OK")


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


def test_a_trusted_proxy_may_have_all_connections() -> None:
    """It speaks for many clients."""
    connections = Connections(40, ["10.0.0.0/8"])
    for host in ["10.1.2.3"] * 40:
        place = connections.connect(host, lambda: None)
        assert place is not None
        connections.mark(place, BUSY)

    assert connections.connect("10.1.2.3", lambda: None) is None


@pytest.mark.parametrize(("descriptors", "expected"), [(1_024, 768), (100, 64), (65_536, 10_000)])
def test_descriptors_are_left_for_the_stores(descriptors: int, expected: int) -> None:
    """256 of them."""
    assert connections_max(descriptors) == expected


def test_the_limit_of_open_files_is_raised() -> None:
    """As far as the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert raise_descriptor_limit() >= (1_024 if hard == resource.RLIM_INFINITY else min(hard, 1_024))


@pytest.mark.parametrize(
    ("host", "prefix", "expected"),
    [
        ("192.0.2.7", 64, "192.0.2.7"),
        ("::ffff:192.0.2.7", 64, "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::/48"),
        ("unknown", 64, "unknown"),
    ],
)
def test_a_client_is_an_address_or_a_network(host: str, prefix: int, expected: str) -> None:
    """IPv4 written as IPv6 is the same client."""
    assert client_network(host, prefix) == expected
