"""A socket that outlives the service, and clients that count its responses while the service is replaced."""

import http.client
import os
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from support.patience import PATIENCE_S
from support.processes import ServiceProcess, until

PATHS = ("/healthz", "/api/prices", "/api/competition/leaderboard", "/api/competition/allowlist")
CLOSED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
# LISTEN_PID must be the service's own, so the process that becomes the service sets it.
SHIM = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.executable, [sys.executable, "-m", "tocsin", "serve"])
"""


@dataclass
class Tally:
    """The responses of all clients. `repeated`: an idle connection had been closed, and a new one was used."""

    answered: int = 0
    repeated: int = 0
    failed: list[str] = field(default_factory=list)


class UpgradeLoad:
    """Some clients open a connection for each request, others keep theirs.

    Together they send at least `wanted` requests, and continue until `finish`.
    """

    def __init__(self, address: tuple[str, int], *, wanted: int, clients: int = 4) -> None:
        self.tally = Tally()
        self._address = address
        self._wanted = wanted
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask_often, args=(number % 2 == 0,)) for number in range(clients)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int) -> None:
        """Wait until this many requests have ended."""
        until(lambda: self.tally.answered + len(self.tally.failed) >= count, 600)

    def _is_done(self) -> bool:
        return self._stop.is_set() and self.tally.answered + len(self.tally.failed) >= self._wanted

    def finish(self) -> Tally:
        """Wait until all requests have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.tally

    def _ask_often(self, keep_alive: bool) -> None:
        connection = self._connect()
        number = 0
        while not self._is_done():
            if not keep_alive:
                connection.close()
                connection = self._connect()
            self._ask(connection, PATHS[number % len(PATHS)])
            number += 1
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, path: str) -> None:
        """Send a request; like every client, repeat it if a reused connection turns out to be closed."""
        is_used = connection.sock is not None
        try:
            status = self._status(connection, path)
        except CLOSED as error:
            connection.close()
            if not is_used:
                self._count(f"{path}: {error!r}")
                return
            with self._lock:
                self.tally.repeated += 1
            self._ask(connection, path)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._count(f"{path}: {error!r}")
        else:
            self._count(None if status == 200 else f"{path}: status {status}")

    def _status(self, connection: http.client.HTTPConnection, path: str) -> int:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status

    def _count(self, problem: str | None) -> None:
        with self._lock:
            if problem is None:
                self.tally.answered += 1
            else:
                self.tally.failed.append(problem)

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self._address, timeout=PATIENCE_S)


class Activator:
    """A listening socket that outlives the processes that serve it."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.address: tuple[str, int] = self.socket.getsockname()
        os.set_inheritable(self.socket.fileno(), True)

    def start(self) -> ServiceProcess:
        command = [sys.executable, "-c", SHIM, str(self.socket.fileno())]
        return ServiceProcess(self._data_dir, command=command, **self._settings)

    def close(self) -> None:
        self.socket.close()
