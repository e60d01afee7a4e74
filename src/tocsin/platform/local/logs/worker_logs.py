"""The `Logs` binding over HTTP: the worker-logs service takes batches under an app's id and key.

That service answers 200 also when it failed inside; only `ok` in the body tells.
"""

import json
from collections.abc import Sequence

from tocsin.bindings import Fetch, LogEntry
from tocsin.errors import FetchError, LogsError
from tocsin.platform.shared.redaction import Redactor

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 1024 * 1024

_NEVER_TAKEN = frozenset((400, 413, 422))  # the batch itself is wrong; sending it again changes nothing


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
            answer = await self._fetch(
                self._url,
                method="POST",
                headers={"Content-Type": "application/json", "X-App-ID": app_id, "X-Api-Key": self._api_key},
                body=json.dumps({"logs": logs}).encode(),
                timeout_s=TIMEOUT_S,
                body_max=ANSWER_BYTES_MAX,
            )
        except FetchError as error:
            raise LogsError(str(error), retryable=True) from error
        if not (answer.status == 200 and _says_ok(answer.body)):
            said = self._redact.text(answer.body[:200].decode(errors="replace"))
            raise LogsError(
                f"the log service answered {answer.status}: {said}",
                retryable=answer.status not in _NEVER_TAKEN,
            )


def _says_ok(body: bytes) -> bool:
    try:
        answer = json.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("ok") is True
