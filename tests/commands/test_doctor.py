"""`tocsin doctor`: one line for each question of an operator, and the fix for what is wrong."""

import asyncio
import json
import os
import resource
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import DurableObject, open_objects
from holdfast.local import sqlite_file
from holdfast.local.data_dir import DataDir
from holdfast_testing.captured_log import CapturedLog
from support.loopback import Request, serving
from support.processes import ask, held_port, root_of, running_simulator
from support.tocsin_command import tocsin_here
from support.world import named_keys
from tocsin.commands.doctor import (
    ask_service,
    ask_upstream,
    clock_check,
    disk,
    doctor,
    local_checks,
    network_checks,
    open_files,
    permissions,
    proxy,
    reach,
    upstream_check,
)
from tocsin.commands.files import load_migrations
from tocsin.fetch import FetchResponse
from tocsin.settings import Settings
from tocsin.upstream.hiro import hiro_upstream

NOW = 1_778_700_600_000  # 2026-05-13 19:30:00 UTC
KEY = "the-key-of-hiro-0123456789"
FINE = Settings(admin_key=named_keys("a-long-random-text"))


@pytest.fixture(scope="module")
def upstreams() -> Iterator[dict[str, str]]:
    with running_simulator(speed=0) as settings:
        yield settings


def examined(directory: Path, *options: str, **environment: str) -> tuple[int, dict[str, tuple[str, str]], str]:
    """Return exit code, verdict and sentence by name (the worst of several), and the whole output."""
    with held_port() as port:
        known = {"TOCSIN_PORT": str(port), "ADMIN_KEY": "a-long-random-text", **environment}
        done = tocsin_here("doctor", "--json", *options, environment=known, cwd=directory)
    order = ["skipped", "ok", "warning", "problem"]
    checks = sorted(json.loads(done.stdout)["checks"], key=lambda one: order.index(one["verdict"]))
    return (
        done.returncode,
        {one["name"]: (one["verdict"], one["sentence"]) for one in checks},
        done.stdout + done.stderr,
    )


@pytest.mark.slow
def test_all_is_well_and_the_key_is_not_shown(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """Against the real simulator over loopback, with a key: nothing is a problem, and nothing is left behind."""
    code, checks, printed = examined(tmp_path, HIRO_API_KEY=KEY, **upstreams)

    assert code == 0, checks
    assert checks["hiro"][0] == checks["tenero"][0] == "ok"
    assert checks["hiro"][1].startswith("answers with our key")
    assert checks["tenero"][1].startswith("answers without a key")
    assert checks["service"][0] == "warning"
    assert "start it with `tocsin serve`" in checks["service"][1]
    assert KEY not in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_refused_key_and_a_dead_port_are_problems_with_their_setting(
    tmp_path: Path, upstreams: dict[str, str]
) -> None:
    """Exit code 1, and neither the key nor a secret part of a URL is printed."""
    fault = {"kind": "status", "upstream": "hiro", "status": 401}
    root = root_of(upstreams)
    ask(f"{root}/_control/fault", body=fault)
    try:
        with held_port() as port:
            dead = f"http://127.0.0.1:{port}"
            code, checks, printed = examined(
                tmp_path,
                HIRO_API_KEY=KEY,
                TOCSIN_ALERT_URL=f"{dead}/hooks/a-secret-path",
                **{**upstreams, "TENERO_API_URL": dead},
            )
    finally:
        ask(f"{root}/_control/calm", body={})

    assert code == 1
    assert checks["hiro"] == ("problem", "it refuses our key (401): check HIRO_API_KEY.")
    assert checks["tenero"][0] == "problem"
    assert "Check the network and TENERO_API_URL" in checks["tenero"][1]
    assert checks["alerts"][0] == "problem"
    assert checks["alerts"][1].startswith("127.0.0.1 cannot be reached")
    assert KEY not in printed
    assert "a-secret-path" not in printed


def test_offline_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network checks are skipped and named; invalid settings are problems, and nothing else is checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADMIN_KEY", "a-long-random-text")
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1_024, 65_536))
    report = doctor(None, offline=True, clock=lambda: NOW)
    skipped = [one.name for one in report.checks if one.verdict == "skipped"]
    monkeypatch.setenv("TOCSIN_PORT", "many")
    broken = doctor(None, offline=True, clock=lambda: NOW)

    assert report.ok
    assert skipped == ["hiro", "tenero", "service"]
    assert not broken.ok
    assert [one.name for one in broken.checks] == ["settings"]
    assert "TOCSIN_PORT" in broken.checks[0].sentence


