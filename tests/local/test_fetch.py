"""fetch: one exchange over real sockets, bounded in time and size, sent once."""

import asyncio
import gzip
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing

import pytest

from holdfast.errors import ObjectReset, UsageError
from holdfast.local.turns import GATE
from support.loopback import Request, http, serving
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.local.fetch import HttpFetch

Handler = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def fetching() -> AbstractAsyncContextManager[HttpFetch]:
    return aclosing(HttpFetch())


def responding(response: bytes) -> Handler:
    async def write(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        await writer.drain()

    return write


async def test_a_response_is_status_lower_case_headers_and_body() -> None:
    """Repeated headers are joined. The body is exactly the bytes that were sent."""
    raw = http(404, b"\0\xff", "X-RateLimit-Remaining: 7", "Vary: a", "VARY: b")
    async with serving(responding(raw)) as server, fetching() as fetch:
        response = await fetch(f"{server.url}/x")

    assert response.status == 404
    assert response.body == b"\0\xff"
    assert response.headers == {"content-length": "2", "x-ratelimit-remaining": "7", "vary": "a, b"}


async def test_a_request_is_sent_as_it_is() -> None:
    """Method, headers and body arrive. The URL is neither encoded again nor decoded."""
    async with serving(responding(http(200))) as server, fetching() as fetch:
        await fetch(
            f"{server.url}/tokens/SP1.t%3A%3Aa?q=a%2Bb+c", method="POST", headers={"X-Api-Key": "k"}, body=b"{}"
        )

    (request,) = server.requests
    assert request.line == "POST /tokens/SP1.t%3A%3Aa?q=a%2Bb+c HTTP/1.1"
    assert request.headers["x-api-key"] == "k"
    assert request.headers["user-agent"].startswith("tocsin/")
    assert request.body == b"{}"


async def test_connections_are_used_again_and_cookies_are_not() -> None:
    """Two exchanges in a row share one connection, and nothing else."""
    async with serving(responding(http(200, b"", "Set-Cookie: a=b"))) as server, fetching() as fetch:
        by_name = server.url.replace("127.0.0.1", "localhost")  # an IP address would have no cookies at all
        await fetch(by_name)
        await fetch(by_name)

    assert server.connections == 1
    assert "cookie" not in server.requests[1].headers


async def test_a_redirect_is_a_response() -> None:
    """It is not followed. The caller gets its location."""
    async with serving(responding(http(302, b"", "Location: /elsewhere"))) as server, fetching() as fetch:
        response = await fetch(server.url)

    assert (response.status, response.headers["location"]) == (302, "/elsewhere")
    assert len(server.requests) == 1


async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drip(_request: Request, writer: asyncio.StreamWriter) -> None:
    """With a byte every second, no single wait is long, but the whole is."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await asyncio.sleep(1)


@pytest.mark.parametrize("handler", [hang, drip])
async def test_the_time_limit_is_for_the_whole_exchange(handler: Handler) -> None:
    """No headers, or a body that only drips: both end at the caller's limit."""
    async with serving(handler) as server, fetching() as fetch:
        with pytest.raises(FetchTimeout, match=r"GET http://127.0.0.1:\d+/slow: .* within 3.5 s"):
            await fetch(f"{server.url}/slow?key=secret", timeout_s=3.5)

        assert 3.5 <= asyncio.get_running_loop().time() < 4.5


async def test_a_body_within_the_limit_is_whole_and_one_byte_more_is_refused() -> None:
    """The limit is exact, and the error has the URL without its query."""
    async with serving(responding(http(200, b"x" * 1000))) as server, fetching() as fetch:
        assert len((await fetch(server.url, body_max=1000)).body) == 1000
        with pytest.raises(FetchTooLarge, match=r"GET http://127.0.0.1:\d+/big: .* 999 bytes"):
            await fetch(f"{server.url}/big?key=secret", body_max=999)


async def test_a_body_that_is_too_large_leaves_status_headers_and_its_start() -> None:
    """So that an error whose page is large is still known as what it is."""
    async with serving(responding(http(429, b"busy" * 1000, "Retry-After: 7"))) as server, fetching() as fetch:
        with pytest.raises(FetchTooLarge) as refused:
            await fetch(server.url, body_max=999)

    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "7")
    assert refused.value.start.startswith(b"busybusy")


