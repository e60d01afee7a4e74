"""JSON that a client sends. `capped` bounds its size before it is read here."""

import json
from typing import NoReturn

from starlette.requests import Request

from tocsin.bindings import JSON
from tocsin.errors import RequestRefused


async def json_body(request: Request) -> JSON:
    """The body as JSON. Refuses anything that is not JSON in UTF-8."""
    check_media_type(request)
    return parsed(await request.body())


def parsed(body: bytes) -> JSON:
    """The value of JSON in UTF-8. Refuses anything else, and what is nested too deeply."""
    try:
        value: JSON = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise not_json() from None
    return value


def check_media_type(request: Request) -> None:
    """Refuse a body that a page of another site sends without a preflight.

    Browsers send `Origin`, and send a preflight when the media type is JSON. Programs need no media type.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or media_type.endswith("+json")
    if "origin" in request.headers and not is_json:
        sentence = f"Send JSON, with the header Content-Type: application/json, not {media_type[:80]!r}."
        raise RequestRefused(415, "unsupported_media_type", sentence)


def not_json() -> RequestRefused:
    return RequestRefused(400, "malformed_body", "The body is not JSON in UTF-8.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
