"""The demo: it can be crashed from its console, and continues as if nothing had happened."""

import asyncio
import io
import json
import re
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from holdfast.errors import DataDirInUse, StoreUnusable
from support import asgi
from support.processes import Process, ask, until
from support.simulated import HandClock, quiet_simulator
from support.tocsin_command import tocsin_here
from tocsin import service
from tocsin.commands import demo
from tocsin.commands.files import DemoBeginning, command_logger, free_port, load_migrations, opened_demo
from tocsin.commands.rows import opened
from tocsin.settings import AccessKey, Settings

NOW = 1_778_700_600_000
HOUR_MS = 3_600_000


@pytest.mark.slow
def test_a_crash_of_the_demo(tmp_path: Path) -> None:
    """`kill` replaces the process without any clean-up: the same address, key, chain and history, and it is ready."""
    process = Process("serve", "--demo", "--data-dir", str(tmp_path), "--port", "0")
    try:
        started = next(json.loads(line) for line in iter(process.line, "") if '"service.started"' in line)
        url = started["url"]
        key = json.loads((tmp_path / "demo.json").read_text())["key"]
        headers = {"X-Admin-Key": key}
        admin, control = f"{url}/api/admin/scheduler", f"{url}/simulator/_control"
        first = until(lambda: ask(f"{admin}/runs?outcome=ok&task=sweep", headers=headers)[1]["runs"])[-1]
        before = {row["txid"] for row in ask(f"{url}/simulator/_truth")[1]["swaps"]}
        assert ask(admin, headers=headers)[1]["simulator"] == "/simulator"
        assert ask(f"{control}/kill", body={})[0] == 401

        with pytest.raises(OSError):
            ask(f"{control}/kill", body={}, headers=headers)
        again = next(json.loads(line) for line in iter(process.line, "") if '"service.started"' in line)
        until(lambda: ask(f"{url}/readyz")[1].get("ready"))
        after = {row["txid"] for row in ask(f"{url}/simulator/_truth")[1]["swaps"]}
        oldest = ask(f"{admin}/runs?limit=2000", headers=headers)[1]["runs"][-1]["id"]
    finally:
        process.kill()

    assert first["result"]["inserted"] > 0  # its agents were there before: the board fills at once
    assert again["url"] == url
    assert before <= after
    assert oldest == 1


@pytest.mark.slow
def test_commands_in_the_same_directory_find_a_running_demo(tmp_path: Path) -> None:
    """As the README has them, without a setting. One that names anything itself, or comes later, does not."""
    data = tmp_path / "demo-data"
    process = Process("serve", "--demo", "--data-dir", str(data), "--port", "0")
    try:
        started = next(json.loads(line) for line in iter(process.line, "") if '"service.started"' in line)
        until(lambda: ask(f"{started['url']}/api/competition/trades")[1]["trades"])
        here: dict[str, Any] = {"cwd": tmp_path, "environment": {}}
        status = tocsin_here("status", "--json", **here)
        exported = tocsin_here("export", "swaps", "--output", "swaps.jsonl", **here)
        txid = json.loads((tmp_path / "swaps.jsonl").read_text().splitlines()[0])["txid"]
        explained, saved = tocsin_here("explain", txid, "--json", **here), tocsin_here("backup", ".", **here)
        checks = json.loads(tocsin_here("doctor", "--json", **here).stdout)["checks"]
        elsewhere = tocsin_here("status", cwd=tmp_path, environment={"TOCSIN_PORT": "1"})
        (tmp_path / ".env").write_bytes((Path(__file__).parents[2] / ".env.example").read_bytes())
        beside_unset = tocsin_here("status", **here)
    finally:
        process.kill()
    after = tocsin_here("export", "swaps", **here)

    assert (status.returncode, json.loads(status.stdout)["active"]) == (0, True)
    assert (beside_unset.returncode, beside_unset.stderr) == (0, "")
    assert exported.returncode == 0
    assert (explained.returncode, json.loads(explained.stdout)["txid"]) == (0, txid)
    assert (saved.returncode, len(list(tmp_path.glob("tocsin-*.tar")))) == (0, 1)
    assert {check["name"]: check["verdict"] for check in checks} | {"hiro": "ok", "service": "ok"} == {
        check["name"]: check["verdict"] for check in checks
    }
    assert (elsewhere.returncode, "ADMIN_KEY" in elsewhere.stderr) == (2, True)
    assert (after.returncode, "There is no data/db.sqlite" in after.stderr) == (2, True)


