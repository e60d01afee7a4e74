"""The service and the simulator as real processes, as an operator would start them."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.patience import PATIENCE_S
from support.tocsin_command import tocsin_here
from support.warm_process import WarmProcess

ADMIN_KEY = "an-admin-key-for-tests"
SERVE = (sys.executable, "-m", "tocsin", "serve")  # for measurements: a process that shares no memory


def ask(url: str, *, headers: dict[str, str] | None = None, body: Any = None) -> tuple[int, Any]:
    """Return status and JSON body; sends a POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    sent = {**({} if data is None else {"Content-Type": "application/json"}), **(headers or {})}
    request = urllib.request.Request(url, data, sent)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def until(look: Callable[[], Any], wait_s: float = PATIENCE_S) -> Any:
    """Poll for an event of another process until it is true."""
    ends = time.monotonic() + wait_s
    while time.monotonic() < ends:
        try:
            found = look()
        except (OSError, KeyError, ValueError):
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


class Process:
    """A Tocsin command. Its environment has only what a test gives, so it is the same everywhere.

    `PYTHONPATH` names the source: `make mutants` runs the tests in a copy of it.
    """

    def __init__(self, *arguments: str, command: Sequence[str] = (), **environment: str) -> None:
        """Start `tocsin` with the arguments, or another command. It gets the inheritable descriptors."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "PYTHONPATH") if name in os.environ}
        known = {**kept, **environment}
        self._process: subprocess.Popen[str] | WarmProcess
        if command:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=known, close_fds=False
            )
        else:
            self._process = WarmProcess(*arguments, environment=known)

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end_unread(self) -> int:
        """Wait for its end without reading its output."""
        return self._process.wait(PATIENCE_S)

    def end(self) -> tuple[int, str, str]:
        out, error = self._process.communicate(timeout=PATIENCE_S)
        return self._process.wait(), out, error


class ServiceProcess(Process):
    """`tocsin serve`, on a free port."""

    def __init__(self, data_dir: Path, *, command: Sequence[str] = (), **settings: str) -> None:
        with_defaults = {
            "ADMIN_KEY": ADMIN_KEY,
            "TOCSIN_PORT": "0",
            "TOCSIN_READS_PER_MINUTE": "0",  # tests poll from one address
            "TOCSIN_DATA_DIR": str(data_dir),
            **settings,
        }
        super().__init__("serve", command=command, **with_defaults)

    def ready(self) -> "ServiceProcess":
        """Wait for the log line with its URL."""
        while line := self.line():
            if '"service.started"' in line:
                self.url: str = json.loads(line)["url"]
                return self
        raise AssertionError(self.end())

    def status(self) -> Any:
        return ask(f"{self.url}/api/admin/scheduler", headers={"X-Admin-Key": ADMIN_KEY})[1]["status"]

    def runs(self, task: str = "") -> Any:
        """The runs on record, newest first: of one task, or of all."""
        runs = f"{self.url}/api/admin/scheduler/runs?task={task}"
        return ask(runs, headers={"X-Admin-Key": ADMIN_KEY})[1]["runs"]


@contextmanager
def calling(url: str) -> Iterator[None]:
    """Make a POST that gets no response, because its server dies."""

    def call() -> None:
        with suppress(OSError, ValueError, http.client.HTTPException):
            ask(url, headers={"X-Admin-Key": ADMIN_KEY}, body={})

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_S)


def import_agents(data_dir: Path, lines: str) -> None:
    """Run `tocsin import`, as an operator would."""
    file = data_dir.with_name(f"{data_dir.name}-agents.jsonl")
    file.write_text(lines)
    arguments = ("import", str(file), "--data-dir", str(data_dir))
    with ThreadPoolExecutor(1) as thread:  # this thread may be running the loop of a browser
        done = thread.submit(tocsin_here, *arguments, environment={}).result()
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def running(process: ServiceProcess) -> Iterator[ServiceProcess]:
    try:
        yield process.ready()
    finally:
        process.kill()


def root_of(upstreams: dict[str, str]) -> str:
    """Return the base URL of the simulator's own routes: `/_control`, `/_truth`, `/_agents`."""
    return upstreams["HIRO_API_URL"].removesuffix("/hiro")


@contextmanager
def running_simulator(*, wallets: int = 3, history_hours: float = 0.1, speed: float = 1.0) -> Iterator[dict[str, str]]:
    """A small simulator without limits; yields the settings of its URLs. Speed 0 stops the chain."""
    arguments = ["simulate", "--port=0", "--no-limits"]
    arguments += [f"--wallets={wallets}", f"--history-hours={history_hours}", f"--speed={speed}"]
    with WarmProcess(*arguments, environment=os.environ) as process:
        try:
            lines = [process.stdout.readline().strip() for _ in range(2)]
            yield dict(line.split("=", 1) for line in lines)
        finally:
            process.kill()


@contextmanager
def held_port() -> Iterator[int]:
    """Hold a port on which nothing listens and which the system gives to nobody else.

    A server that is given this number can listen there, stop, and listen again.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        if sys.platform != "linux":  # elsewhere a bound port cannot be shared with a server
            held.close()
        yield port
