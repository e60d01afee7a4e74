"""The outermost layer: security headers on every response, one shape for every error.

Emits `request.failed` for every 5xx; for a defect of ours, with its traceback.
"""

import traceback
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin.bindings import Logger
from tocsin.web.respond import error_response, refusal_of
from tocsin.web.security import with_security

TRACEBACK_MAX = 4_000


class ErrorMiddleware:
    """Middleware around everything."""

    def __init__(self, app: ASGIApp, logger: Logger) -> None:
        self._app = app
        self._logger = logger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = with_security(message.get("headers", ()))
            await send(message)

        try:
            await self._app(scope, receive, send_safely)
        except ClientDisconnect:
            return
        except Exception as error:
            refusal = refusal_of(error)
            if refusal.status >= 500:
                self._log(scope, error, refusal.status)
            if started:
                raise  # the server cuts the connection: half a response must not look complete
            await error_response(refusal)(scope, receive, send_safely)

    def _log(self, scope: Scope, error: Exception, status: int) -> None:
        fields: dict[str, Any] = {"path": scope["path"][:300], "method": scope["method"], "status": status}
        if status == 500:
            fields["traceback"] = "".join(traceback.format_exception(error))[-TRACEBACK_MAX:]
        write = self._logger.error if status == 500 else self._logger.warn
        write("request.failed", **fields, error=f"{type(error).__name__}: {error}"[:500])
