"""Communication with the supervisor that started this process, by systemd's conventions.

The supervisor may pass sockets that already listen (`LISTEN_FDS`), so that no connection is refused while one process
replaces another. It may ask to be notified when the process is ready or stops (`NOTIFY_SOCKET`), and at regular
intervals (`WATCHDOG_USEC`). Where none of this is in the environment, nothing happens.

Emits `supervisor.unreachable`, once, when a message cannot be sent.
"""

import os
import socket
from collections.abc import Callable, Mapping

from holdfast.errors import StartError
from holdfast.types import Clock, Logger

FIRST_FD = 3
STATUS_EVERY_S = 10.0
STATUS_MAX = 300
BEATS_PER_WATCHDOG = 3


def inherited_sockets(environment: Mapping[str, str], pid: int) -> list[socket.socket]:
    """The listening sockets that the supervisor passed to this process, if any."""
    if environment.get("LISTEN_PID") != str(pid):
        return []
    text = environment.get("LISTEN_FDS", "0")
    if not text.isdigit():
        raise StartError(f"LISTEN_FDS is {text!r:.40}: it must be the number of sockets passed")
    return [_adopted(fd) for fd in range(FIRST_FD, FIRST_FD + int(text))]


def _adopted(fd: int) -> socket.socket:
    try:
        found = socket.socket(fileno=fd)
    except OSError as error:
        raise StartError(f"file descriptor {fd} is not a socket, although LISTEN_FDS includes it: {error}") from error
    is_tcp = found.family in {socket.AF_INET, socket.AF_INET6} and found.type == socket.SOCK_STREAM
    if not is_tcp or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        found.detach()
        raise StartError(
            f"the socket passed as file descriptor {fd} does not listen on a TCP port."
            " In tocsin.socket, use ListenStream= with an address and a port, and Accept=no"
        )
    found.set_inheritable(False)
    return found


class Supervisor:
    """Notifies the supervisor of the state of this process, if it asks for that."""

    def __init__(self, environment: Mapping[str, str], pid: int, logger: Logger) -> None:
        self._address = _notify_address(environment.get("NOTIFY_SOCKET", ""))
        self._watchdog_s = _watchdog_s(environment, pid)
        self._logger = logger
        self._failed = False

    def ready(self, status: str) -> None:
        """Report that the process listens and its stores are open."""
        self._tell("READY=1", _status(status))

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=stopping: finishing requests under way")

    async def keep_informed(self, clock: Clock, status: Callable[[], str]) -> None:
        """Send the watchdog message and the newest status from the event loop, so that a blocked loop sends none."""
        if self._address is None:
            return
        every_s = STATUS_EVERY_S
        if self._watchdog_s is not None:
            every_s = min(every_s, self._watchdog_s / BEATS_PER_WATCHDOG)
        alive = [] if self._watchdog_s is None else ["WATCHDOG=1"]
        while True:
            self._tell(*alive, _status(status()))
            await clock.sleep(every_s)

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._failed:
                self._logger.warning("supervisor.unreachable", error=str(error))
            self._failed = True
        else:
            self._failed = False


def _notify_address(name: str) -> str | None:
    """The address for messages: a path, or a name in the abstract namespace, which is written with an @."""
    if not name.startswith(("/", "@")):
        return None
    return "\0" + name[1:] if name.startswith("@") else name


def _watchdog_s(environment: Mapping[str, str], pid: int) -> float | None:
    """The longest interval between messages that the supervisor accepts."""
    text = environment.get("WATCHDOG_USEC", "")
    for_us = environment.get("WATCHDOG_PID", str(pid)) == str(pid)
    return int(text) / 1_000_000 if for_us and text.isdigit() and int(text) > 0 else None


def _status(text: str) -> str:
    """The text on one line: a line break would begin another message."""
    return f"STATUS={' '.join(text.split())[:STATUS_MAX]}"


def is_supervised(environment: Mapping[str, str]) -> bool:
    """Whether a supervisor started this process. It may still have to stop the previous one."""
    return "NOTIFY_SOCKET" in environment or environment.get("LISTEN_PID") == str(os.getpid())
