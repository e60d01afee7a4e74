"""The ports: what Tocsin needs of the platform it runs on, with Cloudflare's names in Python's case.

`platform/local` implements them on asyncio and SQLite, `platform/cloudflare` on Cloudflare's own. All other code uses
these protocols and nothing below them.

Storage calls take effect when they are *called*; awaiting one only fetches its result. Cloudflare's promises behave
the same way, so `storage.put(...)` without `await` is a write.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

T = TypeVar("T")

# What storage, RPC and logs carry. Integers have any size; `platform/shared/json_values.py` refuses the rest.
JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None
# A row of a query. SQL types its columns at run time: each query converts what it reads.
Row: TypeAlias = dict[str, Any]

ALARM_LIMIT_MS = 15 * 60_000  # an alarm handler may run this long, on both platforms
# A run must have ended, and the next alarm must ring, before the handler that started the run reaches its limit.
SLICE_MAX_MS = ALARM_AHEAD_MAX_MS = ALARM_LIMIT_MS - 60_000


class Clock(Protocol):
    """The only source of time. Instants are wall-clock unix milliseconds; durations are monotonic.

    `boot_id` names the stretch of time in which monotonic times can be compared, also between processes; it is empty
    where that is unknown.
    """

    @property
    def boot_id(self) -> str: ...
    def now(self) -> int: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class Logger(Protocol):
    """Structured lines: an event named `noun.verb_past`, and fields. It is a required argument everywhere."""

    def debug(self, event: str, /, **fields: JSON) -> None: ...
    def info(self, event: str, /, **fields: JSON) -> None: ...
    def warn(self, event: str, /, **fields: JSON) -> None: ...
    def error(self, event: str, /, **fields: JSON) -> None: ...
    def bind(self, **fields: JSON) -> "Logger": ...


Level: TypeAlias = Literal["DEBUG", "INFO", "WARN", "ERROR"]


def write_log(logger: Logger, level: Level, event: str, fields: Mapping[str, JSON]) -> None:
    """Write a line whose level is a value."""
    write = {"DEBUG": logger.debug, "INFO": logger.info, "WARN": logger.warn, "ERROR": logger.error}[level]
    write(event, **fields)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line on its way to a log service, which has a time of its own: `at` in the context is the line's."""

    level: Level
    message: str
    context: Mapping[str, JSON]


class Logs(Protocol):
    """The worker-logs service: accepts a batch, or raises `LogsError`."""

    async def log_batch(self, app_id: str, entries: Sequence[LogEntry]) -> None: ...


# An ASGI extension of our own server: `SendComplete` under this name in `scope["extensions"]`.
SEND_COMPLETE = "tocsin.send_complete"


class SendComplete(Protocol):
    """Send a whole response at once, given as bytes; False if it must be sent by messages."""

    def __call__(self, status_line: bytes, rest: bytes) -> bool: ...


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A complete response. Header names are lower-case; redirects are not followed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetch(Protocol):
    """One HTTP exchange. Raises `FetchTimeout`, `FetchTooLarge` or `FetchFailed`; never retries."""

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse: ...


class KV(Protocol):
    """Text under keys, with expiry: Workers KV."""

    async def get(self, key: str) -> str | None: ...
    async def get_many(self, keys: Sequence[str]) -> dict[str, str]: ...
    async def put(self, key: str, value: str, *, expiration_ttl: int | None = None) -> None: ...
    async def delete(self, key: str) -> None: ...
    async def list(self, *, prefix: str = "", limit: int = 1000, cursor: str | None = None) -> "KVList": ...


@dataclass(frozen=True, slots=True)
class KVList:
    """A page of key names in byte order; `cursor` continues it, None when it is the last."""

    keys: list[str]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class DBMeta:
    """What a statement did."""

    changes: int
    last_row_id: int
    rows_read: int
    rows_written: int


@dataclass(frozen=True, slots=True)
class DBResult:
    """Rows of one statement, and what it did."""

    results: list[Row]
    meta: DBMeta


class Statement(Protocol):
    """A prepared statement of D1: `bind` returns a new one; nothing runs before `first`, `all` or `run`."""

    def bind(self, *values: str | float | bytes | None) -> "Statement": ...
    async def first(self) -> Row | None: ...
    async def all(self) -> DBResult: ...
    async def run(self) -> DBResult: ...


class Database(Protocol):
    """D1. There is no interactive transaction: what must be atomic is one `batch`."""

    def prepare(self, sql: str) -> Statement: ...
    async def batch(self, statements: Sequence[Any]) -> list[DBResult]: ...


@dataclass(frozen=True, slots=True)
class AlarmInfo:
    """The argument of `alarm()`. `scheduled_time` is the time that was set, on every retry."""

    scheduled_time: int
    retry_count: int

    @property
    def is_retry(self) -> bool:
        return self.retry_count > 0


class Entries(Protocol):
    """What storage and a transaction on it have in common."""

    @overload
    def get(self, key: str, /) -> Awaitable[Any]: ...  # the caller knows what it stored
    @overload
    def get(self, key: Sequence[str], /) -> Awaitable[dict[str, Any]]: ...
    @overload
    def put(self, key: str, value: JSON, /) -> Awaitable[None]: ...
    @overload
    def put(self, key: Mapping[str, JSON], /) -> Awaitable[None]: ...
    @overload
    def delete(self, key: str, /) -> Awaitable[bool]: ...
    @overload
    def delete(self, key: Sequence[str], /) -> Awaitable[int]: ...
    def list(
        self,
        *,
        start: str | None = None,
        start_after: str | None = None,
        end: str | None = None,
        prefix: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Awaitable[dict[str, Any]]: ...
    def get_alarm(self) -> Awaitable[int | None]: ...
    def set_alarm(self, scheduled_time: float) -> Awaitable[None]: ...
    def delete_alarm(self) -> Awaitable[None]: ...


class StorageTransaction(Entries, Protocol):
    """Storage as seen inside `transaction()`."""

    def rollback(self) -> None: ...


class Storage(Entries, Protocol):
    """An object's own durable storage and its one alarm."""

    def delete_all(self) -> Awaitable[None]: ...
    def sync(self) -> Awaitable[None]: ...
    def transaction(self, work: Callable[[StorageTransaction], Awaitable[T]]) -> Awaitable[T]: ...
    def transaction_sync(self, work: Callable[[], T]) -> T: ...


class ObjectId(Protocol):
    """Names one object of one namespace; its text is 64 hex digits."""

    @property
    def name(self) -> str | None: ...


class ObjectContext(Protocol):
    """`ctx`: the first argument of an object's constructor."""

    @property
    def id(self) -> ObjectId: ...
    @property
    def storage(self) -> Storage: ...
    def block_concurrency_while(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...
    def wait_until(self, work: Awaitable[Any]) -> None: ...
    def abort(self, reason: str | None = None, *, retry_alarm: bool = True) -> None: ...


class DurableObject:
    """Base class of objects. Public methods can be called through a stub; `alarm(info)` is called when it rings.

    The constructor must be quick and cannot await: use `ctx.block_concurrency_while` to load state.
    """

    def __init__(self, ctx: ObjectContext, env: Any) -> None:
        self.ctx = ctx
        self.env = env
