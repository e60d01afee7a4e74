"""The web application: every route in one list, and what is around them.

Outermost are security headers on every response, one shape for every error, and no writes to a lost store. Pages of
other sites may read the public API (CORS), never with credentials.

Emits `request.failed` for every 5xx, with a traceback if the cause is a bug.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import ObjectReset, StoreError, StoreUnavailable
from holdfast.types import Logger
from tocsin.errors import RequestRefused
from tocsin.web import agent_guide, competition, docs, rounds
from tocsin.web.admin import AdminRoutes, CronRoutes, HealthRoutes
from tocsin.web.agent_page import AgentPages
from tocsin.web.agents import AgentRoutes, CsvRoute
from tocsin.web.cache import ResponseCache
from tocsin.web.chainhook import BODY_MAX, ChainhookRoute
from tocsin.web.competition import CompetitionRoutes, CurvesRoute, RefusalRoutes
from tocsin.web.deps import Keys, WebDeps
from tocsin.web.events import NewsStreams
from tocsin.web.limits import UNDER_WAY_MAX, ClientLimits
from tocsin.web.mcp import McpRoute
from tocsin.web.metrics import HttpMetrics, MetricsRoute
from tocsin.web.openapi import ApiDocs
from tocsin.web.pages import is_for_people, not_found_page
from tocsin.web.prices import PriceHistoryRoute, PriceQuery, price_cache
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
from tocsin.web.rounds import RoundAdminRoutes, RoundRoutes
from tocsin.web.route import Operation, PathPatterns, is_public, require_key, routes_of

TRACEBACK_MAX = 4_000
PRICES_PATH = "/api/prices"
BOARD_PATH = "/api/competition/leaderboard"
STATUS_PATH = "/api/competition/status"
HISTORY_PATH = "/api/competition/history"
CURVES_PATH = "/api/competition/curves"
ROUNDS_PATH = "/api/competition/rounds"
ROUND_ADMIN_PATH = "/api/admin/competition/finalize"
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
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
            self._check_store(scope)
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

    def _check_store(self, scope: Scope) -> None:
        fault = self._store_fault() if scope["method"] == "POST" else None
        if fault is not None:
            raise StoreUnavailable(fault)

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


def create_app(deps: WebDeps, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The application. `pages` are routes that come after the API's own."""
    cross_origin = CrossOrigin(deps.origins)
    prices = price_cache(deps, cross_origin.fixed_headers)
    trading = CompetitionRoutes(deps, cross_origin.fixed_headers)
    limits = ClientLimits(
        deps.posts_per_minute_max,
        deps.clock,
        deps.logger,
        reads_per_minute_max=deps.reads_per_minute_max,
        under_way_max=UNDER_WAY_MAX if deps.in_one_loop and deps.reads_per_minute_max else 0,
        is_admin=lambda scope: _has_admin_key(scope, deps.keys),
    )
    http = HttpMetrics(deps.clock)
    agents = AgentRoutes(deps)
    curves = CurvesRoute(deps, cross_origin.fixed_headers)
    listed = operations(deps, prices, trading, agents, curves, http)
    public = {operation.path for operation in listed if is_public(operation)}
    cross_origin.paths = PathPatterns(public | DOCUMENTS)
    cached: dict[str, ResponseCache[Any]] = {
        PRICES_PATH: prices,
        BOARD_PATH: trading.board,
        STATUS_PATH: trading.status,
        HISTORY_PATH: trading.history,
    }
    agent_pages = AgentPages(deps, agents, limits).routes()
    routes = [*routes_of(listed, limits, compress=deps.compress), *agent_pages, *pages]
    http.know(route.path for route in routes if isinstance(route, Route))
    return _App(
        cached,
        http,
        limits,
        cross_origin,
        lambda: deps.clock.sleep(REFUSAL_WAIT_S if deps.in_one_loop else 0),
        routes=routes,
        middleware=[Middleware(ErrorMiddleware, logger=deps.logger, store_fault=deps.store_fault)],
    )