def test_a_demo_takes_the_next_port_if_its_own_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """And says so; a free one is taken without a word."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = free_port(Settings(port=port))
    said = capsys.readouterr().err
    again = free_port(Settings(port=found))

    assert port < found < port + 20
    assert said == f"Port {port} is taken: the demo takes {found}.\n"
    assert (again, capsys.readouterr().err) == (found, "")


@pytest.mark.slow
def test_a_chain_that_began_at_the_same_time_is_the_same_chain() -> None:
    """However often it was called in between; so after a crash no swap is lost or new."""
    clock = HandClock(NOW)
    watched = demo.build(clock, NOW)
    for _ in range(30):
        clock.now_ms += 7_000
        watched.advance()
    again = demo.build(clock, NOW)

    assert again.truth() == watched.truth()
    assert again.chain.tip_height == watched.chain.tip_height


def begun_at(directory: Path, now: int) -> DemoBeginning:
    with opened_demo(directory, now=now, logger=command_logger(Settings())) as (begun, _connection):
        return begun


def rounds_of(directory: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(directory / "db.sqlite")) as connection:
        return connection.execute("SELECT set_by FROM competition_round_rule").fetchall()


def interrupt(directory: Path, now: int, seen: list[tuple[str]]) -> None:
    """Stop a demo while it is made."""
    with opened_demo(directory, now=now, logger=command_logger(Settings())) as (_begun, connection):
        seen += connection.execute("SELECT set_by FROM competition_round_rule").fetchall()
        connection.execute(SET_RULE, ["second"])
        raise KeyboardInterrupt


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


SET_RULE = "INSERT INTO competition_round_rule VALUES (1, '{}', ?, '2026')"


def test_a_demo_is_found_again_until_it_is_old(tmp_path: Path) -> None:
    """Its key and its start; an unreadable file starts a new one."""
    first = begun_at(tmp_path, NOW)
    again = begun_at(tmp_path, NOW + HOUR_MS)
    old = begun_at(tmp_path, NOW + 7 * HOUR_MS)
    (tmp_path / "demo.json").write_text("{")
    damaged = begun_at(tmp_path, NOW + 7 * HOUR_MS)

    assert first.is_new
    assert re.fullmatch(r"[\w-]{16}", first.key)
    assert (again.is_new, again.key, again.began_at) == (False, first.key, NOW)
    assert (old.is_new, old.began_at, old.key == first.key) == (True, NOW + 7 * HOUR_MS, False)
    assert damaged.is_new
    assert (tmp_path / "demo.json").stat().st_mode & 0o077 == 0


def test_an_old_or_unfinished_demo_is_emptied_and_nothing_else_is(tmp_path: Path) -> None:
    """Two demos on top of each other would show two chains."""
    (tmp_path / "notes.txt").write_text("mine")
    with opened_demo(tmp_path, now=NOW, logger=command_logger(Settings())) as (_begun, connection):
        connection.execute(SET_RULE, ["first"])
    begun_at(tmp_path, NOW + HOUR_MS)
    continued = rounds_of(tmp_path)
    after_hours: list[tuple[str]] = []
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path, NOW + 7 * HOUR_MS, after_hours)
    unfinished = begun_at(tmp_path, NOW + 7 * HOUR_MS)

    assert continued == [("first",)]
    assert after_hours == []
    assert unfinished.is_new
    assert rounds_of(tmp_path) == []
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_demo_does_not_touch_real_data(tmp_path: Path) -> None:
    """A directory with a store that no demo made is refused, and every byte of it stays."""
    with opened(tmp_path, load_migrations(), now=NOW, logger=command_logger(Settings())) as connection:
        connection.execute(SET_RULE, ["ann"])
    before = contents(tmp_path)

    with pytest.raises(StoreUnusable, match="holds the data of a service") as refused:
        demo.prepare(Settings(), "http://127.0.0.1:1", 1, str(tmp_path), bad_times=False, clock=HandClock(NOW))

    assert "Choose a new directory with --data-dir" in str(refused.value)
    assert contents(tmp_path) == before


def test_a_demo_does_not_touch_a_directory_in_use(tmp_path: Path) -> None:
    """Another process holds its lock: nothing is written, even if the demo in it is too old to continue."""
    begun_at(tmp_path, NOW)
    later = NOW + 7 * HOUR_MS
    with opened(tmp_path, load_migrations(), now=NOW, logger=command_logger(Settings())):
        before = contents(tmp_path)
        with pytest.raises(DataDirInUse):
            demo.prepare(Settings(), "http://127.0.0.1:1", 1, str(tmp_path), bad_times=False, clock=HandClock(later))
        assert contents(tmp_path) == before


def test_a_real_service_does_not_start_in_a_demo(tmp_path: Path) -> None:
    """It would show invented agents, and the next demo would delete what it recorded."""
    begun_at(tmp_path, NOW)
    before = contents(tmp_path)

    with pytest.raises(StoreUnusable, match=r"holds a demo\. Choose another directory with --data-dir"):
        asyncio.run(service.run(Settings(port=0, data_dir=str(tmp_path)), stream=io.StringIO()))

    assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_demo_does_not_print_a_key_that_is_not_its_own(tmp_path: Path) -> None:
    """One of the environment may be that of a real service."""
    process = Process("serve", "--demo", "--data-dir", str(tmp_path), "--port", "0", ADMIN_KEY="a-real-key-of-ours")
    try:
        started = next(line for line in iter(process.line, "") if '"service.started"' in line)
        until(lambda: ask(f"{json.loads(started)['url']}/healthz")[0] == 200)
    finally:
        process.signal(signal.SIGTERM)
    code, out, error = process.end()

    assert code == 0
    assert "admin key    your ADMIN_KEY" in out + error
    assert "a-real-key-of-ours" not in started + out + error


async def test_controlling_the_simulator_takes_a_key() -> None:
    """What the chain holds can be read without."""
    keys = (AccessKey("alice", "operator", "the-key-of-alice"), AccessKey("bob", "operator", "the-key-of-bob"))
    app = Starlette(routes=[demo.mount(quiet_simulator(HandClock()), keys)])
    headers = {"host": "127.0.0.1:8787", "content-type": "application/json"}
    statuses = []
    for key in ("", "wrong", "the-key-of-alice", "the-key-of-bob"):
        sent = {**headers, "x-admin-key": key}
        answer = await asgi.ask(
            app, "/simulator/_control/mine", method="POST", headers=sent, body=b"{}", client="127.0.0.1"
        )
        statuses.append(answer.status)
    truth = await asgi.ask(app, "/simulator/_truth")

    assert statuses == [401, 401, 200, 200]
    assert (truth.status, truth.json()["swaps"]) == (200, [])
