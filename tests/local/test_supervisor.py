"""The messages to a supervisor, over a real datagram socket, and the sockets inherited from it."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StartError
from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.patience import PATIENCE_S
from support.processes import ServiceProcess
from tocsin.local.supervisor import Supervisor, inherited_sockets

NOWHERE = {"HIRO_API_URL": "http://127.0.0.1:9", "TENERO_API_URL": "http://127.0.0.1:9"}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(PATIENCE_S)
        yield made


def messages(receiver: socket.socket) -> list[str]:
    """Everything that has arrived."""
    receiver.setblocking(False)
    found = []
    while True:
        try:
            found.append(receiver.recv(4096).decode())
        except BlockingIOError:
            return found


def test_readiness_and_the_end_are_told(receiver: socket.socket) -> None:
    """With a status in one line, whatever it says."""
    made = Supervisor({"NOTIFY_SOCKET": receiver.getsockname()}, 7, CapturedLog())
    made.ready("overdue: one\nMAINPID=1")
    made.stopping()

    assert messages(receiver) == [
        "READY=1\nSTATUS=overdue: one MAINPID=1",
        "STOPPING=1\nSTATUS=stopping: finishing requests under way",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux has abstract names of sockets.")
def test_an_abstract_name_works_too() -> None:
    """As containers use it: an @ stands for the zero byte."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        name = f"tocsin-test-{os.getpid()}"
        receiver.bind("\0" + name)
        Supervisor({"NOTIFY_SOCKET": f"@{name}"}, 7, CapturedLog()).ready("ready")

        assert messages(receiver) == ["READY=1\nSTATUS=ready"]


async def test_the_loop_itself_feeds_the_watchdog(receiver: socket.socket) -> None:
    """Three times within the time that the supervisor waits; while the loop is blocked, nothing is sent."""
    environment = {"NOTIFY_SOCKET": receiver.getsockname(), "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}
    made, clock = Supervisor(environment, 7, CapturedLog()), VirtualClock()
    feeding = asyncio.create_task(made.keep_informed(clock, lambda: "ready"))
    await clock.sleep(29)

    assert messages(receiver) == ["WATCHDOG=1\nSTATUS=ready"] * 3
    feeding.cancel()


async def test_without_a_watchdog_only_the_status_is_sent(receiver: socket.socket) -> None:
    """Even when the watchdog belongs to another process."""
    environment = {"NOTIFY_SOCKET": receiver.getsockname(), "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}
    clock = VirtualClock()
    feeding = asyncio.create_task(Supervisor(environment, 7, CapturedLog()).keep_informed(clock, lambda: "failing: a"))
    await clock.sleep(1)

    assert messages(receiver) == ["STATUS=failing: a"]
    feeding.cancel()


@pytest.mark.parametrize(
    ("watchdog_us", "count"), [(None, 3), ("0", 3), ("x", 3), ("60000000", 3), ("12000000", 8), ("15000000", 6)]
)
async def test_the_status_is_sent_every_ten_seconds_or_three_times_in_a_watchdog(
    receiver: socket.socket, watchdog_us: str | None, count: int
) -> None:
    """Whichever comes first: a watchdog of a minute does not make the status older."""
    environment = {"NOTIFY_SOCKET": receiver.getsockname(), "WATCHDOG_PID": "7"}
    if watchdog_us is not None:
        environment["WATCHDOG_USEC"] = watchdog_us
    made, clock = Supervisor(environment, 7, CapturedLog()), VirtualClock()
    feeding = asyncio.create_task(made.keep_informed(clock, lambda: "ready"))
    await clock.sleep(29.5)
    feeding.cancel()

    assert len(messages(receiver)) == count


def test_a_status_is_one_line_of_three_hundred_characters(receiver: socket.socket) -> None:
    """A line break would begin another message."""
    Supervisor({"NOTIFY_SOCKET": receiver.getsockname()}, 7, CapturedLog()).ready("a\n\tb " + "c" * 400)

    assert messages(receiver) == ["READY=1\nSTATUS=a b " + "c" * 296]


async def test_without_a_supervisor_nothing_happens() -> None:
    """And nothing continues in the background."""
    log = CapturedLog()
    made = Supervisor({}, 7, log)
    made.ready("ready")
    await made.keep_informed(VirtualClock(), lambda: "ready")

    assert log.lines == []


def test_a_supervisor_that_cannot_be_reached_is_reported_once(tmp_path: Path) -> None:
    """It stops nothing: the service has other work to do."""
    log = CapturedLog()
    made = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, 7, log)
    made.ready("ready")
    made.stopping()

    assert [line.event for line in log.lines] == ["supervisor.unreachable"]


def test_a_number_of_sockets_that_is_none_is_refused() -> None:
    """With the name of what is wrong."""
    with pytest.raises(StartError, match="LISTEN_FDS is 'two'"):
        inherited_sockets({"LISTEN_PID": "7", "LISTEN_FDS": "two"}, 7)


def test_sockets_of_another_process_are_left_alone() -> None:
    """They were passed to one that started this one."""
    assert inherited_sockets({"LISTEN_PID": "8", "LISTEN_FDS": "1"}, 7) == []
    assert inherited_sockets({}, 7) == []


@pytest.mark.slow
def test_the_service_tells_when_it_is_ready_alive_and_stopping(tmp_path: Path, receiver: socket.socket) -> None:
    """It is ready when it serves; a stopped process sends no keep-alive."""
    service = ServiceProcess(tmp_path / "data", NOTIFY_SOCKET=receiver.getsockname(), WATCHDOG_USEC="300000", **NOWHERE)
    first = receiver.recv(4096).decode()
    beats = [receiver.recv(4096).decode() for _ in range(3)]
    service.signal(signal.SIGSTOP)
    time.sleep(0.1)  # a last keep-alive may be on its way
    messages(receiver)
    receiver.settimeout(0.5)
    with pytest.raises(TimeoutError):
        receiver.recv(4096)
    service.signal(signal.SIGCONT)
    service.signal(signal.SIGTERM)
    code, out, _error = service.end()

    assert first.startswith("READY=1\nSTATUS=starting")
    assert all(beat.startswith("WATCHDOG=1\nSTATUS=") for beat in beats)
    assert any(message.startswith("STOPPING=1\n") for message in messages(receiver))
    assert code == 0
    assert "supervisor.unreachable" not in out
