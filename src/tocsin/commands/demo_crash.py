"""Crashes of the demo: the process is replaced at once, as with `kill -9` and a restart.

Nothing is flushed, closed or reported. The new process has the same id, so it stays attached to the terminal. It uses
the previous one's data directory, key and chain: a chain depends only on its seed and its start time.
"""

import json
import os
import sys
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tocsin.access_keys import AccessKey
from tocsin.commands.demo_directory import AGAIN
from tocsin.simulator.control_access import refusal_of


def crash(directory: str, port: int) -> None:
    """Replace this process with a new one. Does not return."""
    environment = {**os.environ, AGAIN: json.dumps({"directory": directory, "port": str(port)})}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - our own command again


class CrashRoute:
    """`POST /_control/kill`: for callers that may control the simulator."""

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
