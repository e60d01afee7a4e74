"""Every error that is raised on purpose, grouped by what the caller can do about it.

A program's own errors may be subclasses of `HoldfastError`. Then one `except` catches all expected errors, and the
caller of an object gets the errors of the object with their classes.
"""

from typing import ClassVar, Literal, TypeAlias


class HoldfastError(Exception):
    """Base of all errors raised on purpose."""

    by_name: ClassVar[dict[str, type["HoldfastError"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        HoldfastError.by_name[cls.__name__] = cls


class UsageError(HoldfastError):
    """The caller's mistake; the sentence explains how to fix it."""


class ValueRefused(UsageError, TypeError):
    """An argument that is not accepted; nothing was written."""


class StartError(HoldfastError):
    """The process must not start; the sentence names the cause and the fix."""


class DataDirInUse(StartError):
    """Another process holds the data directory."""


class StoreUnusable(StartError):
    """The data directory cannot be used as it is; nothing was written."""


class SchemaMismatch(StartError):
    """The database was made by another version of the code."""


class MigrationFailed(StartError):
    """A migration did not apply; the database is in the state after the previous migration."""


class BindingMissing(HoldfastError):
    """The platform lacks a binding; the sentence names it and how to provide it."""


class ObjectError(HoldfastError):
    """A call to an object failed. The flags are Cloudflare's."""

    remote: bool = False
    retryable: bool = False
    overloaded: bool = False
    durable_object_reset: bool = False


class ObjectReset(ObjectError):
    """The object was reset; replies that it had not sent are lost. A new stub reaches the next instance."""

    def __init__(
        self, message: str, *, overloaded: bool = False, durable_object_reset: bool = True, by_platform: bool = False
    ) -> None:
        super().__init__(message)
        self.overloaded = overloaded
        self.durable_object_reset = durable_object_reset
        self.by_platform = by_platform  # the disk failed, not the object: it does not count as a retry


class RemoteError(ObjectError):
    """The object's method raised an exception class of its own: `ClassName: message`."""

    remote = True


class StoreError(HoldfastError):
    """DB or KV refused a statement; nothing was written."""


ConstraintKind: TypeAlias = Literal["unique", "foreign_key", "check", "not_null", "other"]


class ConstraintViolated(StoreError):
    """A statement broke a rule of the schema. A primary key counts as `unique`, as in SQLite's own messages."""

    def __init__(self, message: str, kind: ConstraintKind) -> None:
        super().__init__(message)
        self.kind = kind


class StoreUnavailable(StoreError):
    """The database cannot be used now: full, locked, damaged or closed."""
