"""Answers of the scripted API: exactly what the service would send."""

import hashlib
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from support.pages_world import Json
from tocsin.shape import SnakeShape
from tocsin.web.response import ErrorBody


def shaped(shape: type[SnakeShape], body: Json) -> Json:
    """Return the body, which must be exactly what the service would send for this shape."""
    sent: Json = shape.from_json(body).to_json()
    assert sent == body, f"this is not a {shape.__name__}: {_difference(sent, body)}"
    return sent


def _difference(sent: Any, body: Any) -> Any:
    """Return the part of the body that the shape lacks or has differently."""
    if isinstance(sent, dict) and isinstance(body, dict):
        names = [name for name in {**sent, **body} if sent.get(name) != body.get(name)]
        return {name: _difference(sent.get(name), body.get(name)) for name in names}
    return body


def refused_with(status: int, code: str, sentence: str) -> Response:
    return JSONResponse(ErrorBody(sentence, code, retryable=status >= 500).to_json(), status)


def tagged(request: Request, shape: type[SnakeShape], body: Json) -> Response:
    text = json.dumps(shaped(shape, body)).encode()
    tag = f'"{hashlib.sha256(text).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "public, max-age=30"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="application/json", headers=headers)
