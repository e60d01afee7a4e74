"""What people look at: static pages, fed only by our own API."""

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tocsin.web.security import PAGES, REVALIDATED

STATIC = Path(__file__).parent / "static"
_HEADERS = {REVALIDATED[0].decode(): REVALIDATED[1].decode()}


def page_routes() -> list[BaseRoute]:
    """The two pages, and what they are made of."""
    return [*(_page(name) for name in PAGES), Mount("/static", _Revalidated(directory=STATIC))]


class _Revalidated(StaticFiles):
    """Scripts and styles must be of the same version as the page that asks for them."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers.update(_HEADERS)
        return response


def _page(name: str) -> Route:
    async def show(_request: Request) -> FileResponse:
        return FileResponse(STATIC / f"{name}.html", headers=_HEADERS)

    return Route(f"/{name}", show)
