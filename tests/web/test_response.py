"""Responses: compression, revalidation, HTTPS only, and sending one in a single call."""

import asyncio
import gzip
import random
import re
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from support.asgi import Answer, open_server
from support.world import Tocsin, tocsin_in
from tocsin.local.server import HttpServer
from tocsin.web.deps import Process
from tocsin.web.response import SEND_COMPLETE, PreparedResponse, accepts_gzip, static_headers

GZIP = {"accept-encoding": "gzip, deflate, br"}


def unzipped(answer: Answer) -> bytes:
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-length"] == str(len(answer.body))
    return gzip.decompress(answer.body)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/openapi.json", "/api/docs", "/api/competition/allowlist", "/leaderboard"])
async def test_what_is_large_is_compressed_for_those_who_accept_it(path: str, tmp_path: Path) -> None:
    async with tocsin_in(tmp_path, process=Process(compress=True)) as made:
        plain, zipped = await made.ask(path), await made.ask(path, headers=GZIP)

    assert "content-encoding" not in plain.headers
    assert unzipped(zipped) == plain.body
    assert len(zipped.body) < len(plain.body) / 2
    assert plain.headers["vary"].lower() == zipped.headers["vary"].lower() == "accept-encoding"


async def test_what_fits_into_a_packet_is_not(tmp_path: Path) -> None:
    async with tocsin_in(tmp_path, process=Process(compress=True)) as made:
        for path in ("/healthz", "/api/prices", "/nothing"):
            assert "content-encoding" not in (await made.ask(path, headers=GZIP)).headers


@pytest.mark.slow
async def test_where_the_platform_compresses_we_do_not(made: Tocsin) -> None:
    """Cloudflare does it at its edge, and would pay for ours with the Worker's time."""
    answer = await made.ask("/openapi.json", headers=GZIP)

    assert "content-encoding" not in answer.headers


def test_a_prepared_response_keeps_its_body_only_as_long_as_it_lives() -> None:
    """Every new board is another body: hundreds of them must not stay in memory."""
    tracemalloc.start()
    try:
        for number in range(100):
            body = random.Random(number).randbytes(100_000)
            PreparedResponse(body, "text/plain", compress=True).form_for([(b"accept-encoding", b"gzip")])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 2_000_000


def large(**options: bool) -> PreparedResponse:
    return PreparedResponse(b"x" * 5_000, "text/plain", compress=options.get("compress", True))


def headers_of(response: PreparedResponse, **headers: str) -> tuple[int, dict[bytes, bytes]]:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    start = response.form_for(sent).start
    return start["status"], dict(start["headers"])


def test_both_forms_are_revalidated_by_either_etag() -> None:
    """They are the same content: the ETag of the compressed form is the weak one."""
    response = large()
    _, plain = headers_of(response)
    _, zipped = headers_of(response, accept_encoding="gzip")

    assert zipped[b"etag"] == b"W/" + plain[b"etag"]
    for etag in (plain[b"etag"], zipped[b"etag"]):
        for encoding, expected in (("gzip", zipped[b"etag"]), ("identity", plain[b"etag"])):
            status, headers = headers_of(response, if_none_match=etag.decode(), accept_encoding=encoding)
            assert (status, headers[b"etag"], headers[b"vary"]) == (304, expected, b"accept-encoding")
            assert b"content-encoding" not in headers


