"""Requests that are under way when the service stops."""

import asyncio
import json

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.virtual_time import VirtualClock
from tocsin.local.logs import library_logs
from tocsin.local.server import HttpServer
from tocsin.web.app import ErrorMiddleware
from tocsin.web.limits import ClientLimits
from tocsin.web.route import Handler, Operation, OperationDoc, routes_of

DOC = OperationDoc(operation_id="doIt", tag="service", summary="", responses={})


async def stopped_during(handler: Handler, started: asyncio.Event) -> tuple[str, bytes, CapturedLog]:
    """Stop the server while a request is in this handler: head and body of the response, and the log."""
    log = CapturedLog()
    (route,) = routes_of([Operation("POST", "/it", handler, DOC)], ClientLimits(10, VirtualClock(), CapturedLog()))
    server = HttpServer("127.0.0.1", 0)
    with library_logs(log):
        await server.start(ErrorMiddleware(route, log))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /it HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        await started.wait()
        await server.stop()
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.decode().lower(), body, log


async def test_a_request_that_cannot_end_is_refused_in_the_usual_shape() -> None:
    """503, with the time to retry; one warning in the log, and no traceback."""
    started = asyncio.Event()

    async def hang(_request: Request) -> ASGIApp:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    head, body, log = await stopped_during(hang, started)

    assert head.startswith("http/1.1 503 ")
    assert "retry-after: " in head
    assert json.loads(body)["code"] == "scheduler_unavailable"
    assert json.loads(body)["retryable"] is True
    (line,) = log.lines
    assert (line.level, line.event) == ("WARN", "request.failed")
    assert "traceback" not in line.fields


async def test_a_request_that_ends_in_time_gets_its_response() -> None:
    """The grace is for those."""
    started = asyncio.Event()

    async def slow(_request: Request) -> ASGIApp:
        started.set()
        await asyncio.sleep(2)
        return Response("done")

    head, body, log = await stopped_during(slow, started)

    assert head.startswith("http/1.1 200 ")
    assert (body, log.lines) == (b"done", [])


async def test_work_after_a_response_ends_quietly() -> None:
    """As after a push of Chainhook: the next sweep does what is left."""
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    async def respond(_request: Request) -> ASGIApp:
        return Response("done", background=BackgroundTask(hang))

    head, _body, log = await stopped_during(respond, started)

    assert head.startswith("http/1.1 200 ")
    assert log.lines == []


async def test_a_request_that_is_on_its_way_when_the_server_stops_is_answered() -> None:
    """On a new connection and on a kept one; the response ends the connection, and nothing is reset."""
    server = HttpServer("127.0.0.1", 0)
    await server.start(Response("fine"))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    kept_reader, kept_writer = await asyncio.open_connection("127.0.0.1", server.port)
    kept_writer.write(b"GET /it HTTP/1.1\r\nHost: x\r\n\r\n")
    await kept_reader.readuntil(b"fine")
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0.3)
    for sender in (writer, kept_writer):
        sender.write(b"GET /it HTTP/1.1\r\nHost: x\r\n\r\n")
    answers = [await each.read() for each in (reader, kept_reader)]
    await stopping
    for sender in (writer, kept_writer):
        sender.close()

    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
    assert all(b"connection: close" in answer for answer in answers)


async def test_an_idle_connection_does_not_hold_up_the_stop() -> None:
    """It is closed after half a second, long before requests under way are cut off."""
    server = HttpServer("127.0.0.1", 0)
    await server.start(Response("fine"))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    began = asyncio.get_running_loop().time()
    await server.stop()

    assert asyncio.get_running_loop().time() - began < 1
    assert await reader.read() == b""
    writer.close()
