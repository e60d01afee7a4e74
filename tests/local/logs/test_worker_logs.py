"""The worker-logs service over HTTP: the request, and which responses count as success."""

import asyncio
import json

import pytest

from support.loopback import Request, http, serving
from tocsin.errors import LogsError
from tocsin.local.fetch import HttpFetch
from tocsin.local.logs import WorkerLogs
from tocsin.logs import LogEntry, Logs, Redactor

ENTRY = LogEntry("WARN", "upstream.failed", {"status": 429, "key": "hunter2"})


async def send_to(response: bytes) -> list[Request]:
    async def write(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response)

    fetch = HttpFetch()
    try:
        async with serving(write) as server:
            logs: Logs = WorkerLogs(fetch, f"{server.url}/", "api-key", Redactor(["hunter2"]))
            await logs.log_batch("aibtc-landing", [ENTRY, ENTRY])
            return server.requests
    finally:
        await fetch.close()


async def test_a_batch_is_one_request_with_the_apps_id_and_key() -> None:
    """In the service's format: level, message, context. Secrets are masked here too."""
    (request,) = await send_to(http(200, b'{"ok": true, "data": []}'))
    masked = {"level": "WARN", "message": "upstream.failed", "context": {"status": 429, "key": "[redacted]"}}

    assert request.line == "POST /logs HTTP/1.1"
    assert request.headers["x-app-id"] == "aibtc-landing"
    assert request.headers["x-api-key"] == "api-key"
    assert json.loads(request.body) == {"logs": [masked, masked]}


@pytest.mark.parametrize(
    ("status", "body", "retryable"),
    [
        (200, b'{"ok": false, "error": {"code": "INTERNAL_ERROR"}}', True),
        (200, b"<html>not the service</html>", True),
        (200, b"[]", True),
        (302, b"", True),
        (401, b'{"ok": false}', True),
        (503, b'{"ok": false}', True),
        (400, b'{"ok": false, "error": {"code": "BAD_REQUEST", "message": "hunter2"}}', False),
        (413, b"", False),
    ],
)
async def test_a_response_without_ok_is_a_failure(status: int, body: bytes, *, retryable: bool) -> None:
    """A 200 with `ok: false` is one too. Only a batch that the service can never accept is not retryable."""
    with pytest.raises(LogsError, match=f"responded with {status}") as caught:
        await send_to(http(status, body))

    assert caught.value.retryable is retryable
    assert "hunter2" not in str(caught.value)


async def test_a_secret_across_the_cut_shows_no_part_of_itself() -> None:
    """The sentence has at most 200 characters of the response; they are masked before they are cut."""
    with pytest.raises(LogsError) as caught:
        await send_to(http(400, b"." * 196 + b"hunter2"))

    assert str(caught.value).endswith("responded with 400: " + "." * 196 + "[red")


async def test_a_missing_response_is_retryable() -> None:
    """The request to a service that hangs ends after its timeout."""
    fetch = HttpFetch()

    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(hang) as server:
        with pytest.raises(LogsError, match="no complete response") as caught:
            await WorkerLogs(fetch, server.url, "k", Redactor()).log_batch("app", [ENTRY])
    await fetch.close()

    assert caught.value.retryable