def test_it_is_compressed_once() -> None:
    response = large()
    first, second = (response.form_for([(b"accept-encoding", b"gzip")]) for _ in range(2))

    assert first is second
    assert gzip.decompress(first.body["body"]) == b"x" * 5_000


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (b"gzip", True),
        (b"deflate, gzip;q=0.5, br", True),
        (b"GZIP", True),
        (b"*", True),
        (b"*;q=0, gzip", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.0, *", False),
        (b"identity", False),
        (b"x-gzip", False),
        (b"gzip;q=nonsense", False),
        (b"", False),
        (b"\xff\xfe", False),
    ],
)
def test_accept_encoding_is_read_by_its_rules(header: bytes, *, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


YEAR = "max-age=31536000"
PATHS = ("/api/prices", "/api/prices", "/healthz", "/leaderboard", "/nothing")  # the second one is cached


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proxies", "proto", "expected"),
    [
        (["127.0.0.0/8"], "https", YEAR),
        (["127.0.0.0/8"], "http", None),
        (["127.0.0.0/8"], None, None),
        (["10.0.0.0/8"], "https", None),
        ([], "https", None),
    ],
)
async def test_it_is_sent_over_https_only(
    tmp_path: Path, proxies: list[str], proto: str | None, expected: str | None
) -> None:
    """On every kind of response, cached prices and errors too; a client that is no proxy cannot ask for it."""

    def visit(port: int) -> list[str | None]:
        with closing(HTTPConnection("127.0.0.1", port)) as client:
            found = []
            for path in PATHS:
                client.request("GET", path, headers={} if proto is None else {"X-Forwarded-Proto": proto})
                response = client.getresponse()
                response.read()
                found.append(response.headers["strict-transport-security"])
            return found

    async with tocsin_in(tmp_path) as made, open_server(made.app, *proxies) as server:
        found = await asyncio.to_thread(visit, server.port)

    assert found == [expected] * len(PATHS)


def test_cloudflare_sends_it_with_every_file() -> None:
    """Those files do not pass the application."""
    rules = static_headers().split("\n/")

    assert all("strict-transport-security: max-age=31536000" in rule for rule in rules)


GET = b"GET /api/prices HTTP/1.1\r\nHost: x\r\n"
DATE = re.compile(rb"date: [^\r]+\r\n")


@asynccontextmanager
async def served(directory: Path, *, offered: bool = True) -> AsyncIterator[tuple[HttpServer, list[bool]]]:
    """The app on a real server, and for each response whether it was sent in one write."""
    at_once: list[bool] = []
    async with tocsin_in(directory) as made:
        site = made.with_deps(in_one_loop=True)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            extension = scope["extensions"].pop(SEND_COMPLETE)

            def noted(status: int, content: bytes) -> bool:
                at_once.append(extension(status, content))
                return at_once[-1]

            if offered:
                scope["extensions"][SEND_COMPLETE] = noted
            await site(scope, receive, send)

        async with open_server(app) as server:
            yield server, at_once


async def exchange(server: HttpServer, *requests: bytes) -> bytes:
    """Return everything that one connection gets for these requests, sent at once; the last one ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"".join(requests))
    everything = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return DATE.sub(b"", everything)


REQUESTS = [
    [GET + b"\r\n"],
    [GET + b"\r\n"] * 5,
    [GET + b"\r\n", b"HEAD /api/prices HTTP/1.1\r\nHost: x\r\n\r\n", GET + b"\r\n"],
    [GET + b"\r\n", b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", GET + b"\r\n"],
    [GET + b"If-None-Match: *\r\n\r\n", GET + b"\r\n"],
    [GET + b"Content-Length: 3\r\n\r\nabc", GET + b"\r\n"],
]


@pytest.mark.slow
@pytest.mark.parametrize("requests", REQUESTS, ids=range(len(REQUESTS)))
async def test_the_bytes_are_the_same(requests: list[bytes], tmp_path: Path) -> None:
    """Even for several requests on one connection, sent before the first response arrived."""
    last = GET + b"Connection: close\r\n\r\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with served(tmp_path / "a") as (server, at_once):
        await exchange(server, last)  # so that it is cached
        got = await exchange(server, *requests, last)
    async with served(tmp_path / "b", offered=False) as (server, _):
        await exchange(server, last)
        usual = await exchange(server, *requests, last)

    assert got == usual
    assert got.count(b"HTTP/1.1 ") == len(requests) + 1
    assert any(at_once)
    assert not at_once[-1]  # the last response must say that the connection ends


async def test_an_old_client_gets_the_usual_messages(tmp_path: Path) -> None:
    """HTTP/1.0 has no persistent connections."""
    async with served(tmp_path) as (server, at_once):
        await exchange(server, GET + b"Connection: close\r\n\r\n")
        got = await exchange(server, b"GET /api/prices HTTP/1.0\r\n\r\n")

    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert at_once == [False]
