"""`fetch` on aiohttp: one exchange, bounded in time and size, sent once.

aiohttp decompresses in small pieces and waits until they are read. 100 MB that arrive as 100 kB therefore take 2 MB of
memory before a `body_max` of 1 MB refuses them.
"""

import asyncio
from collections.abc import Mapping

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHandlerType,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)
from yarl import URL

from holdfast.local.turns import output_gate
from tocsin import __version__
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.fetch import FetchResponse, check_request, lower_case, without_secrets

KEEP_ALIVE_S = 15.0  # shorter than that of most servers, so that we seldom use a connection that they have closed
CHUNK_BYTES = 64 * 1024


class HttpFetch:
    """The `Fetch` binding. Create it and close it on the loop that uses it."""

    def __init__(self) -> None:
        self._session = ClientSession(
            # No limit: jobs and budgets have their own, and a URL that hangs must not keep other calls waiting.
            connector=TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            headers={"User-Agent": f"tocsin/{__version__}", "Accept-Encoding": "gzip, deflate"},
            cookie_jar=DummyCookieJar(),  # no exchange affects the next
            timeout=ClientTimeout(total=None, sock_connect=None),  # the caller's timeout is the only one
            middlewares=(_send_once,),
        )

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
        await output_gate()
        if self._session.closed:
            raise FetchFailed("fetch is closed: the process is stopping")
        where = f"{method} {without_secrets(url)}"
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, URL(url, encoded=True), headers=headers, data=body, allow_redirects=False
                ) as response,
            ):
                return await _read(response, body_max, where)
        except TimeoutError as error:
            raise FetchTimeout(f"{where}: no complete response within {timeout_s:g} s") from error
        except (ClientError, OSError, ValueError) as error:
            raise FetchFailed(f"{where}: {_reason(error)}") from error

    async def aclose(self) -> None:
        await self._session.close()


async def _send_once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Keep aiohttp from resending an idempotent request by itself: upstream budgets count every request."""
    try:
        return await handler(request)
    except (ClientConnectorError, ConnectionTimeoutError):
        raise  # nothing was sent, and aiohttp does not retry these
    except (ClientOSError, ServerDisconnectedError) as error:
        where = f"{request.method} {without_secrets(str(request.url))}"
        raise FetchFailed(f"{where}: {_reason(error)}") from error


async def _read(response: ClientResponse, body_max: int, where: str) -> FetchResponse:
    headers, body = lower_case(response.headers.items()), bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        body += chunk
        if len(body) > body_max:
            response.close()
            message = f"{where}: the body is larger than {body_max} bytes"
            raise FetchTooLarge(message, response.status, headers, bytes(body))
    return FetchResponse(response.status, headers, bytes(body))


def _reason(error: Exception) -> str:
    """The cause of an error, without the URL and headers that aiohttp's own texts contain."""
    text = getattr(error, "message", None) or getattr(error, "strerror", None)
    name = type(error).__name__
    return f"{name}, {text}" if isinstance(text, str) else name