async def test_calls_that_hang_do_not_keep_another_from_leaving() -> None:
    """However many, and to the same host: a hundred jobs may hang."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await (responding(http(200)) if request.line.startswith("GET /quick") else hang)(request, writer)

    async with serving(answer) as server, fetching() as fetch:
        hanging = [asyncio.create_task(fetch(f"{server.url}/hang", timeout_s=60)) for _ in range(100)]
        await asyncio.sleep(1)
        assert (await fetch(f"{server.url}/quick", timeout_s=5)).status == 200
        ended = await asyncio.gather(*hanging, return_exceptions=True)

    assert (len(server.requests), {type(each) for each in ended}) == (101, {FetchTimeout})


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    """Reading stops at the limit."""

    async def endless(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with serving(endless) as server, fetching() as fetch:
        with pytest.raises(FetchTooLarge):
            await fetch(server.url, body_max=100_000)


async def test_a_compressed_body_is_decompressed_within_the_limit() -> None:
    """Gzip is requested and undone. The limit counts the decompressed bytes."""
    raw = http(200, gzip.compress(b"x" * 1000), "Content-Encoding: gzip")
    async with serving(responding(raw)) as server, fetching() as fetch:
        assert (await fetch(server.url, body_max=1000)).body == b"x" * 1000
        with pytest.raises(FetchTooLarge):
            await fetch(server.url, body_max=999)


@pytest.mark.slow
async def test_a_decompression_bomb_does_not_fill_the_memory() -> None:
    """100 MB that arrive as 100 kB are refused after the first MB."""
    raw = http(200, gzip.compress(bytes(100_000_000), 1), "Content-Encoding: gzip")
    async with serving(responding(raw)) as server, fetching() as fetch:
        tracemalloc.start()
        try:
            with pytest.raises(FetchTooLarge):
                await fetch(server.url, body_max=1_000_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 10_000_000


def cut(response: bytes) -> Handler:
    async def write(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        writer.close()

    return write


@pytest.mark.parametrize(
    "handler",
    [
        cut(b""),
        cut(b"HTTP/1.1 200 OK\r\nContent-Le"),
        cut(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"),
        cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"),
        responding(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n"),
        responding(b"SSH-2.0-OpenSSH\r\n\r\n"),
        responding(http(200, b"not gzip", "Content-Encoding: gzip")),
        responding(http(200, b"", f"X-Huge: {'x' * 100_000}")),
        responding(http(200, b"", *(f"X-{number}: {'x' * 1000}" for number in range(1000)))),
    ],
)
async def test_a_broken_response_is_a_failure_and_is_not_requested_again(handler: Handler) -> None:
    """Cut connections, other protocols, broken encodings and huge headers: one request and one error each."""
    async with serving(handler) as server, fetching() as fetch:
        with pytest.raises(FetchFailed, match=r"GET http://127.0.0.1:\d+/path: \w+") as caught:
            await fetch(f"{server.url}/path?key=secret", headers={"X-Api-Key": "secret"})

        assert len(server.requests) == 1
        assert "secret" not in str(caught.value)


async def test_a_connection_closed_by_the_server_is_not_retried_silently() -> None:
    """A reused connection that is cut is a failure: budgets count every request that is sent."""
    responses = [http(200), b""]

    async def once(_request: Request, writer: asyncio.StreamWriter) -> None:
        raw = responses.pop(0)
        writer.write(raw)
        if not raw:
            writer.close()

    async with serving(once) as server, fetching() as fetch:
        await fetch(server.url)
        with pytest.raises(FetchFailed):
            await fetch(server.url)

        assert len(server.requests) == 2


async def test_nobody_listening_is_a_failure() -> None:
    """A refused connection and an unknown host name."""
    async with serving(hang) as server:
        pass
    async with fetching() as fetch:
        with pytest.raises(FetchFailed, match=r"Connect call failed|refused"):
            await fetch(server.url)
        with pytest.raises(FetchFailed):
            await fetch("http://name.invalid/")


@pytest.mark.parametrize(
    "url", ["", "/path", "ftp://host/", "http://", "http://h/a b", "http://h/\r\nX: y", "http://h/é", "http://h:x/"]
)
async def test_a_url_that_cannot_be_sent_is_the_callers_mistake(url: str) -> None:
    """It is refused before anything is sent. No part of a URL can become a header."""
    async with fetching() as fetch:
        with pytest.raises(UsageError):
            await fetch(url)


async def test_a_header_cannot_contain_another() -> None:
    """A line end in a header's value is refused, and the message does not contain the value."""
    async with serving(hang) as server, fetching() as fetch:
        with pytest.raises(UsageError) as caught:
            await fetch(server.url, headers={"X-Api-Key": "secret\r\nX-Other: 1"})
        with pytest.raises(UsageError):
            await fetch(server.url, method="GET /other HTTP/1.1\r\n")

        assert "secret" not in str(caught.value)
        assert server.requests == []


async def test_a_cancelled_exchange_closes_its_connection() -> None:
    """The caller gets CancelledError, and the server sees the connection end."""
    left = asyncio.Event()
    asked = asyncio.Event()

    async def wait_for_end(_request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        try:
            while True:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            left.set()

    async with serving(wait_for_end) as server, fetching() as fetch:
        task = asyncio.create_task(fetch(server.url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await left.wait()


async def test_nothing_leaves_before_the_output_gate_opens() -> None:
    """An object that was reset sends nothing."""

    async def reset() -> None:
        raise ObjectReset("reset")

    async with serving(responding(http(200))) as server, fetching() as fetch:
        GATE.set(reset)
        with pytest.raises(ObjectReset):
            await fetch(server.url)
        GATE.set(None)

        assert server.requests == []


async def test_calls_that_hang_keep_no_other_waiting() -> None:
    """Seventy to the same host are under way when another is answered: the pool has no bound of its own."""
    release = asyncio.Event()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if "/hangs" in request.line:
            await release.wait()
        writer.write(http(200))
        await writer.drain()

    async with serving(answer) as server, fetching() as fetch:
        hanging = [asyncio.create_task(fetch(f"{server.url}/hangs")) for _ in range(70)]
        while len(server.requests) < 70:
            await asyncio.sleep(0)
        response = await fetch(f"{server.url}/answers")
        release.set()
        await asyncio.gather(*hanging)

    assert response.status == 200


async def test_a_closed_fetch_raises() -> None:
    """After close a call raises FetchFailed, like any other exchange without a response."""
    async with serving(responding(http(200))) as server:
        fetch = HttpFetch()
        await fetch(server.url)
        await fetch.aclose()
        with pytest.raises(FetchFailed, match="closed"):
            await fetch(server.url)
