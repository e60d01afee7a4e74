"""A reload of the real process: by SIGHUP and by the command, from `.env` in its directory."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.processes import Process, ask, until
from support.tocsin_command import tocsin_process

OLD, NEW, VIEWER = "an-old-key-of-this-test", "a-new-key-of-this-test", "a-viewers-key-of-this-test"
CONTRACT = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.a-new-router"


class ReloadedService(Process):
    """`tocsin serve` in a directory of its own, without a terminal."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tocsin", "serve"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=directory,
            env={"PATH": os.environ["PATH"], "TOCSIN_PORT": "0", "TOCSIN_LOG_LEVEL": "DEBUG"},
        )
        self.lines: list[str] = []
        self.url: str = self.event("service.started")["url"]

    def event(self, name: str) -> dict[str, Any]:
        """Read on until this event."""
        while line := self.line():
            self.lines.append(line)
            event: dict[str, Any] = json.loads(line)
            if event["event"] == name:
                return event
        raise AssertionError(self.lines[-5:])

    def opened_by(self, key: str) -> int:
        return ask(f"{self.url}/api/admin/scheduler", headers={"X-Admin-Key": key})[0]


def write_env(directory: Path, admin_key: str, **others: str) -> None:
    values = {
        "ADMIN_KEY": admin_key,
        "TOCSIN_TENERO_ENABLED": "no",
        "TOCSIN_SWEEP_ENABLED": "no",
        "TOCSIN_ALLOWLIST": "list.json",
        **others,
    }
    (directory / ".env").write_text("".join(f"{name}={value}\n" for name, value in values.items()))


@pytest.mark.slow
def test_keys_the_allow_list_and_cadences_change_without_a_restart(tmp_path: Path) -> None:
    """A wrong file changes nothing; a good one changes what it can, and is masked and recorded."""
    (tmp_path / "list.json").write_text(json.dumps({"contracts": {}}))
    write_env(tmp_path, OLD)
    service = ReloadedService(tmp_path)
    try:
        port = int(service.url.rpartition(":")[2])

        # Wrong: refused as a whole, every problem named, by both ways.
        write_env(tmp_path, "short", TOCSIN_SWEEP_CADENCE="fast", TOCSIN_VIEWER_KEY=f"carol:{VIEWER}")
        refused = tocsin_process("reload", port=port, directory=tmp_path, ADMIN_KEY=OLD)
        service.signal(signal.SIGHUP)
        line = service.event("settings.not_reloaded")

        assert refused.returncode == 1
        for text in (refused.stderr, line["error"]):
            assert "ADMIN_KEY: its value is too short" in text
            assert "TOCSIN_SWEEP_CADENCE: 'fast'" in text
            assert "the old settings stay in force" in text
        assert (service.opened_by(OLD), service.opened_by(VIEWER)) == (200, 401)

        # Two keys, a viewer, a cadence, another list; the data directory needs a restart, the port is overridden.
        (tmp_path / "list.json").write_text(json.dumps({"contracts": {CONTRACT: ["swap"]}}))
        write_env(
            tmp_path,
            f"alice:{OLD},alice:{NEW}",
            TOCSIN_VIEWER_KEY=f"carol:{VIEWER}",
            TOCSIN_SWEEP_CADENCE="30m",
            TOCSIN_DATA_DIR="elsewhere",
            TOCSIN_PORT="1",
        )
        done = tocsin_process(
            "reload", "--json", "--reason", f"my key is {NEW}", port=port, directory=tmp_path, ADMIN_KEY=OLD
        )

        assert json.loads(done.stdout) == {
            "name": "v1",
            "applied": ["ADMIN_KEY", "TOCSIN_VIEWER_KEY", "TOCSIN_SWEEP_CADENCE", "TOCSIN_ALLOWLIST"],
            "needsRestart": ["TOCSIN_DATA_DIR"],
            "overridden": ["TOCSIN_PORT"],
        }
        assert [service.opened_by(key) for key in (OLD, NEW, VIEWER)] == [200, 200, 200]
        status = ask(f"{service.url}/api/admin/scheduler", headers={"X-Admin-Key": VIEWER})[1]
        assert status["caller"] == {"name": "carol", "role": "viewer"}
        assert status["status"]["tasks"]["sweep"]["cadenceMs"] == 1_800_000
        listed = ask(f"{service.url}/api/competition/allowlist")[1]["entries"]
        assert CONTRACT in {entry["contract_id"] for entry in listed}

        # The old key goes, by a signal.
        write_env(tmp_path, f"alice:{NEW}", TOCSIN_VIEWER_KEY=f"carol:{VIEWER}")
        service.signal(signal.SIGHUP)
        service.event("settings.reloaded")
        until(lambda: service.opened_by(OLD) == 401)
        assert service.opened_by(NEW) == 200

        # Everything is on record, and no key is anywhere.
        kept = ask(f"{service.url}/api/admin/scheduler/audit", headers={"X-Admin-Key": NEW})[1]["records"]
        shown = tocsin_process("audit", port=port, directory=tmp_path, ADMIN_KEY=f"alice:{NEW}").stdout
        assert [record["key"] for record in kept] == ["SIGHUP", "admin", "SIGHUP", "admin"]
        assert {record["action"] for record in kept} == {"reload"}
        assert [record["outcome"] for record in kept] == ["done", "done", "refused", "refused"]
        assert kept[1]["reason"] == "my key is [redacted]"
        assert "my key is [redacted]" in shown
    finally:
        service.signal(signal.SIGTERM)
        code, rest, _ = service.end()
    written = "".join(service.lines) + rest
    assert code == 0
    assert not any(key in written for key in (OLD, NEW, VIEWER))
