"""Starts the service as systemd does with tocsin.socket: it holds the listening socket, and the service inherits it."""

import os
import socket
import sys
from pathlib import Path

from support.processes import ServiceProcess

# LISTEN_PID must be the service's own, so the process that becomes the service sets it.
SHIM = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.executable, [sys.executable, "-m", "tocsin", "serve"])
"""


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
