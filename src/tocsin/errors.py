"""Every error that Tocsin raises on purpose, grouped by what the caller can do about it.

TocsinError
├── UsageError           the caller's mistake: the sentence explains how to fix it
│   └── ValueRefused     an argument that is not accepted; names it, its type and what is accepted
├── StartError           the process must not start: names the cause and the fix
│   ├── DataDirInUse     another process holds the data directory
│   ├── StoreUnusable    disk full or read-only, a corrupt file
│   ├── SchemaMismatch   a newer or different schema than this code expects
│   └── MigrationFailed  a migration did not apply; none of it was kept
├── BindingMissing       the platform lacks a binding that is needed: names it
├── RequestRefused       an HTTP request that fails; has its status and its code
├── ImportRefused        a file that cannot be imported as it is; nothing was written
├── BackupRefused        a backup that cannot be made, read or restored: names the cause and the fix
├── RoundFileError       an invalid file of a round: names the line
├── OtherNetwork         a push is about another chain or network than ours
├── TransactionUnreadable  there is no transaction to explain: no answer from Hiro, or none in the file
├── ServiceUnreachable   a command found no running service: the sentence explains how to start it
├── RunStopped           a run must end at this checkpoint (a pause, or the end of its slice); tasks must not catch it
├── ObjectError          a call to an object failed; check its flags
│   ├── ObjectReset      the object was reset (abort, failed commit, critical section): use a new stub
│   └── RemoteError      the object's method raised an exception class of its own
├── StoreError           DB or KV refused a statement; nothing was written
│   ├── ConstraintViolated   a UNIQUE, FOREIGN KEY, CHECK or NOT NULL rule of the schema; check `kind`
│   └── StoreUnavailable     full, locked, damaged or closed: the same call may work later
├── LogsError            the log service did not accept a batch; check `retryable`
├── FetchError           an HTTP exchange without a response
│   ├── FetchTimeout     no complete response in time
│   ├── FetchTooLarge    the body is larger than the cap
│   └── FetchFailed      no connection, or it was lost
├── MalformedBody        a body that breaks its upstream's contract; names the field
├── MalformedShape       a stored or sent value that does not have the expected shape; names the field
└── NoAnswer             an upstream call ended without the needed fact; check `answer`
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias


class TocsinError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(TocsinError):
    """The caller's mistake; the sentence explains how to fix it."""


class ValueRefused(UsageError, TypeError):
    """An argument that is not accepted; nothing was written."""


class StartError(TocsinError):
    """The process must not start; the sentence names the cause and the fix."""


class DataDirInUse(StartError):
    """Another process holds the data directory."""


class StoreUnusable(StartError):
    """The data directory cannot be used as it is; nothing was written."""


class SchemaMismatch(StartError):
    """The database was made by another version of the code."""


class MigrationFailed(StartError):
    """A migration did not apply; the database is in the state after the previous migration."""


class BindingMissing(TocsinError):
    """The platform lacks a binding; the sentence names it and how to provide it."""


class RequestRefused(TocsinError):
    """The sentence, status and code that a client gets, with further `fields` and `headers`."""

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        retryable: bool = False,
        headers: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - JSON, which a higher layer defines
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.headers = dict(headers or {})
        self.fields = fields


class ImportRefused(TocsinError):
    """A file cannot be imported; nothing was written."""


class BackupRefused(TocsinError):
    """A backup cannot be made, read or restored; the data directory is as it was."""


class RoundFileError(TocsinError):
    """The file of a round is incomplete, or violates its format."""

    def __init__(self, line: int | None, what: str) -> None:
        super().__init__(what if line is None else f"line {line}: {what}")
        self.line = line


class OtherNetwork(TocsinError):
    """A push that is not about Stacks mainnet."""


class TransactionUnreadable(TocsinError):
    """There is no transaction to explain; the sentence states why."""


class ServiceUnreachable(TocsinError):
    """No service answers where a command looks for it."""


class RunStopped(TocsinError):
    """The run must end here; the work done so far is kept. `outcome` is how it is recorded."""

    def __init__(self, reason: str, *, outcome: Literal["stopped", "partial"] = "stopped") -> None:
        super().__init__(reason)
        self.outcome = outcome


class ObjectError(TocsinError):
    """A call to an object failed. The flags are Cloudflare's."""

    remote: bool = False
    retryable: bool = False
    overloaded: bool = False
    durable_object_reset: bool = False


class ObjectReset(ObjectError):
    """The object was reset; replies that it had not sent are lost. A new stub reaches the next instance."""

    def __init__(
        self,
        message: str,
        *,
        overloaded: bool = False,
        durable_object_reset: bool = True,
        by_platform: bool = False,
    ) -> None:
        super().__init__(message)
        self.overloaded = overloaded
        self.durable_object_reset = durable_object_reset
        self.by_platform = by_platform  # the disk failed, not the object: it does not count as a retry


class RemoteError(ObjectError):
    """The object's method raised an exception class of its own: `ClassName: message`."""

    remote = True


class StoreError(TocsinError):
    """DB or KV refused a statement; nothing was written."""


ConstraintKind: TypeAlias = Literal["unique", "foreign_key", "check", "not_null", "other"]


class ConstraintViolated(StoreError):
    """A statement broke a rule of the schema. A primary key counts as `unique`, as in SQLite's own messages."""

    def __init__(self, message: str, kind: ConstraintKind) -> None:
        super().__init__(message)
        self.kind = kind


class StoreUnavailable(StoreError):
    """The database cannot be used now: full, locked, damaged or closed."""


class LogsError(TocsinError):
    """The log service did not accept a batch. Unless `retryable`, it never will."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class FetchError(TocsinError):
    """An HTTP exchange without a response."""


class FetchTimeout(FetchError):
    """No complete response within the given time."""


class FetchTooLarge(FetchError):
    """The body is larger than the caller allowed; it was not read further."""


class FetchFailed(FetchError):
    """The connection could not be made, or was lost."""


class MalformedBody(TocsinError):
    """An upstream's body breaks its contract; the sentence names the field."""


class MalformedShape(TocsinError):
    """A value does not have the expected shape; the sentence names the field."""


class ShareUsed(TocsinError):
    """One client has used its share of the calls to an upstream; it may ask again after `wait_s`."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"this client has used its share of the calls: wait {wait_s} s")
        self.wait_s = wait_s


class CallEnd(Protocol):
    """How an upstream call ended; the classes are in `upstream/answer.py`."""

    @property
    def kind(self) -> str: ...


class NoAnswer(TocsinError):
    """An upstream call did not end with a fact; `answer` is how it ended."""

    def __init__(self, answer: CallEnd) -> None:
        super().__init__(getattr(answer, "reason", answer.kind))
        self.answer = answer
