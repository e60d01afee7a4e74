"""The command against a served app, sometimes as a separate process; its version, and completion in a shell."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from holdfast.errors import ObjectError
from stacks_simulator.faults import SimulatedFault
from support.patience import PATIENCE_S
from support.processes import ADMIN_KEY as SERVICE_KEY
from support.processes import ServiceProcess, running_simulator
from support.processes import running as process
from support.scheduler import run_entries
from support.service_states import TASKS, Case, entries_of
from support.simulated_fetch import SimulatedFetch
from support.statuses import DAY, MINUTE, run_record
from support.tocsin_command import TOCSIN, tocsin, tocsin_here, tocsin_process
from support.web_thread import NAME, THREE_RUNS, Running, now_ms, served_in_thread
from support.world import ADMIN_KEY, FailingStub
from tocsin import __version__
from tocsin.cli import app
from tocsin.commands.client import ServiceAddress, client_of
from tocsin.fetch import FetchResponse
from tocsin.scheduler.types import RunError, Status
from tocsin.text import utc_time

HEAVY = ("aiohttp", "asyncio", "mashumaro", "rich", "starlette", "uvicorn", "sqlite3", "http.client")
UTC_MINUTE = r"20\d\d-\d\d-\d\d \d\d:\d\d UTC"
UTC_TIME = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def test_status_shows_tasks_and_budgets(running: Running) -> None:
    """State, next slot, failures and the last error of each task."""
    done = tocsin_process("status", port=running.port)

    assert (done.returncode, done.stderr) == (0, "")
    parts = ("Next alarm:", "tenero", "hiro said 503")
    assert [part for part in parts if part not in done.stdout] == []
    assert re.search(r"hiro +13[45],\d{3} +1[45],\d{3}", done.stdout)  # at a full minute the feed spends some of it


def test_status_begins_with_the_verdict_and_check_exits_with_1(running: Running, tmp_path: Path) -> None:
    """What /readyz says, in a line; with --check for scripts."""
    now = now_ms()
    overdue = Case("overdue", False, changes={"sweep": {"lastSuccessAt": now - 31 * MINUTE}})
    fine = tocsin("status", "--check", port=running.port)
    with served_in_thread(tmp_path, stored=entries_of(overdue, now)) as late_service:
        late = tocsin("status", "--check", port=late_service.port)
        shown = tocsin("status", port=late_service.port)

    problem = "Not ready (overdue): Swap sweep overdue, no complete run for 31m"
    assert (fine.returncode, fine.stdout.splitlines()[0]) == (0, "Ready")
    assert (late.returncode, late.stdout.startswith(problem)) == (1, True)
    assert (shown.returncode, shown.stdout.startswith(problem)) == (0, True)


def test_status_shows_what_readyz_knows_when_the_scheduler_does_not_answer(tmp_path: Path) -> None:
    """As on a full disk: the cause first, then the refusal."""
    with served_in_thread(tmp_path, stub=FailingStub(ObjectError("database or disk is full"))) as running:
        done, as_json = tocsin("status", port=running.port), tocsin("status", "--json", port=running.port)

    assert (done.returncode, as_json.returncode) == (1, 1)
    assert done.stdout.startswith("Not ready (broken)")
    assert done.stderr == as_json.stderr == "The scheduler did not answer: try again soon; /readyz says why.\n"
    assert as_json.stdout == ""


def test_status_as_json_is_what_the_service_sent(running: Running) -> None:
    """For scripts."""
    done = tocsin("status", "--json", port=running.port)

    status = Status.from_json(json.loads(done.stdout))
    assert str(status.tasks["sweep"].last_error) == "TaskFailed: hiro said 503"
    known = running.status()  # of a later moment: only times differ
    assert (status.name, status.last_result, status.consecutive_failures) == (
        known.name,
        known.last_result,
        known.consecutive_failures,
    )
    assert json.loads(done.stdout) == status.to_json()


def test_refresh_runs_a_task_and_prints_its_result(tmp_path: Path) -> None:
    """Its outcome and the counters of its result."""
    with served_in_thread(tmp_path) as running:
        done = tocsin("refresh", "tenero", port=running.port)
        [run] = running.runs()

    assert (done.returncode, done.stderr) == (0, "")
    assert "tenero: ok: 3 tokens attempted, 3 succeeded" in done.stdout
    assert (run.task, run.outcome) == ("tenero", "ok")


def test_a_failed_refresh_exits_with_1(tmp_path: Path) -> None:
    """Alone or among all, and its error is printed."""
    with served_in_thread(tmp_path) as running:
        running.tocsin.simulator.faults.add(SimulatedFault(kind="status", upstream="tenero", status=400))
        done, every = (tocsin("refresh", task, port=running.port) for task in ("tenero", "all"))

    assert (done.returncode, every.returncode) == (1, 1)
    assert "tenero: failed: " in done.stdout
    assert "3 tokens attempted, 3 failed" in done.stdout
    assert "sweep: ok" in every.stdout


@pytest.mark.slow
def test_progress_is_polled_while_a_refresh_runs(tmp_path: Path) -> None:
    """The command polls the status until the run has ended: here the upstream answers only after two polls."""

    async def after_two_polls(url: str, **options: Any) -> FetchResponse:
        calls = running.tocsin.scheduler.runtime.metrics
        while calls.calls < before + 3:  # the refresh and two requests for the status
            await asyncio.sleep(0.01)
        return await SimulatedFetch(running.tocsin.simulator)(url, **options)

    with served_in_thread(tmp_path, fetch=lambda _: after_two_polls) as running:
        before = running.tocsin.scheduler.runtime.metrics.calls
        done = tocsin("refresh", "tenero", port=running.port)

    assert done.returncode == 0
    assert "3 succeeded" in done.stdout


@pytest.mark.slow
def test_pause_and_resume(running: Running) -> None:
    """For a while by the service's clock, or until a time."""
    paused = tocsin("pause", "--for", "2h", port=running.port)
    ends_at = utc_time(now_ms() + 3 * DAY)
    until = tocsin("pause", "--until", ends_at.replace(" UTC", "Z").replace(" ", "T"), "--json", port=running.port)
    shown = tocsin("status", port=running.port)
    paused_until = running.status().paused_until
    resumed, again, as_json = (tocsin("resume", *more, port=running.port) for more in ([], [], ["--json"]))
    assert paused.returncode == until.returncode == resumed.returncode == 0
    assert paused.stdout.startswith("Paused until ")
    assert json.loads(until.stdout)["pausedUntil"] == paused_until
    assert utc_time(paused_until or 0) == ends_at
    assert f"Paused until {ends_at.replace(' UTC', ':00 UTC')}" in shown.stdout
    assert (resumed.stdout, again.stdout) == ("Resumed.\n", "Nothing was paused.\n")
    assert json.loads(as_json.stdout)["resumed"] is True
    assert running.status().paused_until is None


