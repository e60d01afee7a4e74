"""The service is replaced under load, by a supervisor that holds the listening socket."""

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import ServiceProcess, ask
from support.upgrade_load import Activator, UpgradeLoad

NOWHERE = {"HIRO_API_URL": "http://127.0.0.1:9", "TENERO_API_URL": "http://127.0.0.1:9"}


@pytest.fixture
def activator(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path / "data", **NOWHERE)
    yield made
    made.close()


@pytest.mark.slow
def test_no_request_fails_while_one_process_replaces_another(activator: Activator) -> None:
    """Neither on new connections nor on kept ones; what arrives in between waits for the new process."""
    service = activator.start().ready()
    load = UpgradeLoad(activator.address, wanted=400)
    load.start()
    pids = {service.pid}
    for answered in (100, 200):
        load.wait_for(answered)
        service.signal(signal.SIGTERM)
        assert service.end()[0] == 0
        service = activator.start().ready()
        pids.add(service.pid)
    tally = load.finish()
    service.kill()

    assert (tally.answered >= 400, tally.failed) == (True, [])
    assert len(pids) == 3


@pytest.mark.slow
def test_a_start_waits_for_the_process_before_it(activator: Activator) -> None:
    """A supervisor may start the next process while the last one still closes its files."""
    first = activator.start().ready()
    second = activator.start()
    time.sleep(0.5)  # it waits, as far as anybody can tell from outside
    first.signal(signal.SIGTERM)

    assert first.end()[0] == 0
    second.ready()
    host, port = activator.address
    assert ask(f"http://{host}:{port}/healthz")[0] == 200
    second.kill()


@pytest.mark.slow
def test_a_socket_for_another_process_is_not_taken(tmp_path: Path) -> None:
    """Without LISTEN_PID of its own a process listens on its own port."""
    service = ServiceProcess(tmp_path, LISTEN_FDS="1", LISTEN_PID="1", **NOWHERE).ready()

    assert ask(f"{service.url}/healthz")[0] == 200
    service.kill()


@pytest.mark.slow
def test_what_is_not_a_listening_socket_is_refused(activator: Activator) -> None:
    """With the line of the unit that has to change, and without a traceback."""
    activator.socket.close()
    activator.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    activator.socket.set_inheritable(True)
    code, _out, error = activator.start().end()

    assert code == 1
    assert "file descriptor 3 does not listen on a TCP port. In tocsin.socket, use ListenStream=" in error
    assert "Traceback" not in error
