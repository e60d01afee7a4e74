"""What operators do: who asks, what was done, and what a reload changed."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

AuditOutcome: TypeAlias = Literal["begun", "done", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Caller(Shape):
    """Whose key a request has, and its role. A viewer may look and not act."""

    name: str
    role: Literal["operator", "viewer"]


@dataclass(frozen=True, slots=True)
class AuditEntry(Shape):
    """An action that is about to be done. `key` is the name of a key, never the key."""

    key: str
    role: Literal["operator", "cron"]
    client: str
    action: str
    target: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord(Shape):
    """One action of the audit log. While it is `begun`, nothing is known of its end: it may have been done."""

    id: str
    at: int
    key: str
    role: Literal["operator", "cron"]
    client: str
    action: str
    target: str | None
    reason: str | None
    outcome: AuditOutcome = "begun"
    ended_at: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class AuditList(Shape):
    """Actions, newest first. `name` is the scheduler instance."""

    name: str | None
    records: list[AuditRecord]


@dataclass(frozen=True, slots=True)
class Reloaded(Shape):
    """The answer to a reload, by the names of settings.

    `applied` changed and are in force. `needs_restart` changed too, but only a restart applies them. `overridden` stand
    in `.env` with a value that the environment or the command line replaces, which a running process cannot see change.
    """

    name: str | None
    applied: list[str]
    needs_restart: list[str]
    overridden: list[str]