@pytest.mark.slow
def test_runs_lists_the_history(tmp_path: Path) -> None:
    """Of one task, or with one outcome in the last days, if they are given; a run under way is there too."""

    async def never(_url: str, **_options: Any) -> FetchResponse:
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    error, yesterday = RunError("X", "hiro said 503"), now_ms() - DAY
    runs = [
        run_record(id=1, task="sweep", outcome="failed", result={"scanned": 3}, error=error),
        run_record(id=2, task="sweep", outcome="partial", reason="its time slice was nearly over"),
        run_record(id=3, task="sweep", outcome="failed", started_at=yesterday, error=error),
    ]
    with served_in_thread(tmp_path, stored=run_entries(*runs), fetch=lambda _: never) as running:
        running.start(running.tocsin.client().refresh("tenero"))
        everything = tocsin("runs", port=running.port)
        one = tocsin("runs", "--task", "tenero", "--json", port=running.port)
        failed = tocsin("runs", "--outcome", "failed", "--since", "2d", "--json", port=running.port)

    assert "2026-05-13 19:30:00 UTC" in everything.stdout
    assert "3 scanned" in everything.stdout
    assert "X: hiro said 503" in everything.stdout
    assert re.search(r"sweep +alarm +partial .* its time slice was nearly over", everything.stdout)
    assert re.search(r"tenero +refresh +running +-", everything.stdout)
    assert [run["task"] for run in json.loads(one.stdout)["runs"]] == ["tenero"]
    assert [run["id"] for run in json.loads(failed.stdout)["runs"]] == [3]


