"""What the logs of both platforms share: the form of a line, masking of secrets, and delivery to the log service.

A line is `{"at": …, "level": …, "event": …, <fields>}`. Everything for the log stream and the log service passes
through one `Redactor`, so callers need not know which field is secret. A secret is masked in upper and lower case:
plain, percent-encoded, escaped as in JSON, in hexadecimal digits, reversed, and in base64, also as a part of a longer
text that was encoded, such as `user:key`.

`LogSender` sends entries in batches. The log stream or the console has every line in any case.

- A batch that the service refuses for good (`retryable` is False) is dropped, so that it cannot block others.
- A batch that failed returns to the head of the queue and is sent again, after 1 s, doubling up to 60 s. If only the
  reply was lost, or the process ended meanwhile, the service has its entries twice.
- A full queue drops the oldest entry, DEBUG and INFO before WARN and ERROR. After the next success, the number of
  dropped entries is sent to the log and the service.

Emits `logs.send_failed`, `logs.send_recovered`, `logs.batch_refused`, `logs.entries_dropped` and `logs.entries_left`.
"""

import asyncio
import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, quote_plus

from holdfast.types import JSON, Clock, Level, Levels, Logger

QUEUE_MAX = 1000  # entries
LOG_APP_ID = "aibtc-landing"  # the name of this application at the log service
BATCH_MAX = 100  # entries
GATHER_S = 1.0  # how long the first entry of a batch waits for others
RETRY_MIN_S = 1.0
RETRY_MAX_S = 60.0
RANKS: dict[Level, int] = {"DEBUG": 0, "INFO": 1, "WARN": 2, "ERROR": 3}
_TAKEN = frozenset(("at", "level", "event"))  # names that a line uses itself
ENCODED_MIN = 8  # characters of a secret; encodings of shorter ones are parts of ordinary words
MASK = "[redacted]"
TEXT_MAX = 8_000  # characters per text; a whole page of an upstream does not belong in a line
ITEMS_MAX = 200  # per list or dict
DEPTH_MAX = 8


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line for a log service. The service adds its own time; `at` in the context is the time of the line."""

    level: Level
    message: str
    context: Mapping[str, JSON]


class Logs(Protocol):
    """The worker-logs service: accepts a batch, or raises `LogsError`."""

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None: ...


class LogSender:
    """Sends entries in the background: waits a second for more, sends all of them, and waits after a failure.

    `spawn` runs the work, for `lasts_s` at most; the rest goes with the next entry. Cloudflare ends the background of
    an event half a minute after the response, without notice: code that waits then never continues, and its batch is
    lost.
    """

    def __init__(
        self,
        logs: Logs,
        app_id: str,
        clock: Clock,
        logger: Logger,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None] | None],
        lasts_s: float = math.inf,
    ) -> None:
        """`logger` reports on the sender itself. It must not lead back to this sender."""
        self._logs = logs
        self._app_id = app_id
        self._clock = clock
        self._logger = logger
        self._spawn = spawn
        self._lasts_s = lasts_s
        self._queue: list[LogEntry] = []
        self._dropped = 0
        self._failures = 0  # in a row
        self._started_at: float | None = None  # of `_send_all`, while it runs
        self._work: asyncio.Task[None] | None = None

    def offer(self, entry: LogEntry) -> None:
        """Queue an entry. Returns at once, never raises."""
        self._queue.append(entry)
        self._shrink()
        now = self._clock.monotonic()
        if self._started_at is None or now - self._started_at > 2 * self._lasts_s:
            self._started_at = now
            self._work = self._spawn(self._send_all(now))

    async def close(self, wait_s: float) -> None:
        """Send the rest, for at most this long, without waiting for more or after a failure."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait({self._work})
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._queue and await self._send_batch():
                    pass
        if self._queue:
            self._logger.warning("logs.entries_left", count=len(self._queue))

    async def _send_all(self, started_at: float) -> None:
        try:
            await self._clock.sleep(GATHER_S)
            while self._queue:
                if await self._send_batch():
                    continue
                wait_s = min(RETRY_MIN_S * 2.0 ** min(self._failures - 1, 10), RETRY_MAX_S)
                if self._clock.monotonic() + wait_s > started_at + self._lasts_s:
                    return
                await self._clock.sleep(wait_s)
        finally:
            if self._started_at == started_at:
                self._started_at = None

    async def _send_batch(self) -> bool:
        """Send the first batch. False: it failed and is in the queue again."""
        batch = self._queue[:BATCH_MAX]
        del self._queue[:BATCH_MAX]
        try:
            await self._logs.log_batch(self._app_id, batch)
        except Exception as error:  # noqa: BLE001 - any error is reported, and the sender continues
            sentence = f"{type(error).__name__}: {error}"
            if not getattr(error, "retryable", True):
                self._logger.warning("logs.batch_refused", count=len(batch), error=sentence)
                return True
            self._put_back(batch)
            self._failures += 1
            waiting = len(self._queue)
            self._logger.warning("logs.send_failed", waiting=waiting, failures=self._failures, error=sentence)
            return False
        except asyncio.CancelledError:
            self._put_back(batch)
            raise
        self._report_success()
        return True

    def _put_back(self, batch: list[LogEntry]) -> None:
        self._queue[:0] = batch
        self._shrink()

    def _shrink(self) -> None:
        while len(self._queue) > QUEUE_MAX:
            routine = (place for place, entry in enumerate(self._queue) if entry.level in {"DEBUG", "INFO"})
            del self._queue[next(routine, 0)]
            self._dropped += 1

    def _report_success(self) -> None:
        if self._failures:
            self._logger.info("logs.send_recovered", failures=self._failures)
            self._failures = 0
        if self._dropped and len(self._queue) < QUEUE_MAX:  # or the notice would drop another entry
            fields: dict[str, JSON] = {"count": self._dropped}
            self._dropped = 0
            self._logger.warning("logs.entries_dropped", **fields)
            self._queue.append(LogEntry("WARN", "logs.entries_dropped", fields))


