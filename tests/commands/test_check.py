"""`tocsin check`: each problem that would stop or harm a start is a finding with its fix; nothing is written."""

import shutil
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.local import sqlite_file
from holdfast.local.data_dir import DataDir
from holdfast_testing.captured_log import CapturedLog
from support.scripted_scheduler import named_keys
from tocsin.commands.doctor import called_out, findings
from tocsin.commands.files import load_migrations
from tocsin.settings import Settings

FINE = Settings(admin_key=named_keys("a-long-random-text"))


def found(directory: Path, **changes: Any) -> list[str]:
    settings = replace(FINE, data_dir=str(directory / "data"), **changes)
    return findings(settings, load_migrations())


def test_all_is_fine_and_nothing_is_made(tmp_path: Path) -> None:
    """The start creates a new directory."""
    assert found(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"admin_key": ()}, "ADMIN_KEY is not set"),
        ({"hiro_plan_minute": 500}, "HIRO_API_KEY is not set"),
        ({"tenero_api_key": "a-tenero-key"}, "TOCSIN_TENERO_PLAN_MINUTE"),
        ({"hiro_plan_month": 1_000}, "calls per month, the plan has 1000"),
        ({"tenero_enabled": False, "sweep_enabled": False}, "Both tasks are disabled"),
        ({"host": "203.0.113.7"}, "TOCSIN_HOST: this machine cannot listen on 203.0.113.7"),
        ({"host": "2001:db8::7"}, "TOCSIN_HOST: this machine cannot listen on 2001:db8::7"),
        ({"allowlist": "nowhere.json"}, "TOCSIN_ALLOWLIST: nowhere.json cannot be read"),
    ],
)
def test_each_problem_is_a_finding_with_its_fix(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    """One finding for one problem."""
    (finding,) = found(tmp_path, **changes)

    assert text in finding


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda data: data.write_text(""), "is not a writable directory"),
        (lambda data: (data.mkdir(), (data / "db.sqlite").write_text("what")), "db.sqlite"),
        (lambda data: (data.mkdir(), (data / "kv.sqlite-wal").write_bytes(b"x" * 99)), "kv.sqlite is missing"),
    ],
)
def test_a_data_directory_that_cannot_be_used_is_a_finding(
    spoil: Callable[[Path], Any], text: str, tmp_path: Path
) -> None:
    """Before a start fails."""
    spoil(tmp_path / "data")
    (finding,) = found(tmp_path)

    assert text in finding


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_directory_that_cannot_be_made_is_a_finding() -> None:
    """Even for root, who may write everywhere."""
    (finding,) = findings(replace(FINE, data_dir="/proc/x"), load_migrations())

    assert finding.startswith("/proc/x cannot be created (")
    assert finding.endswith("Choose another directory: TOCSIN_DATA_DIR")


def test_a_port_in_use_is_no_finding(tmp_path: Path) -> None:
    """The running service has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert found(tmp_path, port=server.getsockname()[1]) == []


def test_a_full_disk_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be written, although its permissions allow it."""

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    (tmp_path / "data").mkdir()
    monkeypatch.setattr("holdfast.local.data_dir.os.write", full)
    (finding,) = found(tmp_path)

    assert "full disk" in finding


def test_a_running_service_is_read_through_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files change all the time, so a copy of them would look damaged."""

    def no_copy(*_files: Path) -> None:
        raise AssertionError("a copy of files that somebody writes")

    monkeypatch.setattr(shutil, "copyfile", no_copy)
    path = tmp_path / "data"
    data = DataDir(path, load_migrations(), now=1, logger=CapturedLog())
    try:
        with closing(sqlite_file.connect(path / "kv.sqlite")) as connection:
            connection.execute("INSERT INTO entries VALUES ('a', '1', NULL)")
            assert (path / "kv.sqlite-wal").stat().st_size > 0
            assert found(tmp_path) == []
    finally:
        data.close()


def test_what_the_service_tells_the_outside_is_shown_without_secrets() -> None:
    """An operator sees what is set; the path of a URL may hold a token."""
    settings = replace(
        FINE,
        heartbeat_url="https://hc-ping.com/s3cret",
        alert_url="https://hooks.example.org/services/s3cret",
        alert_format="slack",
        alert_key="s3cret-key",
        chainhook_id="/chainhooks/v1/me/be4ab3ed-b606-4fe0-97c4-6c0b1ac9b185",
    )

    assert called_out(FINE) == []
    assert called_out(settings) == [
        "Heartbeats go to hc-ping.com while the service is ready (TOCSIN_HEARTBEAT_URL).",
        "Alerts go to hooks.example.org as slack, from tocsin (TOCSIN_ALERT_URL).",
        f"The hook {settings.chainhook_id} is reported when Hiro interrupts it (TOCSIN_CHAINHOOK_ID).",
    ]
