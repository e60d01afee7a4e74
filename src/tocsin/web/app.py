"""The web application: every route in one list, and what is around them.

Outermost are security headers on every response, one shape for every error, and no writes to a lost store. Pages of
other sites may read the public API (CORS), never with credentials.

Emits `request.failed` for every 5xx, with a traceback if the cause is a bug.
"""

import asyncio
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import ObjectReset, StoreError, StoreUnavailable
from holdfast.types import Logger
from tocsin.errors import RequestRefused
from tocsin.scheduler.watch import why_refused
from tocsin.web import (
    admin,
    agent_guide,
    agents,
    chainhook,
    competition,
    events,
    jobs,
    lookups,
    mcp,
    metrics,
    openapi,
    prices,
    rounds,
)
from tocsin.web.agent_page import AgentPages
from tocsin.web.board_page import BoardPage
from tocsin.web.cache import ResponseCache
from tocsin.web.deps import WebDeps
from tocsin.web.limits import UNDER_WAY_MAX, ClientLimits
from tocsin.web.pages import is_for_people, not_found_page
from tocsin.web.picture import Pictures
from tocsin.web.response import (
    SEND_COMPLETE,
    STRICT_TRANSPORT,
    PreparedResponse,
    RawHeaders,
    error_response,
    in_site_shape,
    is_https,
    refusal_of,
    with_security,
)
from tocsin.web.round_page import RoundPages
from tocsin.web.route import PathPatterns, authorize, handlers_of, routes_of

TRACEBACK_MAX = 4_000
DOCUMENTS = {"/openapi.json", "/api/openapi.json"}
REFUSAL_WAIT_S = 1.0
ANY = "*"
PREFLIGHT_AGE_S = 86_400
READS = ("GET", "HEAD")
READABLE = (b"access-control-expose-headers", b"etag, retry-after")


class ErrorMiddleware:
    """Middleware around everything."""

    def __init__(self, app: ASGIApp, logger: Logger, store_fault: Callable[[], str | None] = lambda: None) -> None:
        self._app = app
        self._logger = logger
        self._store_fault = store_fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = ended = False

        async def send_safely(message: Message) -> None:
            nonlocal started, ended
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = with_security(message.get("headers", ()), https=is_https(scope))
            else:
                ended = not message.get("more_body", False)
            await send(message)

        try:
            fault = self._store_fault() if scope["method"] == "POST" else None
            if fault is not None:
                raise StoreUnavailable(fault)  # noqa: TRY301 - one shape for every error
            await self._app(scope, receive, send_safely)
        except ClientDisconnect:
            return
        except (Exception, asyncio.CancelledError) as cause:
            error = cause if isinstance(cause, Exception) else ObjectReset("the service stops")
            if ended and error is not cause:
                return  # only work after the response is cut off
            refusal = refusal_of(error)
            if isinstance(error, StoreError) and scope["path"].startswith("/api/competition/"):
                refusal = in_site_shape(refusal)
            if refusal.status >= 500:
                self._log(scope, error, refusal.status)
            if started:
                raise  # the server cuts the connection: half a response must not look complete
            await error_response(refusal)(scope, receive, send_safely)

    def _log(self, scope: Scope, error: Exception, status: int) -> None:
        fields: dict[str, Any] = {"path": scope["path"][:300], "method": scope["method"], "status": status}
        if status == 500:
            fields["traceback"] = "".join(traceback.format_exception(error))[-TRACEBACK_MAX:]
        write = self._logger.error if status == 500 else self._logger.warning
        write("request.failed", **fields, error=f"{type(error).__name__}: {error}"[:500])


