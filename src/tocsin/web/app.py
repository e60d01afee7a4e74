"""The web application: every route in one list."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tocsin.errors import RequestRefused
from tocsin.web import competition_docs, operation_docs
from tocsin.web.admin import AdminRoutes
from tocsin.web.auth import require_key
from tocsin.web.chainhook_route import BODY_MAX, ChainhookRoute
from tocsin.web.client_limits import ClientLimits
from tocsin.web.competition_routes import CompetitionRoutes
from tocsin.web.cron import CronRoutes
from tocsin.web.deps import Keys, WebDeps
from tocsin.web.error_middleware import ErrorMiddleware
from tocsin.web.health import HealthRoutes
from tocsin.web.http_metrics import HttpMetrics
from tocsin.web.metrics import MetricsRoute
from tocsin.web.openapi import ApiDocs
from tocsin.web.operations import Operation, routes_of
from tocsin.web.price_routes import PriceQuery, price_cache
from tocsin.web.request_limits import ClientRateLimit, networks_of
from tocsin.web.response_cache import ResponseCache
from tocsin.web.security import STRICT_TRANSPORT, is_https

PRICES_PATH = "/api/prices"


def create_app(deps: WebDeps, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The application. `pages` are routes that come after the API's own."""
    prices = price_cache(deps)
    limits = ClientLimits(
        deps.posts_per_minute_max,
        deps.clock,
        deps.logger,
        reads_per_minute_max=deps.reads_per_minute_max,
        is_admin=lambda scope: _has_admin_key(scope, deps.keys),
    )
    http = HttpMetrics(deps.clock)
    routes = [*routes_of(operations(deps, prices, http), limits), *pages]
    http.know(route.path for route in routes if isinstance(route, Route))
    return _App(
        prices,
        http,
        limits.reads,
        routes=routes,
        middleware=[Middleware(ErrorMiddleware, logger=deps.logger, store_fault=deps.store_fault)],
    )


def operations(deps: WebDeps, prices: ResponseCache[PriceQuery], http: HttpMetrics) -> list[Operation]:
    """Every route of the API."""
    competition, chainhook, cron = CompetitionRoutes(deps), ChainhookRoute(deps), CronRoutes(deps)
    health, metrics = HealthRoutes(deps), MetricsRoute(deps, http)

    def refreshed() -> None:
        prices.forget()
        competition.board.forget()

    admin = AdminRoutes(deps, on_refresh=refreshed)
    every: list[Operation] = []
    docs = ApiDocs(deps.version, every)
    every += [
        Operation("GET", PRICES_PATH, prices.show, operation_docs.PRICES),
        Operation("GET", "/api/competition/leaderboard", competition.board.show, competition_docs.BOARD),
        Operation("GET", "/api/competition/trades", competition.trades, competition_docs.TRADES),
        Operation("POST", "/api/competition/trades", competition.submit, competition_docs.SUBMIT),
        Operation("GET", "/api/competition/status", competition.status, competition_docs.COUNTS),
        Operation("GET", "/api/competition/allowlist", competition.allowlist, competition_docs.ALLOWLIST),
        Operation(
            "GET", "/api/competition/tracked-tokens", competition.tracked_tokens, competition_docs.TRACKED
        ),
        Operation(
            "POST",
            "/api/chainhook",
            chainhook.receive,
            competition_docs.CHAINHOOK,
            BODY_MAX,
        ),
        Operation("GET", "/api/competition/cron", cron.describe, operation_docs.CRON),
        Operation("POST", "/api/competition/cron", cron.sweep, operation_docs.SWEEP),
        Operation("GET", "/api/admin/scheduler", admin.show, operation_docs.STATUS),
        Operation("POST", "/api/admin/scheduler", admin.act, operation_docs.ACT),
        Operation("GET", "/api/admin/scheduler/runs", admin.runs, operation_docs.RUNS),
        Operation("GET", "/api/admin/scheduler/days", admin.days, operation_docs.DAYS),
        Operation("GET", "/api/admin/scheduler/audit", admin.audit, operation_docs.AUDIT),
        Operation("GET", "/api/admin/scheduler/events", admin.events, operation_docs.EVENTS),
        Operation("GET", "/healthz", health.alive, operation_docs.HEALTHZ),
        Operation("GET", "/readyz", health.ready, operation_docs.READYZ),
        Operation("GET", "/metrics", metrics.show, operation_docs.METRICS),
        Operation("GET", "/openapi.json", docs.machine, operation_docs.OPENAPI),
        Operation("GET", "/api/openapi.json", docs.machine, operation_docs.SITE_OPENAPI),
        Operation("GET", "/api/docs", docs.human, operation_docs.DOCS),
    ]
    return every


class _App(Starlette):
    """Sends cached prices without routing: that halves the cost of the route that is asked for most."""

    def __init__(
        self,
        prices: ResponseCache[PriceQuery],
        http: HttpMetrics,
        reads: ClientRateLimit,
        routes: Sequence[BaseRoute],
        middleware: Sequence[Middleware],
    ) -> None:
        super().__init__(routes=routes, middleware=middleware)
        self.router.redirect_slashes = False  # a redirect would trust the Host header
        self.router.default = _not_found
        self._prices = prices
        self._http = http
        self._reads = reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if scope["path"] == PRICES_PATH and scope["method"] == "GET":
            began_s = self._http.now()
            cached = self._prices.fresh(scope["query_string"])
            if cached is not None and self._reads.allows(networks_of(scope)):
                start, body = cached.messages(scope["headers"])
                if is_https(scope):
                    start = {**start, "headers": [*start["headers"], STRICT_TRANSPORT]}
                self._http.count(PRICES_PATH, start["status"], began_s)
                await send(start)
                await send(body)
                return
        await super().__call__(scope, receive, self._http.counted(scope["path"], send))


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
    raise RequestRefused(404, "not_found", "There is nothing at this path; /openapi.json lists all paths.")
