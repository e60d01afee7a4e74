"""`fetch` on the runtime's fetch: one exchange, bounded in time and size, sent once, without redirects."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pyodide.ffi import JsException

from holdfast.cloudflare import javascript
from tocsin import __version__
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.fetch import FetchResponse, check_request, lower_case, spend_on_fetch, without_secrets

CONNECTIONS_MAX = 6  # Cloudflare's limit of open requests; it would queue a seventh silently


class CloudflareFetch:
    """The `Fetch` binding. Create one per object; outside of objects, one per request."""

    def __init__(self) -> None:
        self._connections = asyncio.Semaphore(CONNECTIONS_MAX)

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse:
        check_request(url, method, headers or {})
        spend_on_fetch()
        where = f"{method} {without_secrets(url)}"
        controller = javascript.js.AbortController.new()
        request = javascript.options(
            {
                "method": method,
                "headers": javascript.from_json({"User-Agent": f"tocsin/{__version__}", **(headers or {})}),
                "body": None if body is None else javascript.buffer(body),
                "redirect": "manual",
                "signal": controller.signal,
            }
        )
        try:
            async with asyncio.timeout(timeout_s), self._connections:
                response = await javascript.js.fetch(url, request)
                return await _read(response, body_max, where)
        except TimeoutError as error:
            raise FetchTimeout(f"{where}: no complete response within {timeout_s:g} s") from error
        except JsException as error:
            raise FetchFailed(f"{where}: {str(error.message)[:200]}") from None
        finally:
            controller.abort()  # ends an exchange that is not complete


async def _read(response: Any, body_max: int, where: str) -> FetchResponse:
    status, body = int(response.status), bytearray()
    headers = lower_case(javascript.to_json(javascript.js.Array.from_(response.headers)))
    if javascript.kind(response.body) == "missing":
        return FetchResponse(status, headers, b"")
    reader = response.body.getReader()
    while not (piece := await reader.read()).done:
        body += piece.value.to_bytes()
        if len(body) > body_max:
            message = f"{where}: the body is larger than {body_max} bytes"
            raise FetchTooLarge(message, status, headers, bytes(body))
    return FetchResponse(status, headers, bytes(body))
