"""Commands that act: the key and the reason that they send, and the audit log."""

import io
import json
import re
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from stacks_simulator.faults import SimulatedFault
from support.answers import Answer, answering
from support.scheduler import run_entries
from support.statuses import run_record
from support.tocsin_command import tocsin
from support.web_thread import Running, now_ms, served_in_thread
from support.world import ADMIN_KEY, VIEWER_KEY, named_keys
from tocsin.commands import client as list_runs
from tocsin.commands.client import client_of


@pytest.mark.slow
def test_a_reason_goes_with_an_action_and_the_audit_log_shows_it_as_text(running: Running) -> None:
    """Markup and terminal commands stay text; no key is shown."""
    done = tocsin("resume", "--reason", "[bold]because[/] it must", port=running.port)
    shown = tocsin("audit", "--limit", "1", port=running.port)
    as_json = tocsin("audit", "--json", port=running.port)

    assert (done.returncode, shown.returncode) == (0, 0)
    assert "[bold]because[/] it must" in shown.stdout
    assert "alice" in shown.stdout
    assert json.loads(as_json.stdout)["records"][0]["outcome"] == "done"
    assert ADMIN_KEY not in shown.stdout + as_json.stdout


@pytest.mark.slow
def test_a_viewers_key_shows_and_does_nothing(running: Running) -> None:
    """If ADMIN_KEY is not set, TOCSIN_VIEWER_KEY is enough to look."""
    viewer = f"carol:{VIEWER_KEY}"
    looked = tocsin("status", port=running.port, ADMIN_KEY="", TOCSIN_VIEWER_KEY=viewer)
    refused = tocsin("resume", port=running.port, ADMIN_KEY="", TOCSIN_VIEWER_KEY=viewer)

    assert looked.returncode == 0
    assert refused.returncode == 1
    assert refused.stderr == "The key carol is read-only: this action needs a key from ADMIN_KEY.\n"


def test_the_first_of_several_keys_is_sent_without_its_name(tmp_path: Path) -> None:
    """As the service's own `.env` lists them."""
    keys = "alice:the-key-of-alice, bob:the-key-of-bob"

    assert client_of({"ADMIN_KEY": keys}, tmp_path / ".env").key == "the-key-of-alice"
    assert client_of({"ADMIN_KEY": "a-bare-key"}, tmp_path / ".env").key == "a-bare-key"
    assert client_of({"TOCSIN_VIEWER_KEY": "carol:to-look"}, tmp_path / ".env").key == "to-look"
    assert client_of({}, tmp_path / ".env").key is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("refresh", "tenero"), ("recheck", f"0x{1:064x}"), ("pause", "--for", "2h"), ("resume",)]
)
def test_every_action_sends_its_reason(arguments: tuple[str, ...], running: Running) -> None:
    """The audit log has it, whatever becomes of the action."""
    tocsin(*arguments, "--reason", "the plan says so", port=running.port)

    record = running.audited()[0]
    assert (record.action, record.reason) == (arguments[0], "the plan says so")


def test_a_reload_sends_its_reason() -> None:
    """And shows what a restart would apply."""
    asked: list[str] = []

    def respond(request: BaseHTTPRequestHandler) -> Answer:
        asked.append(request.path)
        return 200, {}, b'{"applied": [], "needsRestart": ["TOCSIN_PORT"], "overridden": []}'

    with answering(respond) as port:
        done = tocsin("reload", "--reason", "the plan says so", port=port)

    assert asked == ["/api/admin/scheduler?action=reload&reason=the+plan+says+so"]
    assert done.stdout.endswith("Needs a restart: TOCSIN_PORT.\n")


def test_a_refresh_that_did_not_do_everything_exits_with_1(tmp_path: Path) -> None:
    """Partial is not success: a script must notice it."""
    with served_in_thread(tmp_path) as running:
        running.tocsin.simulator.faults.add(SimulatedFault(kind="status", upstream="hiro", status=400, times=1))
        done = tocsin("refresh", "sweep", port=running.port)
        [run] = running.runs()

    assert (done.returncode, run.outcome) == (1, "partial")


