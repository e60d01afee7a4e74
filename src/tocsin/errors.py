"""Every error that Tocsin raises on purpose, grouped by what the caller can do about it.

HoldfastError            the runtime's: see `holdfast.errors`. Catch it to catch all errors of this tree
└── TocsinError
    ├── RequestRefused       an HTTP request that fails; has its status and its code
    ├── ImportRefused        a file that cannot be imported as it is; nothing was written
    ├── BackupRefused        a backup that cannot be made, read or restored: names the cause and the fix
    ├── RoundFileError       an invalid file of a round: names the line
    ├── OtherNetwork         a push is about another chain or network than ours
    ├── ServiceUnreachable   a command found no running service: the sentence explains how to start it
    ├── RunStopped           a run must end at this checkpoint (a pause, the end of its slice); tasks must not catch it
    ├── LogsError            the log service did not accept a batch; check `retryable`
    ├── FetchError           an HTTP exchange without a response
    │   ├── FetchTimeout     no complete response in time
    │   ├── FetchTooLarge    the body is larger than the cap
    │   └── FetchFailed      no connection, or it was lost
    ├── MalformedBody        a body that breaks its upstream's contract; names the field
    ├── MalformedShape       a stored or sent value that does not have the expected shape; names the field
    ├── ShareUsed            one client has used its share of the calls to an upstream; has the seconds to wait
    └── NoAnswer             an upstream call ended without the needed fact; check `answer`
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from holdfast.errors import HoldfastError


class TocsinError(HoldfastError):
    """Base of all errors raised on purpose."""


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


class ServiceUnreachable(TocsinError):
    """No service answers where a command looks for it."""


class RunStopped(TocsinError):
    """The run must end here; the work done so far is kept. `outcome` is how it is recorded."""

    def __init__(self, reason: str, *, outcome: Literal["stopped", "partial"] = "stopped") -> None:
        super().__init__(reason)
        self.outcome = outcome


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
