"""The simulator over HTTP: both upstreams at one address, with real hangs, slow bodies and cut connections.

`/hiro` and `/tenero` are base URLs; below them the paths are the real ones. `/_control/{command}` takes the
commands of `control.py`. `/_truth` returns the swaps that a perfect sweep would have found, `/_agents` the
registered wallets in the import format. Cutting a connection needs the server of `serve.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from holdfast.errors import UsageError
from stacks_simulator import control
from stacks_simulator.control_access import BODY_MAX, ControlRefusal, body_of, refusal_of
from stacks_simulator.http_messages import UPSTREAM_NAMES, Delivery, SimulatedRequest, UpstreamName
from stacks_simulator.simulator import Simulator
from stacks_simulator.wallets import import_lines

CUT_CONNECTION = "cut_connection"  # the key of the server's function in the scope's state
CHUNK_BYTES = 64 * 1024
SLOW_CHUNKS = 20  # the number of pieces of a slow body


def simulator_app(
    simulator: Simulator, closing: asyncio.Event, is_key: Callable[[str], bool] | None = None
) -> Starlette:
    """The ASGI app. Setting `closing` ends hanging requests, so that the server can stop.

    It can be controlled only from this machine, and only with a key, if `is_key` is given.
    """
    control_routes = _ControlRoutes(simulator, is_key)
    return Starlette(
        routes=[
            *(Mount(f"/{upstream}", _UpstreamApp(simulator, upstream, closing)) for upstream in UPSTREAM_NAMES),
            Route("/_control", control_routes.state),
            Route("/_control/{command}", control_routes.command, methods=["POST"]),
            Route("/_truth", control_routes.truth),
            Route("/_agents", control_routes.agents),
        ]
    )


class _UpstreamApp:
    """One upstream as an ASGI app."""

    def __init__(self, simulator: Simulator, upstream: UpstreamName, closing: asyncio.Event) -> None:
        self._simulator = simulator
        self._upstream: UpstreamName = upstream
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        base = scope["root_path"]
        request = SimulatedRequest(
            scope["method"],
            scope["path"].removeprefix(base),
            scope["query_string"].decode("ascii", "replace"),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            b"" if scope["method"] == "GET" else await _body(receive),
        )
        delivery = self._simulator.handle(self._upstream, request)
        if delivery.hangs:
            await self._hang(receive)
        await self._sleep(delivery.delay_s)
        if delivery.hangs or delivery.cut_after == 0:
            await _cut(scope, receive)
            return
        await send(_start(delivery, base))
        if delivery.undisturbed:
            await send({"type": "http.response.body", "body": delivery.reply.body})
            return
        async for chunk in self._chunks(delivery):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if delivery.cut_after is not None:
            await _cut(scope, receive)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self, delivery: Delivery) -> AsyncIterator[bytes]:
        body = delivery.reply.body[: delivery.cut_after]
        step = max(1, len(body) // SLOW_CHUNKS) if delivery.drip_s else CHUNK_BYTES
        for first in range(0, len(body), step):
            chunk = body[first : first + step]
            await self._sleep(delivery.drip_s * len(chunk) / len(body))
            yield chunk
        for _ in range(0, delivery.padding, CHUNK_BYTES):
            yield b" " * CHUNK_BYTES

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self._simulator.clock.sleep(seconds)

    async def _hang(self, receive: Receive) -> None:
        """Wait until the caller gives up or the server stops."""
        disconnected = asyncio.ensure_future(_disconnected(receive))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({disconnected, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnected.cancel()
            closing.cancel()


class _ControlRoutes:
    """The routes that control the simulator and show its state, its truth and its agents."""

    def __init__(self, simulator: Simulator, is_key: Callable[[str], bool] | None) -> None:
        self._simulator = simulator
        self._is_key = is_key

    async def state(self, request: Request) -> Response:
        refusal = refusal_of(request, self._is_key)
        return JSONResponse(control.state(self._simulator)) if refusal is None else _refused(refusal)

    async def command(self, request: Request) -> Response:
        refusal = refusal_of(request, self._is_key)
        if refusal is not None:
            return _refused(refusal)
        body = await body_of(request)
        if body is None:
            return _refused(ControlRefusal(413, "body_too_large", f"A command may have {BODY_MAX} bytes at most."))
        try:
            values = json.loads(body or b"{}")
            return JSONResponse(control.run(self._simulator, request.path_params["command"], values))
        except (UsageError, ValueError, RecursionError) as error:
            return _refused(ControlRefusal(400, "bad_command", str(error)))

    async def truth(self, _request: Request) -> Response:
        swaps = [swap.as_json() for swap in self._simulator.truth()]
        return JSONResponse({"asOf": self._simulator.chain.now_ms, "swaps": swaps})

    async def agents(self, _request: Request) -> Response:
        return PlainTextResponse(import_lines(self._simulator.chain.wallets))


def _refused(refusal: ControlRefusal) -> Response:
    body = {"error": refusal.sentence, "code": refusal.code, "retryable": False}
    return JSONResponse(body, refusal.status)


def _start(delivery: Delivery, base: str) -> dict[str, object]:
    headers = dict(delivery.reply.headers)
    if headers.get("location", "").startswith("/"):
        headers["location"] = base + headers["location"]  # paths of an upstream are relative to its mount
    if not delivery.padding:  # a huge body is sent without its length
        headers["content-length"] = str(len(delivery.reply.body))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": delivery.reply.status, "headers": encoded}


async def _cut(scope: Scope, receive: Receive) -> None:
    cut: Callable[[], None] | None = scope.get("state", {}).get(CUT_CONNECTION)
    if cut is None:
        raise RuntimeError("this server cannot cut a connection; run the app with stacks_simulator.serve")
    cut()
    await _disconnected(receive)  # once the server has noticed, it does not report the incomplete response


async def _body(receive: Receive) -> bytes:
    """The body of a request that changes something; a GET has none."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False) and len(body) <= CHUNK_BYTES
    return body


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
