"""The scheduler calls out from inside the real runtime: alerts, heartbeats, and a change at Hiro."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.hiro_hooks import HOOK_UUID
from support.answers import Answer, answering
from support.patience import PATIENCE_S
from support.processes import root_of, running_simulator, until
from support.workerd import Workerd, require_workerd, running


@contextmanager
def receiving() -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """Accept everything. Yields the URL, and what arrived: method, path and body."""
    received: list[tuple[str, str, Any]] = []

    def respond(request: BaseHTTPRequestHandler) -> Answer:
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        received.append((request.command, request.path, json.loads(body) if body else None))
        return 202, {}, b""

    with answering(respond) as port:
        yield f"http://127.0.0.1:{port}", received


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
    with receiving() as (url, received), running_simulator() as upstreams:
        settings = {
            **upstreams,
            "TOCSIN_SWEEP_ENABLED": "no",
            "TOCSIN_ALERT_URL": f"{url}/hook",
            "TOCSIN_HEARTBEAT_URL": f"{url}/beat",
        }
        with running(tmp_path, settings) as workerd:
            workerd.migrate()
            workerd.request("POST", "/api/deployed")
            until(lambda: received)
            while not [line for line in workerd.console() if line["event"] == "alert.sent"]:
                time.sleep(0.05)
            ended(workerd, "tenero")
            workerd.kill()
            workerd.start()
            again = workerd.call("SCHEDULER", "v1", "refresh_now", "tenero")["run"]
            workerd.call("SCHEDULER", "v1", "status")

    [(method, path, alert)] = received  # no second alert, and no heartbeat while it is not ready
    assert (method, path) == ("POST", "/hook")
    assert (alert["event"], alert["state"], alert["instance"]) == ("not_ready", "disabled", "v1")
    assert alert["reasons"] == ["Swap sweep switched off (TOCSIN_SWEEP_ENABLED)"]
    assert again["outcome"] == "ok"


@pytest.mark.slow
def test_heartbeats_and_changes_at_hiro_leave_the_runtime(tmp_path: Path) -> None:
    """A GET after the first ring; an interrupted hook is enabled again with a PATCH, whose answer has no body."""
    require_workerd()
    with receiving() as (url, received), running_simulator() as upstreams:
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
            "TOCSIN_HEARTBEAT_URL": f"{url}/beat",
        }
        with running(tmp_path, settings) as workerd:
            workerd.migrate()
            workerd.request("POST", "/api/deployed")
            run = ended(workerd, "chainhook")
            until(lambda: received)

    assert (run["outcome"], run["result"]["hook"], run["result"]["reenabled"]) == ("ok", "interrupted", True)
    assert received[0] == ("GET", "/beat", None)
