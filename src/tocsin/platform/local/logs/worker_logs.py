"""The `Logs` binding over HTTP: the worker-logs service accepts batches with an app's id and key.

The service responds with 200 even after a failure; only `ok` in the body shows it.
"""

import json
from collections.abc import Sequence

from tocsin.bindings import Fetch, LogEntry
from tocsin.errors import FetchError, LogsError
from tocsin.platform.shared.redaction import Redactor

TIMEOUT_S = 5.0
RESPONSE_BYTES_MAX = 1024 * 1024

_REFUSALS = frozenset((400, 413, 422))  # the batch itself is wrong; the same batch would fail again


class WorkerLogs:
    """Sends one batch per call, or raises `LogsError`."""

    def __init__(self, fetch: Fetch, url: str, api_key: str, redact: Redactor) -> None:
        self._fetch = fetch
        self._url = f"{url.rstrip('/')}/logs"
        self._api_key = api_key
        self._redact = redact

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None:
        logs = [
            {
                "level": entry.level,
                "message": self._redact.text(entry.message),
                "context": self._redact(entry.context),
            }
            for entry in entries
        ]
        try:
            response = await self._fetch(
                self._url,
                method="POST",
                headers={"Content-Type": "application/json", "X-App-ID": app_id, "X-Api-Key": self._api_key},
                body=json.dumps({"logs": logs}).encode(),
                timeout_s=TIMEOUT_S,
                body_max=RESPONSE_BYTES_MAX,
            )
        except FetchError as error:
            raise LogsError(str(error), retryable=True) from error
        if not (response.status == 200 and _is_ok(response.body)):
            text = self._redact.text(response.body.decode(errors="replace"))[:200]
            raise LogsError(
                f"the log service responded with {response.status}: {text}",
                retryable=response.status not in _REFUSALS,
            )


def _is_ok(body: bytes) -> bool:
    try:
        reply = json.loads(body)
    except ValueError:
        return False
    return isinstance(reply, dict) and reply.get("ok") is True
