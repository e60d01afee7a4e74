"""`python -m tocsin` in a separate process that need not import anything: see `support.warm_template`."""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self, TextIO

from support.warm_template import NUMBER

TESTS = Path(__file__).parents[1]
_STARTING = threading.Lock()


@functools.cache
def _template() -> socket.socket:
    """The channel to the process that forks: one for each process of tests."""
    ours, its = socket.socketpair()
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(TESTS))))
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.warm_template", str(its.fileno())],
            env={**kept, "PYTHONPATH": path},
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(_end, ours, process)
    return ours


def _end(channel: socket.socket, template: "subprocess.Popen[bytes]") -> None:
    channel.close()
    template.wait()


class WarmProcess:
    """The part of `subprocess.Popen` that tests use, with text in pipes."""

    def __init__(self, *arguments: str, environment: Mapping[str, str], directory: Path | None = None) -> None:
        self.returncode: int | None = None
        self._reply, reply = socket.socketpair()
        (out, its_out), (error, its_error) = os.pipe(), os.pipe()
        self.stdout: TextIO = os.fdopen(out)
        self.stderr: TextIO = os.fdopen(error)
        request = {"arguments": arguments, "environment": dict(environment), "directory": str(directory or Path.cwd())}
        message = f"{json.dumps(request)}\n".encode()
        with _STARTING:
            socket.send_fds(_template(), [message], [its_out, its_error, reply.fileno()])
            reply.close()  # otherwise the end of the template would go unnoticed
            self.pid = self._told()
        os.close(its_out)
        os.close(its_error)

    def _told(self) -> int:
        message = self._reply.recv(NUMBER.size)
        if not message:
            raise ChildProcessError("the process that forks has ended: its error is above")
        number: int = NUMBER.unpack(message)[0]
        return number

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Returns its exit code, or the signal that ended it, as a negative number."""
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                self.returncode = self._told()
            except (BlockingIOError, TimeoutError) as error:
                raise subprocess.TimeoutExpired("tocsin", timeout or 0.0) from error
            self._reply.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all its output and wait for its end."""
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(pipe.read) for pipe in (self.stdout, self.stderr) if not pipe.closed]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            read = [text.result() for text in texts]
        self.stdout.close()
        self.stderr.close()
        out, error = read or ("", "")
        return out, error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.communicate()