def test_a_recheck_that_counts_nothing_exits_with_1(tmp_path: Path) -> None:
    """Its sentence is printed."""
    with served_in_thread(tmp_path) as running:
        chain = running.tocsin.simulator.chain
        failed = chain.swap(chain.wallets[0], "abort_by_response")
        chain.mine()
        done = tocsin("recheck", failed.tx_id, port=running.port)

    assert done.returncode == 1
    assert "abort_by_response" in done.stdout


def test_a_resume_says_whether_anything_was_held(running: Running, tmp_path: Path) -> None:
    """An open breaker is held without a pause."""
    now = now_ms()
    breaker = {"consecutiveFailures": 5, "nextRunAfter": now + 600_000}
    stored = {"scheduler": {"armedAt": now - 86_400_000}, "task:tenero": breaker}
    nothing = tocsin("resume", port=running.port).stdout
    with served_in_thread(tmp_path, stored=stored, breaker_failures=5) as open_breaker:
        held = tocsin("resume", port=open_breaker.port).stdout
        again_at = open_breaker.status().next_run_after["tenero"]

    assert (nothing, held, again_at) == ("Nothing was paused.\n", "Resumed.\n", None)


def test_one_task_is_paused_and_resumed(running: Running) -> None:
    """Only that task: the answers name it."""
    paused = tocsin("pause", "--for", "2h", "--task", "sweep", port=running.port).stdout
    other = tocsin("resume", "--task", "tenero", port=running.port).stdout
    held = [name for name, task in running.status().tasks.items() if task.paused_until is not None]
    tocsin("resume", port=running.port)
    tocsin("pause", "--for", "2h", port=running.port)
    everything = tocsin("resume", port=running.port).stdout

    assert everything == "Resumed.\n"
    assert re.fullmatch(r"sweep is paused until .+\. `tocsin resume` ends the pause\.\n", paused)
    assert other == "Nothing was paused.\n"
    assert held == ["sweep"]


def test_a_file_of_jobs_is_applied_after_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference is shown before; without a yes, nothing changes. The reason is in the audit log."""
    file = tmp_path / "jobs.toml"
    file.write_text('[jobs.mail]\nurl = "https://site.example/mail"\ncron = "0 8 * * *"\nsecret = "site"\n')
    secrets = named_keys("a-long-random-text", name="site", role="job")
    with served_in_thread(tmp_path, job_secrets=secrets) as running:

        def job(*arguments: str, answer: str = "") -> tuple[int, list[str]]:
            monkeypatch.setattr("sys.stdin", io.StringIO(answer))
            done = tocsin(*arguments, port=running.port)
            return done.returncode, [line.strip() for line in done.stdout.splitlines() if line.strip()]

        job("job", "add", "pay", "--to", "https://site.example/pay", "--every", "7d", "--secret", "site")
        refused = job("job", "apply", str(file), answer="n\n")
        paused, listed = job("job", "pause", "pay", "--reason", "a holiday"), job("jobs")
        by = running.audited()[0]
        applied = job("job", "apply", str(file), answer="y\n")
        names = [name for name, task in running.status().tasks.items() if task.next_at]
        changed = job("job", "change", "mail", "--every", "1h")
        unknown = job("job", "show", "pay")

    difference = ["pay: removed", "mail: added, 0 8 * * * (UTC): https://site.example/mail"]
    assert refused == (1, difference)
    assert paused == (0, ["pay: enabled yes → no"])
    assert "paused" in listed[1][1]
    assert (by.action, by.reason) == ("job pause", "a holiday")
    assert (applied, names) == ((0, [*difference, "Done."]), ["mail"])
    assert changed == (0, ["mail: cron 0 8 * * * → none, every none → 1h"])
    assert unknown[0] == 2


def test_runs_are_listed_page_by_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As many as were asked for, and no more; `next` is where the list continues."""
    monkeypatch.setattr(list_runs, "PAGE_MAX", 2)
    stored = run_entries(*(run_record(id=number) for number in range(1, 10)))
    with served_in_thread(tmp_path, stored=stored) as running:
        client = client_of({"ADMIN_KEY": ADMIN_KEY}, tmp_path / ".env", port=running.port)
        before = running.tocsin.scheduler.runtime.metrics.calls
        found = list_runs.list_runs(client, {"task": "tenero", "outcome": None}, 5)
        pages = running.tocsin.scheduler.runtime.metrics.calls - before

    assert ([run["id"] for run in found["runs"]], found["next"], pages) == ([9, 8, 7, 6, 5], 5, 3)