def operations(
    deps: WebDeps,
    prices: ResponseCache[PriceQuery],
    trading: CompetitionRoutes,
    agents: AgentRoutes,
    curves: CurvesRoute,
    http: HttpMetrics,
) -> list[Operation]:
    """Every route of the API."""
    chainhook, cron = ChainhookRoute(deps), CronRoutes(deps)
    health, metrics = HealthRoutes(deps), MetricsRoute(deps, http)
    round_routes, round_admin = RoundRoutes(deps), RoundAdminRoutes(deps)

    def refreshed() -> None:
        prices.forget()
        trading.board.forget()

    every: list[Operation] = []
    api_docs = ApiDocs(deps.version, every, compress=deps.compress, in_one_loop=deps.in_one_loop)
    every += [
        Operation("GET", PRICES_PATH, prices.show, docs.PRICES, is_prepared=True),
        Operation("GET", BOARD_PATH, trading.board.show, competition.BOARD, is_prepared=True),
        Operation("GET", f"{BOARD_PATH}.csv", CsvRoute(agents).show, agent_guide.CSV),
        Operation("GET", HISTORY_PATH, trading.history.show, competition.HISTORY, is_prepared=True),
        Operation("GET", CURVES_PATH, curves.show, competition.CURVES, is_prepared=True),
        Operation("GET", "/api/competition/trades", trading.trades, competition.TRADES),
        Operation("POST", "/api/competition/trades", trading.submit, competition.SUBMIT_DOC),
        Operation("GET", "/api/competition/trades/{txid}", agents.verdict, agent_guide.VERDICT),
        Operation("GET", "/api/competition/events", NewsStreams(deps).show, agent_guide.EVENTS),
        Operation("GET", "/api/competition/agents/{address}", agents.agent, agent_guide.AGENT),
        Operation("GET", STATUS_PATH, trading.status.show, competition.COUNTS, is_prepared=True),
        Operation("GET", "/api/competition/allowlist", trading.allowlist, competition.ALLOWLIST),
        Operation("GET", "/api/competition/tracked-tokens", trading.tracked_tokens, competition.TRACKED),
        Operation("GET", ROUNDS_PATH, round_routes.listed, rounds.ROUNDS),
        Operation("GET", f"{ROUNDS_PATH}/current", round_routes.current, rounds.CURRENT),
        Operation("GET", f"{ROUNDS_PATH}/{{roundId}}", round_routes.one, rounds.ROUND_DOC),
        Operation("GET", f"{ROUNDS_PATH}/{{roundId}}/file", round_routes.file, rounds.FILE),
        Operation("GET", f"{ROUNDS_PATH}/{{roundId}}/results/{{stxAddress}}", round_routes.placed, rounds.PLACED),
        Operation("GET", ROUND_ADMIN_PATH, round_admin.show, rounds.ALL),
        Operation("POST", ROUND_ADMIN_PATH, round_admin.act, rounds.ACT),
        Operation("POST", "/api/chainhook", chainhook.receive, competition.CHAINHOOK, BODY_MAX),
        Operation("GET", "/api/competition/cron", cron.describe, docs.CRON),
        Operation("POST", "/api/competition/cron", cron.sweep, docs.SWEEP),
        *admin_operations(deps, AdminRoutes(deps, on_refresh=refreshed)),
        Operation("POST", "/mcp", McpRoute(deps, agents, trading).answer, agent_guide.MCP),
        Operation("GET", "/llms.txt", agents.guide, agent_guide.GUIDE),
        Operation("GET", "/.well-known/agent.json", agents.card, agent_guide.CARD),
        Operation("GET", "/healthz", health.alive, docs.HEALTHZ),
        Operation("GET", "/readyz", health.ready, docs.READYZ),
        Operation("GET", "/metrics", metrics.show, docs.METRICS),
        Operation("GET", "/openapi.json", api_docs.machine, docs.OPENAPI, is_prepared=True),
        Operation("GET", "/api/openapi.json", api_docs.machine, docs.SITE_OPENAPI, is_prepared=True),
        Operation("GET", "/api/docs", api_docs.human, docs.DOCS, is_prepared=True),
    ]
    return every