@pytest.mark.slow
def test_more_runs_than_one_answer_holds_are_listed(tmp_path: Path) -> None:
    """The command asks page by page; with --daily it shows the totals of each day."""
    runs = [run_record(id=number) for number in range(1, 1_201)]
    with served_in_thread(tmp_path, stored={**run_entries(*runs), "day:2026-05-13": THREE_RUNS}) as running:
        everything = tocsin("runs", "--limit", "1100", "--json", port=running.port)
        days = tocsin("runs", "--daily", port=running.port)
        both = tocsin("runs", "--daily", "--task", "sweep", port=running.port)

    found = json.loads(everything.stdout)
    assert [run["id"] for run in found["runs"]] == list(range(1_200, 100, -1))
    assert found["next"] == 101
    assert re.search(r"2026-05-13 +tenero +3 +failed=1 ok=2 +27 +9 +200ms", days.stdout)
    assert (both.returncode, both.stderr) == (
        2,
        "--daily shows all tasks and outcomes: it can be combined with --limit only.\n",
    )


@pytest.mark.slow
def test_prices_and_board_need_no_key(running: Running) -> None:
    """They show what visitors see."""
    shown = tocsin("prices", port=running.port, ADMIN_KEY="")
    one = tocsin("prices", "stx", "--json", port=running.port, ADMIN_KEY="")
    board = tocsin("board", port=running.port, ADMIN_KEY="")

    assert "0.85" in shown.stdout
    assert "Not priced yet: SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token" in shown.stdout
    assert json.loads(one.stdout)["prices"]["stx"]["priceUsd"] == 0.85
    assert "Ann[bold] ]0;owned:smile:" in board.stdout  # a name is text, not a command to the terminal
    assert "1,234.50" in board.stdout
    (row,) = json.loads(tocsin("board", "--json", port=running.port).stdout)["rows"]
    assert row["displayName"] == NAME


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "sentence"),
    [
        (("prices", "no-id"), {}, 2, "'no-id' is not a token id"),
        (("refresh", "bogus"), {}, 2, ", ".join([*TASKS, "all"])),
        (("refresh",), {}, 2, "Missing argument"),
        (("pause",), {}, 2, "Give one of the two: `tocsin pause --for 2h`"),
        (("pause", "--for", "2h", "--until", "1"), {}, 2, "Give one of the two: `tocsin pause --for 2h`"),
        (("pause", "--for", "soon"), {}, 2, "'soon' is not a duration: a number and ms, s, m, h or d, such as"),
        (("pause", "--until", "soon"), {}, 2, "'soon' is not a time: write 2026-05-13T21:30"),
        (("pause", "--until", "1"), {}, 2, "That time is past"),
        (("status",), {"ADMIN_KEY": ""}, 2, "set ADMIN_KEY"),
        (("status",), {"ADMIN_KEY": "wrong"}, 1, "does not accept this key: set ADMIN_KEY"),
        (("status",), {"TOCSIN_PORT": "ninety"}, 2, "such as 8787"),
        (("nonsense",), {}, 2, "No such command"),
        (("runs", "--limit", "0"), {}, 2, "limit"),
    ],
)
def test_every_mistake_is_a_sentence_and_an_exit_code(
    running: Running, arguments: tuple[str, ...], environment: Mapping[str, str], code: int, sentence: str
) -> None:
    """2 for wrong usage, 1 for a failure. Any other exception would surface here."""
    known = {"TOCSIN_PORT": str(running.port), "ADMIN_KEY": ADMIN_KEY, **environment}
    done = tocsin_here(*arguments, environment=known)

    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr


