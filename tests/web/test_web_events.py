"""The event stream, over a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.errors import ObjectReset
from support.scripted_scheduler import ADMIN_KEY, named_keys, scene
from support.web_server import serving
from tocsin.errors import RequestRefused
from tocsin.scheduler.types import SchedulerEvent
from tocsin.web.app import create_app
from tocsin.web.deps import Keys
from tocsin.web.events import STREAMS_MAX, EventStreams


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
    opened = Stream(reader, writer)
    try:
        yield opened
    finally:
        await opened.close()


async def opened(client: Stream) -> None:
    """Read up to the first event."""
    head = await client.head()
    assert head.startswith("http/1.1 200")
    assert "content-type: text/event-stream" in head
    assert "cache-control: no-store" in head
    assert await client.frame() == "retry: 2000"


async def test_events_come_as_they_happen(tmp_path: Path) -> None:
    """Each with its number, its name and all of its fields, as the documented shape."""
    async with scene(tmp_path) as made, serving(create_app(made.site)) as port, stream(port) as client:
        await opened(client)
        made.scheduler.emit("run.started", task="tenero")
        first = await client.frame()
        made.scheduler.emit("run.ended", task="tenero")
        second = await client.frame()

        assert first.startswith("id: 1\nevent: run.started\ndata: {")
        event = json.loads(first.partition("data: ")[2])
        assert event == {"seq": 1, "at": made.site.clock.now(), "event": "run.started", "task": "tenero"}
        assert SchedulerEvent.from_json(event) == made.scheduler.happened[0]
        assert second.startswith("id: 2\nevent: run.ended\n")
        made.site.closing.set()


async def test_a_reader_continues_where_it_was(tmp_path: Path) -> None:
    """By `Last-Event-ID`; without one, or with nonsense, it begins with the latest events."""
    async with scene(tmp_path) as made, serving(create_app(made.site)) as port:
        for number in range(3):
            made.scheduler.emit("run.progressed", done=number)
        for headers, expected in (((), 1), (("Last-Event-ID: 2",), 3), (("Last-Event-ID: x",), 1)):
            async with stream(port, *headers) as client:
                await opened(client)
                assert (await client.frame()).startswith(f"id: {expected}\n")
        made.site.closing.set()


@pytest.mark.slow
async def test_silence_has_a_heartbeat(tmp_path: Path) -> None:
    """So that both ends notice a dead connection."""
    async with scene(tmp_path) as made, serving(create_app(made.site)) as port, stream(port) as client:
        await opened(client)

        assert await client.frame() == ": heartbeat"
        assert await client.frame() == ": heartbeat"
        assert made.scheduler.calls[:2] == [("events", 0, 15_000), ("events", 0, 15_000)]
        made.site.closing.set()


async def test_a_stream_outlives_the_object(tmp_path: Path) -> None:
    """A reset shows as a comment, and the next instance is asked for the same events."""
    async with scene(tmp_path) as made, serving(create_app(made.site)) as port:
        made.scheduler.failing = ObjectReset("reset")
        async with stream(port) as client:
            await opened(client)
            assert await client.frame() == ": the scheduler is away"
            made.scheduler.failing = None
            made.scheduler.emit("alarm.armed")
            frames = [await client.frame() for _ in range(2)]
            assert any(frame.startswith("id: 1\nevent: alarm.armed") for frame in frames)
        assert made.log.named("events.interrupted")
        made.site.closing.set()


async def test_streams_end_with_the_service(tmp_path: Path) -> None:
    """An open console does not delay a stop."""
    async with scene(tmp_path) as made, serving(create_app(made.site)) as port, stream(port) as client:
        await opened(client)
        made.site.closing.set()

        assert await client.rest() == "0\r\n\r\n"


@pytest.mark.slow
async def test_the_number_of_streams_is_bounded_and_closed_ones_do_not_count(tmp_path: Path) -> None:
    """One too many is refused; when a client disconnects, its place is free again."""
    async with scene(tmp_path) as made, serving(create_app(made.site)) as port:
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(STREAMS_MAX)]
        streams = [Stream(reader, writer) for reader, writer in clients]
        request = f"GET /api/admin/scheduler/events HTTP/1.1\r\nHost: x\r\nX-Admin-Key: {ADMIN_KEY}\r\n\r\n"
        for (_, writer), client in zip(clients, streams, strict=True):
            writer.write(request.encode())
            await opened(client)
        async with stream(port) as extra:
            assert (await extra.head()).startswith("http/1.1 429")
        for client in streams:
            await client.close()
        for _ in range(3):  # heartbeats find out which clients have left
            await made.site.clock.sleep(16)
        async with stream(port) as again:
            await opened(again)
        made.site.closing.set()


async def test_streams_that_are_opened_at_once_are_bounded_too(tmp_path: Path) -> None:
    """A stream counts from its request on, not from its first event on."""
    async with scene(tmp_path) as made:
        streams = EventStreams(made.site)
        for _ in range(16):
            streams.open(0, lambda: True, {})
        with pytest.raises(RequestRefused, match="16 event streams are open already"):
            streams.open(0, lambda: True, {})


async def test_a_stream_ends_when_its_key_is_removed(tmp_path: Path) -> None:
    """With the next event or heartbeat: a client whose key was removed sees no more."""
    async with scene(tmp_path) as made, serving(create_app(made.site)) as port, stream(port) as opened:
        await opened.head()
        made.scheduler.emit("alarm.armed")
        assert "retry" in await opened.frame()
        assert "alarm.armed" in await opened.frame()
        made.site.in_force.keys = Keys(named_keys("another-key-of-a-test"))
        made.scheduler.emit("run.started", task="sweep")

        async with asyncio.timeout(60):
            assert "run.started" not in await opened.rest()