def figures(blocks: int, *, size: int = 4096, inodes: int = 1_000_000, free_inodes: int = 500_000) -> os.statvfs_result:
    """A file system, as `os.statvfs` describes it."""
    return os.statvfs_result((size, size, blocks, blocks, blocks, inodes, free_inodes, free_inodes, 0, 255))


@pytest.mark.parametrize(
    ("found", "verdict", "text"),
    [
        (figures(25_000_000), "ok", "102.4 GB are free"),
        (figures(100_000), "warning", "a backup needs twice"),
        (figures(1_000), "problem", "free some"),
        (figures(400_000, size=512), "warning", "only 0.2 GB are free"),
        (figures(25_000_000, free_inodes=10), "problem", "only 10 inodes"),
        (figures(25_000_000, inodes=0, free_inodes=0), "ok", "102.4 GB"),  # a file system without inodes
    ],
)
def test_a_disk_that_fills_up_is_told_before_it_is_full(
    found: os.statvfs_result, verdict: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a directory that does not exist yet."""
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    seen, sentence = disk(tmp_path / "not" / "there")

    assert (seen, text in sentence) == (verdict, True), sentence


def test_who_may_read_the_data(tmp_path: Path) -> None:
    """Another owner and a link are problems, readable files are warnings with the command that closes them."""
    data = tmp_path / "data"
    DataDir(data, load_migrations(), now=NOW, logger=CapturedLog()).close()
    fine = [*permissions(data, os.geteuid())]
    (data / "kv.sqlite").chmod(0o644)
    (data / "db.sqlite").rename(tmp_path / "elsewhere")
    (data / "db.sqlite").symlink_to(tmp_path / "elsewhere")
    data.chmod(0o755)
    found = [*permissions(data, data.stat().st_uid + 7)]

    (data / "db.sqlite").unlink()
    (data / "kv.sqlite").chmod(0o640)
    data.chmod(0o750)
    grouped = [*permissions(data, os.geteuid())]

    assert fine == []
    assert [verdict for verdict, _ in grouped] == ["warning", "warning"]
    assert [verdict for verdict, _ in found] == ["problem", "warning", "problem", "warning"]
    assert found[1][1].endswith(f"chmod 700 {data}")
    assert found[3][1].endswith(f"chmod 600 {data / 'kv.sqlite'}")


@pytest.mark.parametrize(
    ("hard", "verdict"), [(256, "problem"), (1_024, "warning"), (4_096, "ok"), (65_536, "ok"), (-1, "ok")]
)
def test_the_limit_of_open_files(hard: int, verdict: str) -> None:
    assert open_files(hard)[0] == verdict


@pytest.mark.parametrize(
    ("host", "proxies", "verdict"),
    [
        ("127.0.0.1", (), "ok"),
        ("localhost", (), "ok"),
        ("::1", (), "ok"),
        ("0.0.0.0", (), "warning"),
        ("example.org", (), "warning"),
        ("0.0.0.0", ("10.0.0.1",), "ok"),
    ],
)
def test_a_service_that_others_reach_needs_a_proxy(host: str, proxies: tuple[str, ...], verdict: str) -> None:
    assert proxy(Settings(host=host, trusted_proxies=proxies))[0] == verdict


@pytest.mark.parametrize(
    ("offset_s", "verdict", "text"),
    [(0, "ok", "agrees"), (-4, "ok", "agrees"), (30, "warning", "30 s ahead of"), (-3600, "problem", "3,600 s behind")],
)
def test_a_wrong_clock_is_noticed_by_the_answers_date(offset_s: int, verdict: str, text: str) -> None:
    response = FetchResponse(200, {"date": "Wed, 13 May 2026 19:30:00 GMT"}, b"{}")
    seen = clock_check("hiro", response, NOW + offset_s * 1000)

    assert seen is not None
    assert (seen[0], text in seen[1]) == (verdict, True), seen


def test_an_answer_without_a_date_says_nothing_about_the_clock() -> None:
    assert clock_check("hiro", FetchResponse(200, {}, b"{}"), NOW) is None
    assert clock_check("hiro", FetchResponse(200, {"date": "soon"}, b"{}"), NOW) is None


def hiro_headers(minute: int) -> dict[str, str]:
    names = ("x-ratelimit-limit-stacks-minute", "x-ratelimit-remaining-stacks-minute")
    return {names[0]: str(minute), names[1]: str(minute - 1)}


@pytest.mark.parametrize(
    ("status", "headers", "body", "verdict", "text"),
    [
        (200, hiro_headers(500), b"{}", "ok", "answers with our key; 499 of 500 left this minute"),
        (200, hiro_headers(50), b"{}", "problem", "ignores our key; 49 of 50 left this minute: check HIRO_API_KEY"),
        (200, {}, b"<html>", "problem", "not JSON: check HIRO_API_URL"),
        (200, {"x-ratelimit-remaining-stacks-minute": "99"}, b"{}", "ok", "answers with our key; 99 left this minute"),
        (403, {}, b"", "problem", "refuses our key (403)"),
        (429, {}, b"", "warning", "too many calls"),
        (503, {}, b"", "problem", "answers 503"),
    ],
)
def test_what_an_upstreams_answer_means(
    status: int, headers: dict[str, str], body: bytes, verdict: str, text: str
) -> None:
    upstream = hiro_upstream("https://hiro.test", KEY)
    seen, sentence = upstream_check(upstream, FetchResponse(status, headers, body))

    assert (seen, text in sentence) == (verdict, True), sentence
    assert KEY not in sentence


async def test_a_receiver_of_alerts_is_connected_to_and_hears_nothing() -> None:
    """Some receivers would take a HEAD for an alert."""
    heard: list[Request] = []

    async def respond(request: Request, _writer: asyncio.StreamWriter) -> None:
        heard.append(request)

    async with serving(respond) as server:
        found = await reach("alerts", f"{server.url}/hooks/secret", "TOCSIN_ALERT_URL")

    assert found == {"alerts": ("ok", "127.0.0.1 can be reached; nothing was sent")}
    assert heard == []


@pytest.mark.parametrize(
    ("status", "body", "verdict", "text"),
    [
        (200, {"ready": True, "state": "ready", "reasons": [], "notes": []}, "ok", "running and ready"),
        (503, {"ready": False, "reasons": ["sweep is overdue"]}, "problem", "not ready: sweep is overdue"),
        (200, ["something else"], "problem", "another program answers"),
    ],
)
async def test_whether_the_service_is_ready(status: int, body: Any, verdict: str, text: str) -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        content = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + content)

    async with serving(respond) as server:
        settings = Settings(host="127.0.0.1", port=int(server.url.rpartition(":")[2]))
        seen, sentence = (await ask_service(settings))["service"]

    assert (seen, text in sentence) == (verdict, True), sentence


async def test_an_upstream_is_asked_with_its_key() -> None:
    """Otherwise the answer says nothing about the key. A new upstream has its own path."""

    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")

    async with serving(respond) as server:
        for key in (KEY, None):
            await ask_upstream(hiro_upstream(server.url, key), lambda: NOW)
        names = replace(hiro_upstream(server.url, KEY), name="names", probe="/v1/names?limit=1")
        answered = await ask_upstream(names, lambda: NOW)

    assert [request.headers.get("x-api-key") for request in server.requests] == [KEY, None, KEY]
    assert server.requests[-1].line.startswith("GET /v1/names?limit=1 ")
    assert [(name, verdict) for name, (verdict, _) in answered.items()] == [("names", "ok")]


async def test_each_receiver_is_reached_by_its_own_setting() -> None:
    """A check of another receiver would hide the fault of this one."""
    settings = Settings(
        alert_url="https://alerts.invalid/a",
        heartbeat_url="https://heart.invalid/b",
        worker_logs_url="https://logs.invalid",
    )
    asks = network_checks(settings, lambda: NOW)
    seen = {}
    for name in ("alerts", "heartbeats", "log service"):
        _, sentence = (await asks[name]())[name]
        seen[name] = (sentence.partition(" ")[0], sentence.partition("check ")[2].partition(" ")[0])

    assert seen == {
        "alerts": ("alerts.invalid", "TOCSIN_ALERT_URL"),
        "heartbeats": ("heart.invalid", "TOCSIN_HEARTBEAT_URL"),
        "log service": ("logs.invalid", "WORKER_LOGS_URL"),
    }


def found(data_dir: Path, **changes: Any) -> list[str]:
    """The problems with these settings on this machine, however many files it allows."""
    checks = local_checks(replace(FINE, data_dir=str(data_dir), **changes)).items()
    problems = [(name, sentence) for name, found in checks for verdict, sentence in found if verdict == "problem"]
    return [sentence for name, sentence in problems if name != "open files"]


def test_all_is_fine_and_nothing_is_made(tmp_path: Path) -> None:
    """The start creates a new directory."""
    assert found(tmp_path / "data") == []
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
    (finding,) = found(tmp_path / "data", **changes)

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
    (finding,) = found(tmp_path / "data")

    assert text in finding


class Notes(DurableObject):
    """Has a table."""

    async def add(self, text: str) -> None:
        self.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS notes (text)")
        self.ctx.storage.sql.exec("INSERT INTO notes VALUES (?)", text)


async def test_the_tables_of_objects_are_checked_with_their_entries(tmp_path: Path) -> None:
    """They are in one file. Copies that a killed service left do not count."""
    path = tmp_path / "data"
    async with open_objects(path, Notes) as objects:
        await objects.get(Notes, "a").add("x" * 100_000)
    (path / "objects-sql").mkdir()
    (path / "objects-sql" / "left.sqlite").write_bytes(b"torn")
    assert found(path) == []

    with closing(sqlite3.connect(path / "objects.sqlite")) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sql_pages'").fetchone()
    with (path / "objects.sqlite").open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"?" * 4096)
    (finding,) = found(path)
    assert "objects.sqlite is damaged" in finding


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_directory_that_cannot_be_made_is_a_finding() -> None:
    """Even for root, who may write everywhere."""
    finding = found(Path("/proc/x"))[0]

    assert finding.startswith("/proc/x cannot be created (")
    assert finding.endswith("Choose another directory: TOCSIN_DATA_DIR")


def test_a_port_in_use_is_no_finding(tmp_path: Path) -> None:
    """The running service has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert found(tmp_path / "data", port=server.getsockname()[1]) == []


def test_a_full_disk_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be written, although its permissions allow it."""

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    (tmp_path / "data").mkdir()
    monkeypatch.setattr("holdfast.local.data_dir.os.write", full)
    (finding,) = found(tmp_path / "data")

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
            assert found(tmp_path / "data") == []
    finally:
        data.close()


def test_what_the_service_tells_the_outside_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator sees what is set; the path of a URL may hold a token."""
    settings = replace(
        FINE,
        heartbeat_url="https://hc-ping.com/s3cret",
        alert_url="https://hooks.example.org/services/s3cret",
        alert_format="slack",
        alert_key="s3cret-key",
        chainhook_id="/chainhooks/v1/me/be4ab3ed-b606-4fe0-97c4-6c0b1ac9b185",
    )

    monkeypatch.setattr("tocsin.commands.doctor.read_settings", lambda **_: settings)
    checks = {one.name: one.sentence for one in doctor(None, offline=True, clock=lambda: NOW).checks}

    assert checks["heartbeats"] == "to hc-ping.com while the service is ready; not asked offline"
    assert checks["alerts"] == "to hooks.example.org as slack, from tocsin; not asked offline"
    assert checks["hook"] == f"{settings.chainhook_id} is reported when Hiro interrupts it"
