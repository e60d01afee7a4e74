"""What people look at: static pages, fed only by our own API."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
PAGES = ("leaderboard", "console")
REVALIDATED = {"Cache-Control": "no-cache"}  # kept, but asked for again: a new version shows at once


def page_routes() -> list[BaseRoute]:
    """The two pages, and what they are made of."""
    return [*(_page(name) for name in PAGES), Mount("/static", StaticFiles(directory=STATIC))]


def _page(name: str) -> Route:
    async def show(_request: Request) -> FileResponse:
        return FileResponse(STATIC / f"{name}.html", headers=REVALIDATED)

    return Route(f"/{name}", show)
