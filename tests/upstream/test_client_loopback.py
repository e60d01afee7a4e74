"""The client over real HTTP on 127.0.0.1, through the local platform's fetch."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.examples import SWAP, TXID
from support.scripted_fetch import example_response
from support.upstreams import read_transaction
from tocsin.fetch import FetchResponse
from tocsin.stacks import Transaction
from tocsin.upstream.answer import Answer, Malformed, Ok, Unavailable
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.hiro import hiro_upstream
from tocsin.upstream.limiter import BudgetLimiter, request_session, restored_budget

local_fetch = pytest.importorskip("tocsin.local.fetch")

Reply = Callable[[asyncio.StreamWriter], None]


def whole(answer: FetchResponse) -> Reply:
    """A complete HTTP answer."""

    def write(writer: asyncio.StreamWriter) -> None:
        fields = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        head = f"HTTP/1.1 {answer.status} X\r\n{fields}content-length: {len(answer.body)}\r\n\r\n"
        writer.write(head.encode() + answer.body)

    return write


def cut(writer: asyncio.StreamWriter) -> None:
    """Half of an answer, then nothing."""
    writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n{")
    writer.close()


def endless(writer: asyncio.StreamWriter) -> None:
    """More than the client takes."""
    writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 104857600\r\n\r\n" + b" " * (5 * 1024 * 1024))


def silent(_writer: asyncio.StreamWriter) -> None:
    """No answer at all."""


@asynccontextmanager
async def upstream(*replies: Reply) -> AsyncIterator[tuple[UpstreamClient, CapturedLog, list[str]]]:
    """A server that gives these replies in turn, and a client of it."""
    asked: list[str] = []
    turn = iter(replies)
    handlers: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                asked.append(request.decode())
                next(turn)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    clock, log, random = VirtualClock(), CapturedLog(), Random(1).random
    budget = restored_budget(Quota(second=50), None, clock)
    limiter = BudgetLimiter("hiro", budget, clock, random, log, lambda _: None)
    fetch: Any = local_fetch.HttpFetch()
    try:
        yield UpstreamClient(hiro_upstream(url, "s3cret"), fetch, limiter, clock, random), log, asked
    finally:
        await fetch.close()
        server.close()
        await asyncio.gather(*(handler for handler in handlers if handler is not None))


FINE = whole(example_response("hiro/swap_simple_synthetic", x_ratelimit_limit_stacks_minute="500"))


async def ask(client: UpstreamClient, log: CapturedLog) -> Answer[Transaction]:
    return await client.get(f"/extended/v3/transactions/{TXID}", read_transaction, request_session(log))


async def test_a_real_answer_is_read() -> None:
    """Headers and body travel; the key is in its header."""
    async with upstream(FINE) as (client, _, asked):
        assert await ask(client, CapturedLog()) == Ok(SWAP)
        assert client.limits.minute.limit == 500
    assert f"GET /extended/v3/transactions/{TXID} HTTP/1.1" in asked[0]
    assert "x-api-key: s3cret" in asked[0].lower()


async def test_a_cut_connection_is_retried() -> None:
    """Half an answer is not an answer."""
    async with upstream(cut, FINE) as (client, log, _):
        assert await ask(client, log) == Ok(SWAP)
    assert [line.fields["answer"] for line in log.of("upstream.attempt_failed")] == ["unavailable"]


async def test_a_silent_server_is_left_after_eight_seconds() -> None:
    """The attempt's own timeout ends it; a visitor does not wait for another."""
    async with upstream(silent) as (client, log, _):
        assert isinstance(await ask(client, log), Unavailable)
    assert "FetchTimeout" in log.of("upstream.attempt_failed")[0].fields["reason"]


async def test_an_endless_body_is_not_read() -> None:
    """Beyond the cap the connection is dropped."""
    async with upstream(endless) as (client, log, _):
        assert isinstance(await ask(client, log), Malformed)


async def test_a_closed_port_is_unavailable() -> None:
    """No server listens there."""
    async with upstream() as (client, log, _):
        client._base = "http://127.0.0.1:9"
        assert isinstance(await ask(client, log), Unavailable)
