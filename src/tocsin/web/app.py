"""The web application: every route in one list."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from tocsin.errors import RequestRefused
from tocsin.web import competition_docs, operation_docs
from tocsin.web.admin import AdminRoutes
from tocsin.web.chainhook_route import BODY_MAX, ChainhookRoute
from tocsin.web.client_limits import ClientLimits
from tocsin.web.competition_routes import CompetitionRoutes
from tocsin.web.cron import CronRoutes
from tocsin.web.deps import WebDeps
from tocsin.web.error_middleware import ErrorMiddleware
from tocsin.web.health import HealthRoutes
from tocsin.web.metrics import MetricsRoute
from tocsin.web.openapi import ApiDocs
from tocsin.web.operations import Operation, routes_of
from tocsin.web.price_routes import PriceQuery, price_cache
from tocsin.web.response_cache import ResponseCache

PRICES_PATH = "/api/prices"


def create_app(deps: WebDeps, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The application. `pages` are routes that come after the API's own."""
    prices = price_cache(deps)
    limits = ClientLimits(deps.posts_per_minute_max, deps.clock, deps.logger)
    return _App(
        prices,
        routes=[*routes_of(operations(deps, prices), limits), *pages],
        middleware=[Middleware(ErrorMiddleware, logger=deps.logger, store_fault=deps.store_fault)],
    )


def operations(deps: WebDeps, prices: ResponseCache[PriceQuery]) -> list[Operation]:
    """Every route of the API."""
    competition, chainhook, cron = CompetitionRoutes(deps), ChainhookRoute(deps), CronRoutes(deps)
    health, metrics = HealthRoutes(deps), MetricsRoute(deps)

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
        Operation("GET", "/api/admin/scheduler/audit", admin.audit, operation_docs.AUDIT),
        Operation("GET", "/api/admin/scheduler/events", admin.events, operation_docs.EVENTS),
        Operation("GET", "/healthz", health.alive, operation_docs.HEALTHZ),
        Operation("GET", "/readyz", health.ready, operation_docs.READYZ),
        Operation("GET", "/metrics", metrics.show, operation_docs.METRICS),
        Operation("GET", "/openapi.json", docs.machine, operation_docs.OPENAPI),
        Operation("GET", "/api/docs", docs.human, operation_docs.DOCS),
    ]
    return every


class _App(Starlette):
    """Sends cached prices without routing: that halves the cost of the route that is asked for most."""

    def __init__(
        self, prices: ResponseCache[PriceQuery], routes: Sequence[BaseRoute], middleware: Sequence[Middleware]
    ) -> None:
        super().__init__(routes=routes, middleware=middleware)
        self.router.redirect_slashes = False  # a redirect would trust the Host header
        self.router.default = _not_found
        self._prices = prices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PRICES_PATH and scope["method"] == "GET":
            cached = self._prices.fresh(scope["query_string"])
            if cached is not None:
                start, body = cached.messages(scope["headers"])
                await send(start)
                await send(body)
                return
        await super().__call__(scope, receive, send)


async def _not_found(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return
    raise RequestRefused(404, "not_found", "There is nothing at this path; /openapi.json lists all paths.")
