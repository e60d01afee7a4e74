"""The scheduler calls out from inside the real runtime: alerts, heartbeats, and a change at Hiro."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.hiro_hooks import HOOK_UUID
from support.patience import PATIENCE_S
from support.processes import root_of, running_simulator
from support.workerd import Workerd, require_workerd, running


class Receiver(ThreadingHTTPServer):
    """Accepts everything and remembers it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[str, str, Any]] = []  # method, path, body
        self.news = threading.Condition()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def wait_for(self, count: int) -> list[tuple[str, str, Any]]:
        with self.news:
            assert self.news.wait_for(lambda: len(self.received) >= count, PATIENCE_S), self.received
            return list(self.received)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.news:
            self.server.received.append((self.command, self.path, json.loads(body) if body else None))
            self.server.news.notify_all()
        self.send_response(202)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = _take  # noqa: N815 - the names are the server's

    def log_message(self, *_arguments: Any) -> None:
        """Write nothing to stderr."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            receiver.shutdown()


def ended(workerd: Workerd, task: str) -> dict[str, Any]:
    """The first run of a task that has ended."""
    while True:
        for run in workerd.call("SCHEDULER", "v1", "runs", {"task": task})["runs"]:
            if run["outcome"] != "running":
                return dict(run)
        time.sleep(0.05)


@pytest.mark.slow
def test_an_alert_is_sent_once_from_inside_the_runtime(tmp_path: Path) -> None:
    """At the first ring, as a POST; a process that was killed and started again does not repeat it."""
    require_workerd()
    with receiving() as receiver, running_simulator() as upstreams:
        settings = {
            **upstreams,
            "TOCSIN_SWEEP_ENABLED": "no",
            "TOCSIN_ALERT_URL": f"{receiver.url}/hook",
            "TOCSIN_HEARTBEAT_URL": f"{receiver.url}/beat",
        }
        with running(tmp_path, settings) as workerd:
            workerd.migrate()
            workerd.request("POST", "/api/deployed")
            ((method, path, alert),) = receiver.wait_for(1)
            while not [line for line in workerd.console() if line["event"] == "alert.sent"]:
                time.sleep(0.05)
            ended(workerd, "tenero")
            workerd.kill()
            workerd.start()
            again = workerd.call("SCHEDULER", "v1", "refresh_now", "tenero")["run"]
            workerd.call("SCHEDULER", "v1", "status")

    assert (method, path) == ("POST", "/hook")
    assert (alert["event"], alert["state"], alert["instance"]) == ("not_ready", "disabled", "v1")
    assert alert["reasons"] == ["Swap sweep switched off (TOCSIN_SWEEP_ENABLED)"]
    assert again["outcome"] == "ok"
    assert len(receiver.received) == 1  # no second alert, and no heartbeat while it is not ready


@pytest.mark.slow
def test_heartbeats_and_changes_at_hiro_leave_the_runtime(tmp_path: Path) -> None:
    """A GET after the first ring; an interrupted hook is enabled again with a PATCH, whose answer has no body."""
    require_workerd()
    with receiving() as receiver, running_simulator() as upstreams:
        control = urllib.request.Request(
            f"{root_of(upstreams)}/_control/switch",
            data=b'{"hook": "interrupted"}',
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        urllib.request.urlopen(control, timeout=PATIENCE_S).close()
        settings = {
            **upstreams,
            "HIRO_API_KEY": "a-key-of-ours",
            "TOCSIN_CHAINHOOK_ID": HOOK_UUID,
            "TOCSIN_CHAINHOOK_REENABLE": "yes",
            "TOCSIN_HEARTBEAT_URL": f"{receiver.url}/beat",
        }
        with running(tmp_path, settings) as workerd:
            workerd.migrate()
            workerd.request("POST", "/api/deployed")
            run = ended(workerd, "chainhook")
            beats = receiver.wait_for(1)

    assert (run["outcome"], run["result"]["hook"], run["result"]["reenabled"]) == ("ok", "interrupted", True)
    assert beats[0] == ("GET", "/beat", None)