def admin_operations(deps: WebDeps, admin: AdminRoutes) -> list[Operation]:
    """The routes for operators, except those for rounds."""
    scheduler = "/api/admin/scheduler"
    return [
        Operation("GET", "/api/admin/competition/refusals", RefusalRoutes(deps).show, agent_guide.REFUSALS),
        Operation("GET", "/api/admin/prices/history", PriceHistoryRoute(deps).show, docs.PRICE_HISTORY),
        Operation("GET", scheduler, admin.show, docs.STATUS),
        Operation("POST", scheduler, admin.act, docs.ACT),
        Operation("GET", f"{scheduler}/runs", admin.runs, docs.RUNS),
        Operation("GET", f"{scheduler}/runs/{{number}}", admin.run, docs.RUN),
        Operation("GET", f"{scheduler}/days", admin.days, docs.DAYS),
        Operation("GET", f"{scheduler}/audit", admin.audit, docs.AUDIT),
        Operation("GET", f"{scheduler}/events", admin.events, docs.EVENTS),
    ]


class _App(Starlette):
    """Sends cached responses without routing."""

    def __init__(
        self,
        cached: Mapping[str, ResponseCache[Any]],
        http: HttpMetrics,
        limits: ClientLimits,
        cross_origin: CrossOrigin,
        wait: Callable[[], Awaitable[None]],
        routes: Sequence[BaseRoute],
        middleware: Sequence[Middleware],
    ) -> None:
        super().__init__(routes=routes, middleware=middleware)
        self.router.redirect_slashes = False  # a redirect would trust the Host header
        self.router.default = _not_found
        self._cached = cached
        self._cross_origin = cross_origin
        self._http = http
        self._limits = limits
        self._wait = wait  # before a refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        began_s = self._http.now()
        cache = self._cached.get(scope["path"]) if scope["method"] == "GET" else None
        prepared = None if cache is None else cache.fresh(scope["query_string"])
        if prepared is not None:
            await self._send_prepared(prepared, scope, receive, send, began_s)
            return
        try:
            place = self._limits.begin(scope)
        except RequestRefused as refusal:
            await self._refuse(refusal, scope, receive, send)
            return
        try:
            await self._routed(scope, receive, self._http.counted(scope["path"], send))
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
        start, body, content = prepared.form_for(scope["headers"])
        self._http.count(scope["path"], start["status"], began_s)
        more = [*self._cross_origin.own_headers(scope["headers"])]
        if is_https(scope):
            more.append(STRICT_TRANSPORT)
        send_complete = scope.get("extensions", {}).get(SEND_COMPLETE)
        if more or send_complete is None or not send_complete(start["status"], content):
            await send({**start, "headers": [*start["headers"], *more]} if more else start)
            await send(body)

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = self._cross_origin.allowing(scope, send)
        if self._cross_origin.is_preflight(scope):
            await self._cross_origin.answer_preflight(send)
            return
        await super().__call__(scope, receive, send)

    async def _refuse(self, refusal: RequestRefused, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a client that is over a limit, after a while: a flood then costs little."""
        response = error_response(refusal)
        response.raw_headers = with_security(response.raw_headers, https=is_https(scope))
        self._http.count(scope["path"], refusal.status, self._http.now())
        await self._wait()
        await response(scope, receive, send)


def _has_admin_key(scope: Scope, keys: Keys) -> bool:
    try:
        require_key(Request(scope), "X-Admin-Key", keys.admin, "ADMIN_KEY")
    except RequestRefused:
        return False
    return True


async def _not_found(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return
    if scope["method"] in {"GET", "HEAD"} and is_for_people(scope):
        page = not_found_page("There is no page at this address.")
        await page(scope, _receive, send)
        return
    raise RequestRefused(404, "not_found", "There is nothing at this path; /openapi.json lists all paths.")
