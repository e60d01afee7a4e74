"""Every error that Tocsin raises on purpose, beside those of `holdfast.errors` and `NoAnswer` of an upstream.

`HoldfastError` is the base of all.
"""

from collections.abc import Mapping
from typing import Any, Literal

from holdfast.errors import HoldfastError


class RequestRefused(HoldfastError):
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


class FileRefused(HoldfastError):
    """A file or a directory cannot be used as it is, and nothing was changed: names the cause and the fix."""


class RoundFileError(HoldfastError):
    """The file of a round is incomplete, or violates its format; the sentence names the line."""


class OtherNetwork(HoldfastError):
    """A push that is not about Stacks mainnet."""


class ServiceUnreachable(HoldfastError):
    """No service answers where a command looks for it; the sentence explains how to start it."""


class RunStopped(HoldfastError):
    """The run must end at this checkpoint, as at a pause or the end of its slice. Tasks must not catch it.

    The work done so far is kept. `outcome` is how the run is recorded.
    """

    def __init__(self, reason: str, *, outcome: Literal["stopped", "partial"] = "stopped") -> None:
        super().__init__(reason)
        self.outcome = outcome


class LogsError(HoldfastError):
    """The log service did not accept a batch. Unless `retryable`, it never will."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class FetchError(HoldfastError):
    """An HTTP exchange without a response."""


class FetchTimeout(FetchError):
    """No complete response within the given time."""


class FetchTooLarge(FetchError):
    """The body is larger than the caller allowed; it was not read further. `start` is what was read."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str], start: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.start = start


class FetchFailed(FetchError):
    """The connection could not be made, or was lost."""


class MalformedBody(HoldfastError):
    """An upstream's body breaks its contract; the sentence names the field."""


class MalformedShape(HoldfastError):
    """A value does not have the expected shape; the sentence names the field."""


class ShareUsed(HoldfastError):
    """One client has used its share of the calls to an upstream; it may ask again after `wait_s`."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"this client has used its share of the calls: wait {wait_s} s")
        self.wait_s = wait_s
