"""The audit log: the newest actions of operators, in the object's own storage.

The records are stored next to the pause and the runs, so no action can be done without being recorded: if that fails,
the caller gets the store's error instead. A pause and its record are one transaction. An action that lasts is recorded
before it is done and again when it has ended. If only the end cannot be recorded, the record stays `begun`, and
`audit.end_failed` in the log shows the outcome. Actions of `CRON_SECRET` are kept separately: a caller that acts every
few minutes must not push out the actions of people.

Emits `admin.acted` when an action has ended, `audit.end_failed`, and `audit.record_unreadable` for a record that is
skipped.
"""

from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import TypeVar

from holdfast.errors import HoldfastError, UsageError
from holdfast.storage import Storage
from holdfast.types import Clock, Logger
from tocsin.errors import MalformedShape, RequestRefused
from tocsin.scheduler.client import SchedulerClient
from tocsin.scheduler.types import AuditEntry, AuditOutcome, AuditRecord
from tocsin.shape import FreeForm

T = TypeVar("T")

AUDIT_PREFIX = "audit:"
KEPT_MAX = {"operator": 1_000, "cron": 100}
EVENT_FIELDS = ("key", "client", "action", "target", "reason", "outcome", "detail")
TEXT_MAX = 300  # characters of a record's detail


class AuditLog:
    """The object's side: keeps the records."""

    def __init__(
        self, storage: Storage, clock: Clock, logger: Logger, mask: Callable[[str], str], emit: Callable[..., None]
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._logger = logger
        self._mask = mask
        self._emit = emit
        self._newest: dict[str, int] = {}  # the number of the newest record, by role

    async def record(self, by: FreeForm | None, act: Callable[[], str | None]) -> None:
        """Do an action and record it in the same transaction. `act` returns the result in a few words.

        `by` is an `AuditEntry`; without it, nothing is recorded.
        """
        if by is None:
            act()
            return
        entry = AuditEntry.from_json(by)
        await self._find_newest(entry.role)
        record = self._begun(entry)  # from here on, nothing is awaited
        try:
            detail = act()
        except UsageError as error:
            self._ended(record, "refused", str(error))
            raise
        self._ended(record, "done", detail)

    async def begin(self, entry: AuditEntry) -> AuditRecord:
        """Record an action that is about to be done."""
        await self._find_newest(entry.role)
        return self._begun(entry)

    async def _find_newest(self, role: str) -> None:
        if role not in self._newest:
            stored = await self._storage.list(prefix=_prefix(role), reverse=True, limit=1)
            self._newest.setdefault(role, max((_number(key) for key in stored), default=0))

    def _begun(self, entry: AuditEntry) -> AuditRecord:
        """Store a new record. If the log is full, the oldest one is removed."""
        role = entry.role
        number = self._newest[role] = self._newest[role] + 1
        stated = {each.name: getattr(entry, each.name) for each in fields(AuditEntry)}
        record = AuditRecord(**stated, id=f"{role}-{number}", at=self._clock.now())
        self._storage.put(_key(record.id), self._masked(record).to_json())
        if number > KEPT_MAX[role]:  # numbers have no gaps
            self._storage.delete(_key(f"{role}-{number - KEPT_MAX[role]}"))
        return record

    async def end(self, record_id: str, outcome: AuditOutcome, detail: str | None) -> None:
        """Record how an action ended."""
        stored = await self._storage.get(_key(record_id))
        if stored is None:
            raise UsageError(f"there is no record {record_id!r:.60} in the audit log")
        self._ended(AuditRecord.from_json(stored), outcome, detail)

    def _ended(self, begun: AuditRecord, outcome: AuditOutcome, detail: str | None) -> None:
        record = self._masked(replace(begun, outcome=outcome, ended_at=self._clock.now(), detail=detail))
        self._storage.put(_key(record.id), record.to_json())
        shown = record.to_json()
        fields: FreeForm = {**{name: shown[name] for name in EVENT_FIELDS}, "record": record.id}
        self._emit("admin.acted", fields, level="INFO" if outcome == "done" else "WARN")

    async def newest(self, limit: int) -> list[AuditRecord]:
        """The newest first."""
        records = [
            record
            for role in KEPT_MAX
            for key, value in (await self._storage.list(prefix=_prefix(role), reverse=True, limit=limit)).items()
            if (record := self._read(key, value)) is not None
        ]
        return sorted(records, key=lambda record: record.at, reverse=True)[:limit]

    def _read(self, key: str, value: object) -> AuditRecord | None:
        try:
            return self._masked(AuditRecord.from_json(value))  # type: ignore[arg-type]  # it reports a wrong type
        except MalformedShape as error:
            self._logger.exception("audit.record_unreadable", key=key, reason=str(error))
            return None

    def _masked(self, record: AuditRecord) -> AuditRecord:
        """The record without secrets: somebody may paste a key as a reason, even one that only a later reload adds."""
        texts = {name: self._clean(getattr(record, name)) for name in ("target", "reason", "detail")}
        return replace(record, **texts)  # type: ignore[arg-type]  # all three are texts or None

    def _clean(self, text: str | None) -> str | None:
        return None if text is None else self._mask(text)[:TEXT_MAX]


def _prefix(role: str) -> str:
    return f"{AUDIT_PREFIX}{role}:"


def _key(record_id: str) -> str:
    role, _, number = record_id.partition("-")
    return f"{_prefix(role)}{number.zfill(12)}"


def _number(key: str) -> int:
    return int(key.rpartition(":")[2])


async def audited(
    scheduler: Callable[[], SchedulerClient],
    logger: Logger,
    entry: AuditEntry,
    work: Callable[[], Awaitable[T]],
    detail_of: Callable[[T], str | None],
) -> T:
    """Do `work`, record it, and return its result. `detail_of` describes the result in a few words."""
    record_id = await scheduler().audit_begin(entry)

    async def end(outcome: AuditOutcome, detail: str | None) -> None:
        try:
            await scheduler().audit_end(record_id, outcome, detail)
        except HoldfastError as error:
            logger.exception(
                "audit.end_failed",
                record=record_id,
                action=entry.action,
                key=entry.key,
                outcome=outcome,
                error=str(error)[:300],
            )

    try:
        result = await work()
    except Exception as error:
        is_refused = isinstance(error, UsageError) or (isinstance(error, RequestRefused) and error.status < 500)
        await end("refused" if is_refused else "failed", f"{error}" or type(error).__name__)
        raise
    await end("done", detail_of(result))
    return result
