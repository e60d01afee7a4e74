"""The demo: it can be crashed from its console, and goes on as if nothing had happened."""

import json
import re
import signal
from pathlib import Path

import pytest

from support.processes import Process, ask, until
from support.simulated import HandClock
from tocsin.commands import demo
from tocsin.commands.demo_crash import beginning, remember

NOW = 1_778_700_600_000
HOUR_MS = 3_600_000


@pytest.mark.slow
def test_a_crash_of_the_demo(tmp_path: Path) -> None:
    """`kill` replaces the process without any clean-up: the same address, key, chain and history, and it is ready."""
    process = Process("tocsin", "serve", "--demo", "--data-dir", str(tmp_path), "--port", "0")
    try:
        started = next(json.loads(line) for line in iter(process.line, "") if '"service.started"' in line)
        url = started["url"]
        key = json.loads((tmp_path / "demo.json").read_text())["key"]
        headers = {"X-Admin-Key": key}
        admin, control = f"{url}/api/admin/scheduler", f"{url}/simulator/_control"
        until(lambda: ask(f"{admin}/runs?outcome=ok&task=sweep", headers=headers)[1]["runs"])
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

    assert again["url"] == url
    assert before <= after
    assert oldest == 1


def test_a_chain_that_began_at_the_same_time_is_the_same_chain() -> None:
    """However often it was asked meanwhile; so after a crash no swap is lost or new."""
    clock = HandClock(NOW)
    watched = demo.build(clock, NOW)
    for _ in range(30):
        clock.now_ms += 7_000
        watched.advance()
    again = demo.build(clock, NOW)

    assert again.truth() == watched.truth()
    assert again.chain.tip_height == watched.chain.tip_height


def test_a_demo_is_found_again_until_it_is_old(tmp_path: Path) -> None:
    """Its key and its beginning; a file that cannot be read begins a new one."""
    first = beginning(tmp_path, NOW)
    unfinished = beginning(tmp_path, NOW)
    remember(tmp_path, first)
    again = beginning(tmp_path, NOW + HOUR_MS)
    old = beginning(tmp_path, NOW + 7 * HOUR_MS)
    (tmp_path / "demo.json").write_text("{")
    damaged = beginning(tmp_path, NOW + 7 * HOUR_MS)

    assert first.is_new
    assert unfinished.is_new
    assert re.fullmatch(r"[\w-]{16}", first.key)
    assert (again.is_new, again.key, again.began_at) == (False, first.key, NOW)
    assert (old.is_new, old.began_at, old.key == first.key) == (True, NOW + 7 * HOUR_MS, False)
    assert damaged.is_new
    assert (tmp_path / "demo.json").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_demo_does_not_print_a_key_that_is_not_its_own(tmp_path: Path) -> None:
    """One of the environment may be that of a real service."""
    process = Process(
        "tocsin",
        "serve",
        "--demo",
        "--data-dir",
        str(tmp_path),
        "--port",
        "0",
        ADMIN_KEY="a-real-key-of-ours",
    )
    try:
        started = next(line for line in iter(process.line, "") if '"service.started"' in line)
        until(lambda: ask(f"{json.loads(started)['url']}/healthz")[0] == 200)
    finally:
        process.signal(signal.SIGTERM)
    code, out, error = process.end()

    assert code == 0
    assert "admin key    your ADMIN_KEY" in out + error
    assert "a-real-key-of-ours" not in started + out + error
