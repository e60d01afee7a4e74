"""Crashes of the demo: the process is replaced at once, as `kill -9` and a new start would do.

Nothing is flushed, closed or told to anybody. The new process has the same id, so the terminal keeps it. It finds the
data directory, the key and the chain of the one before: a chain depends only on its seed and on when it began.
"""

import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tocsin.access_keys import AccessKey
from tocsin.simulator.control_access import refusal_of

AGAIN = "DEMO_AGAIN"  # in the environment of a process that replaced another: its temporary directory and its port
FILE = "demo.json"
AGE_MAX_MS = 6 * 3_600_000  # an older demo starts over: to catch up would take its chain too long


@dataclass(frozen=True, slots=True)
class DemoBeginning:
    """When a demo began (unix ms), and its key."""

    began_at: int
    key: str
    is_new: bool


def beginning(directory: Path, now: int) -> DemoBeginning:
    """Of the demo in this directory, or of a new one."""
    try:
        stored = json.loads((directory / FILE).read_text())
        began_at, key = int(stored["beganAt"]), str(stored["key"])
    except (OSError, ValueError, KeyError, TypeError):
        began_at, key = 0, ""
    if key and 0 <= now - began_at <= AGE_MAX_MS:
        return DemoBeginning(began_at, key, is_new=False)
    return DemoBeginning(now, secrets.token_urlsafe(12), is_new=True)


def remember(directory: Path, begun: DemoBeginning) -> None:
    """Have the demo found again, once everything that it begins with is there."""
    file = directory / FILE
    file.touch(mode=0o600)
    file.write_text(json.dumps({"beganAt": begun.began_at, "key": begun.key}))


@contextmanager
def demo_directory(chosen: Path | None, port: int | None) -> Iterator[tuple[str, int | None]]:
    """The chosen directory, or one that is removed after the demo, and the port; after a crash, those of before."""
    again: dict[str, str] = json.loads(os.environ.pop(AGAIN, "{}"))
    port = int(again["port"]) if again else port
    if chosen is not None:
        yield str(chosen), port
        return
    made = again.get("directory") or tempfile.mkdtemp(prefix="tocsin-demo-")
    try:
        yield made, port
    finally:
        shutil.rmtree(made, ignore_errors=True)


def crash(directory: str, port: int) -> None:
    """Replace this process by a new one. Does not return."""
    environment = {**os.environ, AGAIN: json.dumps({"directory": directory, "port": str(port)})}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - our own command again


class CrashRoute:
    """`POST /_control/kill`: for those who may control the simulator."""

    def __init__(self, keys: tuple[AccessKey, ...], crash: Callable[[], object]) -> None:
        self._keys = keys
        self._crash = crash

    async def kill(self, request: Request) -> Response:
        refusal = refusal_of(request, self._keys)
        if refusal is not None:
            body = {"error": refusal.sentence, "code": refusal.code, "retryable": False}
            return JSONResponse(body, refusal.status)
        self._crash()
        return Response()  # in a test only
