"""Servers on 127.0.0.1 with responses from a test: complete HTTP exchanges, or any bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Request:
    """One request, as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Loopback:
    """The server's URL, and the requests it got."""

    url: str
    requests: list[Request] = field(default_factory=list)
    connections: int = 0


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    line, *fields = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    return Request(line, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@asynccontextmanager
async def serving(respond: Callable[[Request, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[Loopback]:
    """Read requests one after the other on each connection, and let `respond` write any bytes."""
    loopback = Loopback("")
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loopback.connections += 1
        try:
            while (request := await read_request(reader)) is not None and not writer.is_closing():
                loopback.requests.append(request)
                await respond(request, writer)
        except ConnectionError:
            pass  # the client has disconnected, as some tests require
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        handlers.add(task)
        task.add_done_callback(handlers.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    loopback.url = f"http://{host}:{port}"
    try:
        yield loopback
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


def http(status: int, body: bytes = b"", *headers: str) -> bytes:
    """A complete response."""
    head = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body
