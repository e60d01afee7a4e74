"""`python import_guarded.py MODULE…`: import modules as Cloudflare does, without entropy, threads and clock.

The runtime's own modules are empty stand-ins. The standard library is imported before, as on Cloudflare.
"""

import asyncio  # noqa: F401 - see above
import datetime as dt
import importlib
import os
import random
import secrets
import sys
import threading
import time
import types
import uuid
from typing import Any, NoReturn


def refuse(what: str) -> Any:
    def refused(*_arguments: Any, **_options: Any) -> NoReturn:
        raise RuntimeError(f"{what} at import time")

    return refused


class NoNow(dt.datetime):
    """A datetime without the current time."""

    now: Any = classmethod(refuse("datetime.now"))
    utcnow: Any = now
    today: Any = now


def forbid_calls() -> None:
    dt.datetime = NoNow  # type: ignore[misc]  # on purpose
    for module, names in (
        (os, ("urandom", "getrandom")),
        (random, [name for name in random.__all__ if name.islower()]),
        (secrets, ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")),
        (uuid, ("uuid1", "uuid4")),
        (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")),
        (threading.Thread, ("start",)),
    ):
        for name in names:
            setattr(module, name, refuse(f"{getattr(module, '__name__', module)}.{name}"))


def stand_in() -> None:
    for name, members in (
        ("js", ()),
        ("pyodide", ()),
        ("pyodide.ffi", ("JsException", "create_once_callable", "create_proxy", "to_js")),
        ("workers", ("DurableObject", "WorkerEntrypoint")),
    ):
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, type(member, (Exception,) if member == "JsException" else (), {}))
        sys.modules[name] = module


if __name__ == "__main__":
    stand_in()
    forbid_calls()
    for name in sys.argv[1:]:
        importlib.import_module(name)
    print(" ".join(sorted(sys.modules)))
