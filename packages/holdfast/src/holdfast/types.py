"""The interfaces of objects, databases and KV: Cloudflare's names in Python's spelling.

`holdfast.local` implements them with asyncio and SQLite, `holdfast.cloudflare` with Cloudflare's own bindings.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from holdfast.storage import Storage
from holdfast.values import JSON as JSON  # noqa: PLC0414 - it belongs to these interfaces

T = TypeVar("T")

# A row of a query. SQL columns have their types at run time only: each query converts what it reads.
Row: TypeAlias = dict[str, Any]

ALARM_LIMIT_MS = 15 * 60_000  # an alarm handler may run this long, on both platforms


class Clock(Protocol):
    """The only source of time. Instants are wall-clock unix milliseconds; durations are monotonic."""

    def now(self) -> int: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class Logger(Protocol):
    """Writes structured lines: an event named `noun.verb_past`, and fields."""

    def debug(self, event: str, /, **fields: JSON) -> None: ...
    def info(self, event: str, /, **fields: JSON) -> None: ...
    def warning(self, event: str, /, **fields: JSON) -> None: ...
    def error(self, event: str, /, **fields: JSON) -> None: ...
    def exception(self, event: str, /, **fields: JSON) -> None: ...
    def bind(self, **fields: JSON) -> "Logger": ...


Level: TypeAlias = Literal["DEBUG", "INFO", "WARN", "ERROR"]


class Levels(ABC):
    """The methods of a `Logger`; a subclass writes the line. `exception` is an error that an `except` reports."""

    bound: Mapping[str, JSON] = MappingProxyType({})

    def bind(self, /, **fields: JSON) -> Self:
        """A logger that adds these fields to each of its lines."""
        made = copy(self)
        made.bound = {**self.bound, **fields}
        return made

    def debug(self, event: str, /, **fields: JSON) -> None:
        self._line("DEBUG", event, {**self.bound, **fields})

    def info(self, event: str, /, **fields: JSON) -> None:
        self._line("INFO", event, {**self.bound, **fields})

    def warning(self, event: str, /, **fields: JSON) -> None:
        self._line("WARN", event, {**self.bound, **fields})

    def error(self, event: str, /, **fields: JSON) -> None:
        self._line("ERROR", event, {**self.bound, **fields})

    exception = error

    @abstractmethod
    def _line(self, level: Level, event: str, fields: dict[str, JSON]) -> None: ...


def write_log(logger: Logger, level: Level, event: str, fields: Mapping[str, JSON]) -> None:
    """Write a line at a level given as a value."""
    write = {"DEBUG": logger.debug, "INFO": logger.info, "WARN": logger.warning, "ERROR": logger.error}[level]
    write(event, **fields)


class KV(Protocol):
    """Text values by key, with expiry: Workers KV."""

    async def get(self, key: str) -> str | None: ...
    async def get_many(self, keys: Sequence[str]) -> dict[str, str]: ...
    async def put(self, key: str, value: str, *, expiration_ttl: int | None = None) -> None: ...
    async def delete(self, key: str) -> None: ...
    async def list(self, *, prefix: str = "", limit: int = 1000, cursor: str | None = None) -> "KVList": ...


@dataclass(frozen=True, slots=True)
class KVList:
    """A page of key names in byte order; `cursor` leads to the next page, None if this is the last."""

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
    """The rows of one statement, and what it did."""

    results: list[Row]
    meta: DBMeta


class Statement(Protocol):
    """A prepared statement of D1: `bind` returns a new one; nothing runs before `first`, `all` or `run`."""

    def bind(self, *values: str | float | bytes | None) -> "Statement": ...
    async def first(self) -> Row | None: ...
    async def all(self) -> DBResult: ...
    async def run(self) -> DBResult: ...


class Database(Protocol):
    """D1. It has no interactive transactions: put statements that must be atomic into one `batch`."""

    def prepare(self, sql: str) -> Statement: ...
    async def batch(self, statements: Sequence[Any]) -> list[DBResult]: ...


@dataclass(frozen=True, slots=True)
class AlarmInfo:
    """The argument of `alarm()`. `scheduled_time` is the time that was set; retries have the same."""

    scheduled_time: int
    retry_count: int

    @property
    def is_retry(self) -> bool:
        return self.retry_count > 0


class ObjectId(Protocol):
    """Identifies one object of one namespace; as text it is 64 hex digits."""

    @property
    def name(self) -> str | None: ...


class ObjectContext(Protocol):
    """`ctx`: the first argument of an object's constructor. `now()` is the time in unix milliseconds."""

    @property
    def id(self) -> ObjectId: ...
    @property
    def storage(self) -> Storage: ...
    def now(self) -> int: ...
    def block_concurrency_while(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...
    def wait_until(self, work: Awaitable[Any]) -> None: ...
    def abort(self, reason: str | None = None, *, retry_alarm: bool = True) -> None: ...


class DurableObject:
    """Base class of objects. Public methods can be called through a stub; `alarm(info)` is called when it rings.

    The constructor must be quick and cannot await: use `ctx.block_concurrency_while` to load state.
    """

    def __init__(self, ctx: ObjectContext, env: Any) -> None:  # noqa: ANN401 - each class declares its own
        self.ctx = ctx
        self.env = env
