"""Every error Tocsin raises on purpose, by what the caller can do about it.

TocsinError
├── UsageError           the caller's mistake: the sentence says how to fix it
│   └── ValueRefused     a value that storage or RPC does not carry; names the key and the type
├── StartError           the process must not start: names the cause and the fix
│   ├── DataDirInUse     another process holds the data directory
│   ├── StoreUnusable    disk full or read-only, a corrupt file
│   └── SchemaMismatch   a newer or different schema than this code expects
├── ObjectError          a call to an object failed; look at its flags
│   ├── ObjectReset      the object was reset (abort, failed commit, critical section): ask a new stub
│   └── RemoteError      the object's own method raised something of its own
├── FetchError           an HTTP exchange that has no answer
│   ├── FetchTimeout     no complete answer in time
│   ├── FetchTooLarge    the body passed the cap
│   └── FetchFailed      no connection, or it was cut
└── MalformedBody        a body that breaks its upstream's contract; names the field
"""


class TocsinError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(TocsinError):
    """The caller's mistake; the sentence says how to fix it."""


class ValueRefused(UsageError, TypeError):
    """Not a value that storage or RPC carries; nothing of the call was written."""


class StartError(TocsinError):
    """The process must not start; the sentence names the cause and the fix."""


class DataDirInUse(StartError):
    """Another process holds the data directory."""


class StoreUnusable(StartError):
    """The data directory cannot be used as it is; nothing was written."""


class SchemaMismatch(StartError):
    """The database was made by other code than this."""


class ObjectError(TocsinError):
    """A call to an object failed. The flags are Cloudflare's."""

    remote: bool = False
    retryable: bool = False
    overloaded: bool = False
    durable_object_reset: bool = False


class ObjectReset(ObjectError):
    """The object was reset; its unsent replies are void. A new stub reaches the next instance."""

    def __init__(self, message: str, *, overloaded: bool = False, durable_object_reset: bool = True) -> None:
        super().__init__(message)
        self.overloaded = overloaded
        self.durable_object_reset = durable_object_reset


class RemoteError(ObjectError):
    """The object's method raised an exception class of its own: `ClassName: message`."""

    remote = True


class FetchError(TocsinError):
    """An HTTP exchange that has no answer."""


class FetchTimeout(FetchError):
    """No complete answer within the time given."""


class FetchTooLarge(FetchError):
    """The body is larger than the caller allowed; it was not read further."""


class FetchFailed(FetchError):
    """The connection could not be made, or was cut."""


class MalformedBody(TocsinError):
    """An upstream's body is not what its contract says; the sentence names the field."""
