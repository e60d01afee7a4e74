"""The commands that show agents, refusals and events, and how a terminal shows runs."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from stacks_simulator.addresses import address_of
from support.patience import PATIENCE_S
from support.processes import ask
from support.scheduler import run_entries
from support.statuses import run_record
from support.tocsin_command import TOCSIN, rest_of_terminal, tocsin
from support.web_thread import Running, served_in_thread
from support.world import ADMIN_KEY


@pytest.mark.slow
def test_an_agent_is_shown_with_what_it_lacks(running: Running) -> None:
    """A registered one with its rank, and an unknown one; an invalid address is wrong usage."""
    known = tocsin("board", "--json", port=running.port)
    address = json.loads(known.stdout)["rows"][0]["stxAddress"]
    shown = tocsin("agents", "show", address, port=running.port, ADMIN_KEY="")
    stranger = tocsin("agents", "show", address_of("somebody"), port=running.port)
    wrong = tocsin("agents", "show", "SP1", port=running.port)

    assert "Rank of " in shown.stdout
    assert "eligible" in shown.stdout
    assert stranger.stdout.count("missing: ") == 3
    assert (wrong.returncode, "Stacks mainnet address" in wrong.stderr) == (2, True)


@pytest.mark.slow
def test_refusals_and_events_are_listed(running: Running) -> None:
    """Both need a key; the error for a wrong code names the valid ones."""
    none = tocsin("refusals", port=running.port)
    wrong = tocsin("refusals", "--code", "bad_luck", port=running.port)
    without = tocsin("refusals", port=running.port, ADMIN_KEY="")
    happened = tocsin("events", "--json", port=running.port)
    refused = tocsin("events", port=running.port, ADMIN_KEY="the-key-of-another-service")

    assert (none.returncode, none.stdout) == (0, "Nothing was refused.\n")
    assert (wrong.returncode, "tx_failed" in wrong.stderr) == (2, True)
    assert (without.returncode, "ADMIN_KEY" in without.stderr) == (2, True)
    assert happened.returncode == 0
    assert (refused.returncode, "does not accept this key" in refused.stderr) == (1, True)
    assert all("event" in json.loads(line) for line in happened.stdout.splitlines())


@pytest.mark.slow
def test_a_transaction_is_explained_step_by_step(running: Running) -> None:
    """Without a key, in any spelling of its id: one of a contract that does not count. Wrong ids are refused."""
    recorded = ask(f"http://127.0.0.1:{running.port}/api/competition/trades")[1]["trades"][0]
    as_json = tocsin("explain", recorded["txid"][2:].upper(), "--json", port=running.port, ADMIN_KEY="")
    shown = tocsin("explain", recorded["txid"], port=running.port, ADMIN_KEY="")
    malformed = tocsin("explain", "0x12", port=running.port)

    verdict = json.loads(as_json.stdout)
    assert (as_json.returncode, verdict["code"], verdict["known_from"]) == (0, "contract_not_allowlisted", "record")
    assert verdict["swap"] == {name: recorded[name] for name in ("token_in", "amount_in", "token_out", "amount_out")}
    assert [step["name"] for step in verdict["steps"] if not step["ok"]] == ["contract"]
    assert (shown.stdout.count("✓"), shown.stdout.count("✗")) == (len(verdict["steps"]) - 1, 1)
    assert shown.stdout.splitlines()[-1].startswith("Rejected (contract_not_allowlisted): ")
    assert (malformed.returncode, "64 hex digits" in malformed.stderr) == (2, True)


@pytest.mark.slow
def test_runs_fit_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """One line for each run: only the details are cut, no figure is broken."""
    result = {"scanned": 123_456, "found": 98_765}
    runs = [run_record(id=number, task="sweep", outcome="interrupted", result=result) for number in (1, 2, 3)]
    with served_in_thread(tmp_path, stored=run_entries(*runs)) as running:
        shown = in_terminal(["runs", "--limit", "3"], running.port, columns=80)

    lines = [line for line in shown.splitlines() if "sweep" in line]
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert all(
        re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC +sweep +alarm +interrupted +\S+", line) for line in lines
    )


def in_terminal(arguments: list[str], port: int, columns: int) -> str:
    """Return the output on a terminal of this width, without colors."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "TZ": "UTC", "TOCSIN_PORT": str(port)}
    with subprocess.Popen(
        [TOCSIN, *arguments],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={**environment, "ADMIN_KEY": ADMIN_KEY},
    ) as process:
        os.close(theirs)
        written = rest_of_terminal(ours)
        process.wait(PATIENCE_S)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()).replace("\r", "")