@pytest.mark.slow
def test_a_service_that_does_not_run_gives_a_sentence_with_the_fix() -> None:
    """Nothing listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        done = tocsin("status", port=free.getsockname()[1])

    assert done.returncode == 1
    assert "Start it with `tocsin serve`" in done.stderr


def test_another_program_on_the_port_is_not_taken_for_the_service() -> None:
    """The sentence names the problem and the fix."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = subprocess.Popen(
            [TOCSIN, "prices", "--port", str(server.getsockname()[1])], stderr=subprocess.PIPE, text=True
        )
        connection, _ = server.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"SSH-2.0-OpenSSH\r\n")
        _, errors = command.communicate(timeout=PATIENCE_S)

    assert command.returncode == 1
    assert "does not speak HTTP" in errors


def test_the_environment_comes_before_the_file_and_options_before_both(tmp_path: Path) -> None:
    """Where the service is: --port, TOCSIN_PORT, .env, 8787."""
    dotenv = tmp_path / ".env"
    assert client_of({}, dotenv).address == ServiceAddress("127.0.0.1", 8787)
    dotenv.write_text("# a comment\nexport TOCSIN_HOST='0.0.0.0'\nTOCSIN_PORT=9001\nADMIN_KEY=\"k=1\"\n")

    by_file = client_of({}, dotenv)
    by_environment = client_of({"TOCSIN_PORT": "9002"}, dotenv)
    by_option = client_of({"TOCSIN_PORT": "nonsense"}, dotenv, host="::", port=9003)

    assert (by_file.address, by_file.key) == (ServiceAddress("127.0.0.1", 9001), "k=1")
    assert by_environment.address.port == 9002
    assert by_option.address == ServiceAddress("::1", 9003)
    assert "k=1" not in repr(by_file)


def test_the_dotenv_file_of_the_directory_is_read(running: Running, tmp_path: Path) -> None:
    """A key in `.env` is enough."""
    (tmp_path / ".env").write_text(f"ADMIN_KEY={ADMIN_KEY}\nTOCSIN_PORT={running.port}\n")
    done = tocsin_here("status", "--json", environment={}, cwd=tmp_path)

    assert done.returncode == 0


def test_the_command_imports_only_what_it_needs() -> None:
    """It starts quickly: what only some commands need is imported by these, and a client reads JSON without shapes."""
    script = """
import sys, tocsin.cli
print([name for name in sys.argv[1:] if name in sys.modules])
import tocsin.commands.client
print([name for name in sys.argv[1:] if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", script, *HEAVY], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["[]", "['http.client']"]


@pytest.mark.slow
@pytest.mark.parametrize("started", ["as usual", "with SIGINT ignored"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_simulate_prints_its_address_and_stops_on_a_signal(number: signal.Signals, started: str) -> None:
    """Only the simulator, until Ctrl-C or SIGTERM, and as a background job, which starts with SIGINT ignored."""
    ignore = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    before = [sys.executable, "-c", ignore] if started == "with SIGINT ignored" else []
    command = subprocess.Popen(
        [*before, TOCSIN, "simulate", "--port=0", "--wallets=1", "--history-hours=0"], stdout=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    first = command.stdout.readline()
    command.send_signal(number)
    command.communicate(timeout=PATIENCE_S)

    assert first.startswith("HIRO_API_URL=http://127.0.0.1:")
    assert command.returncode == 0


@pytest.mark.slow
def test_simulate_passes_its_options_on() -> None:
    """The speed and the bad times are those of the options; every base URL is printed."""
    command = [sys.executable, "-m", "tocsin", "simulate", "--port=0", "--wallets=5", "--history-hours=0.2"]
    with subprocess.Popen([*command, "--speed=60", "--bad-times"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            urls = dict(process.stdout.readline().strip().split("=", 1) for _ in range(5))
            with urllib.request.urlopen(urls["control"]) as response:
                state = json.load(response)
        finally:
            process.terminate()

    assert (state["speed"], state["badTimes"], state["transactions"] > 0) == (60.0, True, True)
    assert urls["HIRO_API_URL"].endswith("/hiro")
    assert urls["TENERO_API_URL"].endswith("/tenero")
    assert set(urls) == {"HIRO_API_URL", "TENERO_API_URL", "control", "truth", "agents"}


def test_simulate_refuses_numbers_out_of_range() -> None:
    """The simulator parses its own options, and names the command that was given."""
    done = tocsin_here("simulate", "--port", "70000", environment={})

    assert done.returncode == 2
    assert "tocsin simulate: error: argument --port: 70000 is not a number from 0 to 65535" in done.stderr


@pytest.mark.parametrize("arguments", [["simulate"], ["serve", "--demo"], ["serve", "--bad-times"]])
def test_without_the_simulator_a_sentence_says_how_to_install_it(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a package of its own, which only the demo needs."""
    monkeypatch.setitem(sys.modules, "stacks_simulator", None)
    done = tocsin_here(*arguments, environment={})

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "The simulator is not installed: pip install 'tocsin[demo]', or in a checkout,"
        " pip install ./packages/stacks-simulator.\n"
    )


