"""What a client may do before it has sent a request: over real connections, and how they are counted."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tocsin.client_address import client_network
from tocsin.platform.local.http import http_protocol
from tocsin.platform.local.http.connections import Connections, Place, connections_max, raise_descriptor_limit
from tocsin.platform.local.http.http_server import HttpServer

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, after a while, or after the whole body."""
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    if scope["path"] == "/body":
        while (await receive()).get("more_body"):
            pass
    await Response("fine")(scope, receive, send)


@asynccontextmanager
async def server(total_max: int = 100) -> AsyncIterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0)
    made.connections = Connections(total_max)
    await made.start(app)
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


async def send_until_closed(
    running: HttpServer, first: bytes, piece: bytes, pieces: int
) -> tuple[int, bytes]:
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


@pytest.mark.parametrize(
    ("size", "status"), [(65_536, b"200 OK"), (65_537, b"431 Request Header Fields Too Large")]
)
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
            while await reader.readline() != b"\r\n":
                pass
            await reader.readexactly(4)
        writer.close()

    assert answers == [b"HTTP/1.1 200 OK\r\n"] * 3


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


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["open", "busy", "waits", "close"])), max_size=200),
    st.integers(8, 40),
)
def test_there_are_never_too_many_connections(steps: list[tuple[int, str]], total_max: int) -> None:
    """In total and per client, however they open and close; in the end nothing is remembered."""
    connections = Connections(total_max)
    connections.per_client_max = 5
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
            place = connections.open(f"192.0.2.{client}", closer(number))
            if place is not None:
                alive[number] = (client, place, True)
        elif mine:
            owner, place, _ = alive[mine[0]]
            if step == "close":
                connections.closed(place)
                del alive[mine[0]]
            else:
                (connections.busy if step == "busy" else connections.waits)(place)
                alive[mine[0]] = (owner, place, step == "waits")
        assert connections.count == len(alive) <= total_max
        assert all(sum(owner == c for owner, _, _ in alive.values()) <= 5 for c in range(6))
    for _, place, _ in list(alive.values()):
        connections.closed(place)
    assert (connections.count, connections._clients) == (0, {})


def test_a_trusted_proxy_may_have_all_connections() -> None:
    """It speaks for many clients."""
    connections = Connections(40, ["10.0.0.0/8"])
    for host in ["10.1.2.3"] * 40:
        place = connections.open(host, lambda: None)
        assert place is not None
        connections.busy(place)

    assert connections.open("10.1.2.3", lambda: None) is None


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
