"""The web application: every route in one list."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from tocsin.errors import RequestRefused
from tocsin.web import about, about_competition
from tocsin.web.admin import AdminRoutes
from tocsin.web.chainhook_route import BODY_MAX, ChainhookRoute
from tocsin.web.competition import CompetitionRoutes
from tocsin.web.cron import CronRoutes
from tocsin.web.deps import WebDeps
from tocsin.web.error_middleware import ErrorMiddleware
from tocsin.web.health import HealthRoutes
from tocsin.web.metrics import MetricsRoute
from tocsin.web.openapi import ApiDocs
from tocsin.web.operations import Operation, routes_of
from tocsin.web.prices import price_cache
from tocsin.web.request_limits import ClientRateLimit
from tocsin.web.response_cache import ResponseCache

PRICES_PATH = "/api/prices"


def create_app(site: WebDeps, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The application. `pages` are mounted behind the API: what people look at."""
    prices = price_cache(site)
    limiter = ClientRateLimit(site.posts_per_minute_max, site.clock)
    return _App(
        prices,
        routes=[*routes_of(operations(site, prices), limiter), *pages],
        middleware=[Middleware(ErrorMiddleware, logger=site.logger)],
    )


def operations(site: WebDeps, prices: ResponseCache) -> list[Operation]:
    """Every route of the API."""
    competition, chainhook, cron = CompetitionRoutes(site), ChainhookRoute(site), CronRoutes(site)
    health, metrics = HealthRoutes(site), MetricsRoute(site)

    def refreshed() -> None:
        prices.forget()
        competition.board.forget()

    admin = AdminRoutes(site, on_refresh=refreshed)
    found: list[Operation] = []
    docs = ApiDocs(site.version, found)
    found += [
        Operation("GET", PRICES_PATH, prices.show, about.PRICES),
        Operation("GET", "/api/competition/leaderboard", competition.board.show, about_competition.BOARD),
        Operation("GET", "/api/competition/trades", competition.trades, about_competition.TRADES),
        Operation("POST", "/api/competition/trades", competition.submit, about_competition.SUBMIT),
        Operation("GET", "/api/competition/status", competition.status, about_competition.STANDING),
        Operation("GET", "/api/competition/allowlist", competition.allowlist, about_competition.ALLOWLIST),
        Operation(
            "GET", "/api/competition/tracked-tokens", competition.tracked_tokens, about_competition.TRACKED
        ),
        Operation(
            "POST",
            "/api/chainhook",
            chainhook.receive,
            about_competition.CHAINHOOK,
            BODY_MAX,
        ),
        Operation("GET", "/api/competition/cron", cron.describe, about.CRON),
        Operation("POST", "/api/competition/cron", cron.sweep, about.SWEEP),
        Operation("GET", "/api/admin/scheduler", admin.show, about.STATUS),
        Operation("POST", "/api/admin/scheduler", admin.act, about.ACT),
        Operation("GET", "/api/admin/scheduler/runs", admin.runs, about.RUNS),
        Operation("GET", "/api/admin/scheduler/events", admin.events, about.EVENTS),
        Operation("GET", "/healthz", health.alive, about.HEALTHZ),
        Operation("GET", "/readyz", health.ready, about.READYZ),
        Operation("GET", "/metrics", metrics.show, about.METRICS),
        Operation("GET", "/openapi.json", docs.machine, about.OPENAPI),
        Operation("GET", "/api/docs", docs.human, about.DOCS),
    ]
    return found


class _App(Starlette):
    """Sends a price page that is ready without routing it: that halves what the most asked route costs."""

    def __init__(
        self, prices: ResponseCache, routes: Sequence[BaseRoute], middleware: Sequence[Middleware]
    ) -> None:
        super().__init__(routes=routes, middleware=middleware)
        self.router.redirect_slashes = False  # a redirect would trust the Host header
        self.router.default = _not_found
        self._prices = prices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PRICES_PATH and scope["method"] == "GET":
            page = self._prices.fresh(scope["query_string"])
            if page is not None:
                start, body = page.messages(scope["headers"])
                await send(start)
                await send(body)
                return
        await super().__call__(scope, receive, send)


async def _not_found(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return
    raise RequestRefused(
        404, "not_found", "There is nothing at this path: /openapi.json lists what there is."
    )