@pytest.mark.slow
def test_the_service_runs_without_the_simulator(tmp_path: Path) -> None:
    """It starts, says so and stops, although `stacks_simulator` cannot be imported."""
    script = "import sys; sys.modules['stacks_simulator'] = None; from tocsin.cli import main; main()"
    command = [sys.executable, "-c", script, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.terminate()

    assert said.endswith(" is running. Ctrl-C stops it.\n")
    assert process.returncode == 0


def test_a_port_in_use_is_a_sentence() -> None:
    """The simulator cannot start there, and prints why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = tocsin_here("simulate", "--port", port, "--wallets=1", "--history-hours=0", environment={})

    assert done.returncode == 1
    assert "cannot listen on" in done.stderr


def test_serve_passes_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []
    monkeypatch.setattr("tocsin.service.serve", lambda **options: seen.append(options))

    CliRunner().invoke(app, ["serve", "--demo", "--port", "0", "--data-dir", str(tmp_path)])

    assert seen == [{"as_demo": True, "bad_times": False, "host": None, "port": 0, "data_dir": tmp_path}]


def test_check_is_doctor_without_the_network() -> None:
    """The same findings, each a line with its fix, and the same exit code."""
    wrong = tocsin_here("check", environment={})
    same = tocsin_here("doctor", "--offline", environment={})
    fine = tocsin_here("check", "--json", environment={"ADMIN_KEY": "a-long-random-text"})

    assert re.sub(r"tmp\w+", "", wrong.stdout) == re.sub(r"tmp\w+", "", same.stdout)
    assert "problem  keys: ADMIN_KEY is not set: the console and the admin routes will refuse" in wrong.stdout
    problems = [each["name"] for each in json.loads(fine.stdout)["checks"] if each["verdict"] == "problem"]
    assert problems in ([], ["open files"])  # this machine may allow only a few
    assert json.loads(fine.stdout)["ok"] is (not problems)
    assert (wrong.returncode, same.returncode, fine.returncode) == (1, 1, len(problems))

    secret = "a-long-random-text"
    masked = tocsin_here("check", environment={"ADMIN_KEY": secret, "TOCSIN_DATA_DIR": f"/nowhere/{secret}/data"})
    assert "problem  databases: /nowhere/[redacted]/data: its parent directory does not exist" in masked.stdout


def test_the_help_groups_the_commands() -> None:
    """Somebody who looks for a command finds it under its purpose."""
    shown = tocsin_here("--help", environment={"COLUMNS": "100"}).stdout
    groups: dict[str, list[str]] = {}
    for line in shown.splitlines():
        title = re.match(r"╭─ (\w+) ", line)
        command = re.match(r"│ (\w+)", line)
        if title is not None:
            groups[title[1]] = []
        elif command is not None:
            groups[list(groups)[-1]].append(command[1])

    del groups["Options"]
    assert list(groups) == ["Watch", "Act", "Competition", "Data", "Service"]
    assert groups == {
        "Watch": ["status", "runs", "audit", "jobs", "events"],
        "Act": ["refresh", "pause", "resume", "recheck", "job"],
        "Competition": ["prices", "board", "recount", "explain", "refusals", "agents", "round"],
        "Data": ["backup", "verify", "restore", "import", "rebuild", "export"],
        "Service": ["check", "doctor", "serve", "reload", "simulate"],
    }


def test_every_command_is_documented() -> None:
    """docs/commands.md lists exactly these."""
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # a group, because it has commands

    assert set(re.findall(r"^- `tocsin (\w+)", page, re.MULTILINE)) == known


@pytest.mark.slow
def test_the_commands_fit_the_real_service(tmp_path: Path) -> None:
    """Against `tocsin serve` and the simulator: every command understands the responses."""
    with running_simulator() as upstreams, process(ServiceProcess(tmp_path / "data", **upstreams)) as service:
        port = int(service.url.rpartition(":")[2])

        def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return tocsin(*arguments, port=port, ADMIN_KEY=SERVICE_KEY)

        refreshed, paused, status = (command("refresh", "tenero"), command("pause", "--for", "2h"), command("status"))
        past, too_far = command("pause", "--until", "2020-01-01T00:00"), command("pause", "--for", "30d")
        runs, prices, board = command("runs", "--task", "tenero"), command("prices"), command("board")
        resumed = command("resume")
        malformed, unknown = command("recheck", "0x12"), command("recheck", "ab" * 32)

    done = (refreshed, paused, status, runs, prices, board, resumed)
    assert [one.returncode for one in done] == [0] * len(done)
    assert "tenero: ok" in refreshed.stdout
    assert re.fullmatch(rf"Paused until {UTC_TIME}. `tocsin resume` ends the pause.\n", paused.stdout)
    assert "Paused until" in status.stdout
    limit = rf"Give one at most 7 days ahead, {UTC_MINUTE} at the latest\.\n"
    assert re.fullmatch(rf"That time is past: it is {UTC_MINUTE} now\. {limit}", past.stderr)
    assert re.fullmatch(rf"That is too far ahead for a pause\. {limit}", too_far.stderr)
    assert [one.returncode for one in (past, too_far, malformed, unknown)] == [2, 2, 2, 1]
    assert malformed.stderr.startswith("txid: ")
    assert unknown.stdout.startswith("Not recorded (tx_not_found): Hiro does not know it. ")
    assert "3 succeeded" in runs.stdout
    assert "tenero" in prices.stdout


def test_the_version_is_printed() -> None:
    """It is the version of the package."""
    done = tocsin_here("--version", environment={})

    assert (done.returncode, done.stdout, done.stderr) == (0, f"tocsin {__version__}\n", "")


@pytest.mark.parametrize(
    ("shell", "typed"),
    [
        ("bash", {"COMP_WORDS": "tocsin re", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "tocsin re"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "tocsin re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_a_shell_completes_the_commands(shell: str, typed: Mapping[str, str]) -> None:
    """What `tocsin --show-completion` prints is a script that asks the command itself."""
    # A test need not have been started by a shell.
    undetected = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = tocsin_here("--show-completion", shell, environment=undetected)
    done = tocsin_here(environment={"_TOCSIN_COMPLETE": f"complete_{shell}", **typed})

    assert (script.returncode, script.stderr) == (0, "")
    assert "_TOCSIN_COMPLETE" in script.stdout
    assert {"refresh", "resume", "rebuild"} <= set(re.findall(r"[a-z]+", done.stdout))
    assert "status" not in done.stdout
