"""fetch: one exchange over real sockets, bounded in time and size, sent once."""

import asyncio
import gzip
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from support.loopback import Request, http, serving
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge, ObjectReset, UsageError
from tocsin.platform.local.http.fetch import HttpFetch
from tocsin.platform.local.objects.output_gate import GATE

Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def fetching() -> AsyncIterator[HttpFetch]:
    fetch = HttpFetch()
    try:
        yield fetch
    finally:
        await fetch.close()


def saying(answer: bytes) -> Answer:
    async def write(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return write


async def test_an_answer_is_status_lower_case_headers_and_body() -> None:
    """Repeated headers are joined; the body is the bytes that came."""
    answer = http(404, b"\0\xff", "X-RateLimit-Remaining: 7", "Vary: a", "VARY: b")
    async with serving(saying(answer)) as server, fetching() as fetch:
        response = await fetch(f"{server.url}/x")

    assert response.status == 404
    assert response.body == b"\0\xff"
    assert response.headers == {"content-length": "2", "x-ratelimit-remaining": "7", "vary": "a, b"}


async def test_a_request_goes_out_as_it_was_given() -> None:
    """Method, headers and body arrive; the URL is not encoded again, nor decoded."""
    async with serving(saying(http(200))) as server, fetching() as fetch:
        await fetch(
            f"{server.url}/tokens/SP1.t%3A%3Aa?q=a%2Bb+c",
            method="POST",
            headers={"X-Api-Key": "k"},
            body=b"{}",
        )

    (request,) = server.requests
    assert request.line == "POST /tokens/SP1.t%3A%3Aa?q=a%2Bb+c HTTP/1.1"
    assert request.headers["x-api-key"] == "k"
    assert request.headers["user-agent"].startswith("tocsin/")
    assert request.body == b"{}"


async def test_connections_are_used_again_and_cookies_are_not() -> None:
    """Two exchanges in a row share one connection, and nothing else."""
    async with serving(saying(http(200, b"", "Set-Cookie: a=b"))) as server, fetching() as fetch:
        by_name = server.url.replace("127.0.0.1", "localhost")  # an address could not have cookies at all
        await fetch(by_name)
        await fetch(by_name)

    assert server.connections == 1
    assert "cookie" not in server.requests[1].headers


async def test_a_redirect_is_an_answer() -> None:
    """It is not followed: the caller sees where it leads."""
    async with serving(saying(http(302, b"", "Location: /elsewhere"))) as server, fetching() as fetch:
        response = await fetch(server.url)

    assert (response.status, response.headers["location"]) == (302, "/elsewhere")
    assert len(server.requests) == 1


async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drip(_request: Request, writer: asyncio.StreamWriter) -> None:
    """A byte every second: no single wait is long, the whole is."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await asyncio.sleep(1)


@pytest.mark.parametrize("answer", [hang, drip])
async def test_the_time_limit_is_for_the_whole_exchange(answer: Answer) -> None:
    """No headers, or a body that only drips: both end at the caller's limit."""
    async with serving(answer) as server, fetching() as fetch:
        with pytest.raises(FetchTimeout, match=r"GET http://127.0.0.1:\d+/slow: .* within 3.5 s"):
            await fetch(f"{server.url}/slow?key=secret", timeout_s=3.5)

        assert 3.5 <= asyncio.get_running_loop().time() < 4.5


async def test_a_body_within_the_limit_is_whole_and_one_byte_more_is_refused() -> None:
    """The limit is exact, and what is refused is named without its query."""
    async with serving(saying(http(200, b"x" * 1000))) as server, fetching() as fetch:
        assert len((await fetch(server.url, body_max=1000)).body) == 1000
        with pytest.raises(FetchTooLarge, match=r"GET http://127.0.0.1:\d+/big: .* 999 bytes"):
            await fetch(f"{server.url}/big?key=secret", body_max=999)


async def test_an_endless_body_is_given_up() -> None:
    """Reading stops at the limit; the rest is not waited for."""

    async def endless(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with serving(endless) as server, fetching() as fetch:
        with pytest.raises(FetchTooLarge):
            await fetch(server.url, body_max=100_000)


async def test_a_compressed_body_is_unfolded_within_the_limit() -> None:
    """Gzip is asked for and undone; the limit counts what comes out of it."""
    answer = http(200, gzip.compress(b"x" * 1000), "Content-Encoding: gzip")
    async with serving(saying(answer)) as server, fetching() as fetch:
        assert (await fetch(server.url, body_max=1000)).body == b"x" * 1000
        with pytest.raises(FetchTooLarge):
            await fetch(server.url, body_max=999)


async def test_a_bomb_does_not_fill_the_memory() -> None:
    """100 MB that came as 100 kB are refused after the first of them."""
    answer = http(200, gzip.compress(bytes(100_000_000), 1), "Content-Encoding: gzip")
    async with serving(saying(answer)) as server, fetching() as fetch:
        tracemalloc.start()
        try:
            with pytest.raises(FetchTooLarge):
                await fetch(server.url, body_max=1_000_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 10_000_000


def cut(answer: bytes) -> Answer:
    async def write(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    return write


@pytest.mark.parametrize(
    "answer",
    [
        cut(b""),
        cut(b"HTTP/1.1 200 OK\r\nContent-Le"),
        cut(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"),
        cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"),
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n"),
        saying(b"SSH-2.0-OpenSSH\r\n\r\n"),
        saying(http(200, b"not gzip", "Content-Encoding: gzip")),
        saying(http(200, b"", f"X-Huge: {'x' * 100_000}")),
        saying(http(200, b"", *(f"X-{number}: {'x' * 1000}" for number in range(1000)))),
    ],
)
async def test_a_broken_answer_is_a_failure_and_is_not_asked_for_again(answer: Answer) -> None:
    """Cut connections, foreign protocols, broken encodings and huge headers: one request each, one error."""
    async with serving(answer) as server, fetching() as fetch:
        with pytest.raises(FetchFailed, match=r"GET http://127.0.0.1:\d+/path: \w+") as caught:
            await fetch(f"{server.url}/path?key=secret", headers={"X-Api-Key": "secret"})

        assert len(server.requests) == 1
        assert "secret" not in str(caught.value)


async def test_a_connection_left_by_the_server_is_not_retried_in_secret() -> None:
    """A kept connection that is cut on its second use is a failure: budgets count every request sent."""
    answers = [http(200), b""]

    async def once(_request: Request, writer: asyncio.StreamWriter) -> None:
        answer = answers.pop(0)
        writer.write(answer)
        if not answer:
            writer.close()

    async with serving(once) as server, fetching() as fetch:
        await fetch(server.url)
        with pytest.raises(FetchFailed):
            await fetch(server.url)

        assert len(server.requests) == 2


async def test_nobody_listening_is_a_failure() -> None:
    """A refused connection and an unknown name say so."""
    async with serving(hang) as server:
        pass
    async with fetching() as fetch:
        with pytest.raises(FetchFailed, match=r"Connect call failed|refused"):
            await fetch(server.url)
        with pytest.raises(FetchFailed):
            await fetch("http://name.invalid/")


@pytest.mark.parametrize(
    "url",
    ["", "/path", "ftp://host/", "http://", "http://h/a b", "http://h/\r\nX: y", "http://h/é", "http://h:x/"],
)
async def test_a_url_that_cannot_be_sent_is_the_callers_mistake(url: str) -> None:
    """It is refused before anything is sent; nothing in a URL can reach the header lines."""
    async with fetching() as fetch:
        with pytest.raises(UsageError):
            await fetch(url)


async def test_a_header_cannot_carry_another() -> None:
    """A line end in a header's value is refused, and the message does not repeat the value."""
    async with serving(hang) as server, fetching() as fetch:
        with pytest.raises(UsageError) as caught:
            await fetch(server.url, headers={"X-Api-Key": "secret\r\nX-Other: 1"})
        with pytest.raises(UsageError):
            await fetch(server.url, method="GET /other HTTP/1.1\r\n")

        assert "secret" not in str(caught.value)
        assert server.requests == []


async def test_a_cancelled_exchange_hangs_up() -> None:
    """The caller's cancellation goes through as such, and the server sees the connection end."""
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

    async with serving(saying(http(200))) as server, fetching() as fetch:
        GATE.set(reset)
        with pytest.raises(ObjectReset):
            await fetch(server.url)
        GATE.set(None)

        assert server.requests == []


async def test_a_closed_fetch_says_so() -> None:
    """After close a call fails as any other exchange without an answer."""
    async with serving(saying(http(200))) as server:
        fetch = HttpFetch()
        await fetch(server.url)
        await fetch.close()
        with pytest.raises(FetchFailed, match="closed"):
            await fetch(server.url)


def test_importing_the_module_is_cheap() -> None:
    """Aiohttp is loaded by the first call, not by the import."""
    code = "import sys; import tocsin.platform.local.http.fetch; sys.exit('aiohttp' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
