"""The outermost layer: security headers on every response, one shape for every error, no writes to a lost store.

Emits `request.failed` for every 5xx, with a traceback if the cause is a bug.
"""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin.bindings import Logger
from tocsin.errors import ObjectReset, StoreError, StoreUnavailable
from tocsin.web.respond import error_response, in_site_shape, refusal_of
from tocsin.web.security import is_https, with_security

TRACEBACK_MAX = 4_000


class ErrorMiddleware:
    """Middleware around everything."""

    def __init__(
        self, app: ASGIApp, logger: Logger, store_fault: Callable[[], str | None] = lambda: None
    ) -> None:
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
        write = self._logger.error if status == 500 else self._logger.warn
        write("request.failed", **fields, error=f"{type(error).__name__}: {error}"[:500])
