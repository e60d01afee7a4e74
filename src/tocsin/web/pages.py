"""What people look at: static pages, fed only by our own API."""

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
PAGES = ("leaderboard", "console")
REVALIDATED = {"Cache-Control": "no-cache"}  # kept, but asked for again: a new version shows at once


def page_routes() -> list[BaseRoute]:
    """The two pages, and what they are made of."""
    return [*(_page(name) for name in PAGES), Mount("/static", _Revalidated(directory=STATIC))]


class _Revalidated(StaticFiles):
    """Scripts and styles must be of the same version as the page that asks for them."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers.update(REVALIDATED)
        return response


def _page(name: str) -> Route:
    async def show(_request: Request) -> FileResponse:
        return FileResponse(STATIC / f"{name}.html", headers=REVALIDATED)

    return Route(f"/{name}", show)