class CrossOrigin:
    """`origins`: those that may read, such as https://aibtc.com; `*` is any. `paths`: what they may read."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._is_any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        self.paths = PathPatterns()

    @property
    def fixed_headers(self) -> RawHeaders:
        """The headers of every public response."""
        if self._is_any:
            return [(b"access-control-allow-origin", b"*"), READABLE]
        return [(b"vary", b"origin")] if self._origins else []

    def own_headers(self, headers: RawHeaders) -> RawHeaders:
        """The additional headers of the response to a request with these headers."""
        if self._is_any or not self._origins:
            return ()
        for name, value in headers:
            if name == b"origin" and value in self._origins:
                return [(b"access-control-allow-origin", value), READABLE]
        return ()

    def allowing(self, scope: Scope, send: Send) -> Send:
        """A `send` that adds missing headers to a response, except for posts, which other sites may not read."""
        asks = scope["method"] in READS or self.is_preflight(scope)
        if not asks or self.paths.find(scope["path"]) is None:
            return send

        async def send_allowing(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = set(message["headers"])
                wanted = [*self.fixed_headers, *self.own_headers(scope["headers"])]
                message["headers"] = [*message["headers"], *(each for each in wanted if each not in present)]
            await send(message)

        return send_allowing

    def is_preflight(self, scope: Scope) -> bool:
        """Whether a browser asks if it may read. A preflight for POST must fail: POST needs no permission by name."""
        if scope["method"] != "OPTIONS" or not self._origins or self.paths.find(scope["path"]) is None:
            return False
        wanted = dict(scope["headers"]).get(b"access-control-request-method", b"")
        return wanted.decode("latin-1") in READS

    async def answer_preflight(self, send: Send) -> None:
        headers = [
            (b"access-control-allow-methods", b"GET, HEAD"),
            (b"access-control-allow-headers", b"*"),
            (b"access-control-max-age", str(PREFLIGHT_AGE_S).encode()),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


class WebApp:
    """The application. It sends cached responses without routing. `pages` come after the API's own routes."""

    def __init__(self, deps: WebDeps, pages: Sequence[BaseRoute] = ()) -> None:
        self._deps = deps
        self._cross_origin = CrossOrigin(deps.settings.cors_origins)
        everywhere = self._cross_origin.fixed_headers
        self._limits = limits = _limits_of(deps)
        self._http = metrics.HttpMetrics(deps.clock)
        self._look_ups = lookups.LookupRoutes(deps, limits)
        price_routes, agent_routes = prices.PriceRoutes(deps), agents.AgentRoutes(deps)
        trading = competition.CompetitionRoutes(deps, on_submit=self._forget)
        listed = [
            each
            for routes in (
                *(price_routes, trading, agent_routes),
                competition.CurvesRoute(deps, everywhere),
                events.NewsStreams(deps),
                rounds.RoundRoutes(deps),
                admin.AdminRoutes(deps, on_refresh=self._forget),
                jobs.JobRoutes(deps),
                chainhook.ChainhookRoute(deps),
                self._look_ups,
                mcp.McpRoute(deps, agent_routes, trading, price_routes),
                agent_guide.GuideRoutes(deps),
                metrics.MetricsRoute(deps, self._http),
            )
            for each in handlers_of(routes)
        ]
        listed += handlers_of(openapi.ApiDocs(deps, listed))
        self._caches: dict[str, ResponseCache] = {
            each.path: ResponseCache(deps, everywhere, each, handler) for each, handler in listed if each.kept
        }
        routed = [(each, self._caches[each.path].show if each.kept else handler) for each, handler in listed]
        self._cross_origin.paths = PathPatterns({each.path for each, _ in listed if each.is_public} | DOCUMENTS)
        pictures = Pictures(in_one_loop=deps.in_one_loop)
        self.routes = [
            *routes_of(routed, limits, compress=deps.process.compress),
            *BoardPage(deps, pictures).routes(limits),
            *AgentPages(deps, agent_routes, pictures).routes(limits),
            *RoundPages(deps, pictures).routes(limits),
            *pages,
        ]
        self._http.know(route.path for route in self.routes if isinstance(route, Route))
        router = Router(self.routes, redirect_slashes=False, default=_not_found)  # a redirect would trust Host
        self._routed = ErrorMiddleware(router, deps.logger, lambda: why_refused(deps.process.check_files()))

    def _forget(self) -> None:
        for cache in self._caches.values():
            cache.forget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = self._http.now()
        cache = self._caches.get(scope["path"]) if scope["method"] == "GET" else None
        prepared = None if cache is None else cache.fresh(scope["query_string"])
        if prepared is not None:
            await self._send_prepared(prepared, scope, receive, send, began_s)
            return
        if scope["method"] == "GET" and scope["path"].startswith(lookups.PREFIX):
            kept = self._look_ups.kept(scope)
            if kept is not None:
                await self._send_form(kept, scope, send, began_s, [])
                return
        try:
            place = self._limits.begin(scope)
        except RequestRefused as refusal:
            await self._refuse(refusal, scope, receive, send)
            return
        try:
            await self._route(scope, receive, self._http.counted(scope["path"], send))
        finally:
            self._limits.end(place)

    async def _send_prepared(
        self, prepared: PreparedResponse, scope: Scope, receive: Receive, send: Send, began_s: float
    ) -> None:
        try:
            self._limits.before_read(scope)
        except RequestRefused as refusal:
            await self._refuse(refusal, scope, receive, self._cross_origin.allowing(scope, send))
            return
        await self._send_form(prepared, scope, send, began_s, [*self._cross_origin.own_headers(scope["headers"])])

    async def _send_form(
        self, prepared: PreparedResponse, scope: Scope, send: Send, began_s: float, more: list[tuple[bytes, bytes]]
    ) -> None:
        start, body, content = prepared.form_for(scope["headers"])
        self._http.count(scope["path"], start["status"], began_s)
        if is_https(scope):
            more.append(STRICT_TRANSPORT)
        send_complete = scope.get("extensions", {}).get(SEND_COMPLETE)
        if more or send_complete is None or not send_complete(start["status"], content):
            await send({**start, "headers": [*start["headers"], *more]} if more else start)
            await send(body)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = self._cross_origin.allowing(scope, send)
        if self._cross_origin.is_preflight(scope):
            await self._cross_origin.answer_preflight(send)
            return
        await self._routed(scope, receive, send)

    async def _refuse(self, refusal: RequestRefused, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a client that is over a limit, after a while: a flood then costs little."""
        response = error_response(refusal)
        response.raw_headers = with_security(response.raw_headers, https=is_https(scope))
        self._http.count(scope["path"], refusal.status, self._http.now())
        await self._deps.clock.sleep(REFUSAL_WAIT_S if self._deps.in_one_loop else 0)
        await response(scope, receive, send)


def _limits_of(deps: WebDeps) -> ClientLimits:
    reads = deps.settings.reads_per_minute
    return ClientLimits(
        deps.posts_per_minute_max,
        deps.clock,
        deps.logger,
        reads_per_minute_max=reads,
        under_way_max=UNDER_WAY_MAX if deps.in_one_loop and reads else 0,
        key_of=lambda request, access: authorize(request, access, deps.settings, deps.logger),
    )


async def _not_found(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["method"] in {"GET", "HEAD"} and is_for_people(scope):
        page = not_found_page("There is no page at this address.")
        await page(scope, _receive, send)
        return
    raise RequestRefused(404, "not_found", "There is nothing at this path; /openapi.json lists all paths.")