class JsonLogger(Levels):
    """The `Logger` binding: one JSON object per line. `write` gets each line, and `tee` each entry, without secrets."""

    def __init__(
        self,
        write: Callable[[Level, str], object],
        clock: Clock,
        redact: "Redactor",
        *,
        level_min: Level = "INFO",
        tee: Callable[[LogEntry], None] | None = None,
    ) -> None:
        self._write = write
        self._clock = clock
        self._redact = redact
        self._level_min = level_min
        self._tee = tee

    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None:
        if RANKS[level] < RANKS[self._level_min]:
            return
        message = self._redact.text(event)
        context = self._redact.fields(_renamed(fields))
        at = self._clock.now()
        if self._tee is not None:
            self._tee(LogEntry(level, message, {"at": at, **context}))
        self._write(level, json.dumps({"at": at, "level": level, "event": message, **context}))


def _renamed(fields: dict[str, JSON]) -> dict[str, JSON]:
    """The fields, with `_` added to names that a line uses itself."""
    return {f"{name}_" if name in _TAKEN else name: value for name, value in fields.items()}


def forms_of(secrets: Iterable[str]) -> list[str]:
    """Every form of every secret, longest first, because one may be a prefix of another."""
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    return sorted(forms, key=len, reverse=True)


def pattern_of(forms: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of the forms; if several match at one position, the first one given."""
    return re.compile("|".join(map(re.escape, forms)) or r"(?!)", re.IGNORECASE)


def _forms(secret: str) -> Iterator[str]:
    yield from (secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
    if len(secret) >= ENCODED_MIN:
        yield secret[::-1]
        raw = secret.encode()
        yield raw.hex()
        for before in range(3):  # how many bytes of a group of three come before the secret
            encoded = b64encode(bytes(before) + raw).decode()
            # Only the characters that depend on nothing but the secret.
            whole = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
            yield from (whole, whole.replace("+", "-").replace("/", "_"))


class Redactor:
    """Converts any value to JSON and masks the secrets, plain, percent-encoded or escaped as in JSON."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these secrets from now on, in addition to the known ones."""
        self._secrets |= set(secrets)
        self._secret = pattern_of(forms_of(self._secrets))

    def __call__(self, value: object, depth: int = 0) -> JSON:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float) and (not isinstance(value, float) or math.isfinite(value)):
            text = str(value)
            return value if self._secret.search(text) is None else self.text(text)
        if depth < DEPTH_MAX:
            if isinstance(value, Mapping):
                items = list(value.items())[:ITEMS_MAX]
                return {self.text(_as_text(key)): self(item, depth + 1) for key, item in items}
            if isinstance(value, list | tuple | set | frozenset):
                return [self(item, depth + 1) for item in list(value)[:ITEMS_MAX]]
        return self.text(_as_text(value))

    def fields(self, fields: Mapping[str, Any]) -> dict[str, JSON]:
        """The fields of a log line."""
        clean = self(fields)
        assert isinstance(clean, dict)
        return clean

    def text(self, text: str) -> str:
        # Mask before cutting: a cut inside a secret would leave its first part.
        clean = self._secret.sub(MASK, text)
        return clean if len(clean) <= TEXT_MAX else f"{clean[:TEXT_MAX]}… and {len(clean) - TEXT_MAX} more"


def _as_text(value: object) -> str:
    """Any object as text. Never raises: a log line about a failure must not fail itself."""
    try:
        if isinstance(value, BaseException):
            return f"{type(value).__name__}: {value}"
        if isinstance(value, bytes):
            return value.decode(errors="backslashreplace")
        return str(value)
    except Exception:  # noqa: BLE001 - whatever a foreign __str__ raises
        return f"<{type(value).__name__} that cannot be shown>"
