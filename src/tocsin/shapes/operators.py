"""Actions of operators: who acts, what was done, and what a reload changed."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

AuditOutcome: TypeAlias = Literal["begun", "done", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Caller(Shape):
    """The name and the role of the key of a request. A viewer may look but not act."""

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
    """One action in the audit log. While it is `begun`, its outcome is not known: it may have been done."""

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
    """The answer to a reload: lists of setting names.

    `applied` settings changed and are in force. `needs_restart` settings changed too, but only a restart applies them.
    `overridden` settings have a value in `.env` that the environment or the command line overrides; a running process
    cannot see changes there.
    """

    name: str | None
    applied: list[str]
    needs_restart: list[str]
    overridden: list[str]
