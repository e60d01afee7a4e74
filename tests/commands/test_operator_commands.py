"""Commands that act: the key and the reason that they send, and the audit log."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.types import JSON
from support.scripted_scheduler import ADMIN_KEY, ScriptedScheduler
from support.statuses import refresh_result, run_record, task_status
from support.tocsin_command import tocsin
from support.web_thread import Running
from support.world import VIEWER_KEY
from tocsin.commands import client as list_runs
from tocsin.commands.client import client_of
from tocsin.swaps.types import SubmitAnswer


@pytest.mark.slow
def test_a_reason_goes_with_an_action_and_the_audit_log_shows_it_as_text(running: Running) -> None:
    """Markup and terminal commands stay text; no key is shown."""
    running.scheduler.audited.clear()
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
    running.scheduler.audited.clear()
    tocsin(*arguments, "--reason", "the plan says so", port=running.port)

    [record] = running.scheduler.audited.values()
    assert (record.action, record.reason) == (arguments[0], "the plan says so")


def test_a_refresh_that_did_not_do_everything_exits_with_1(running: Running) -> None:
    """Partial is not success: a script must notice it."""

    async def partly(_task: str) -> JSON:
        return refresh_result(run_record(outcome="partial", trigger="refresh"), paused_until=None).to_json()

    with replaced(running.scheduler, "refresh_now", partly):
        assert tocsin("refresh", "tenero", port=running.port).returncode == 1


def test_a_recheck_that_counts_nothing_exits_with_1(running: Running) -> None:
    """Its sentence is printed."""
    refused = SubmitAnswer(422, "tx_failed", "The transaction failed.", "abort_by_response", retryable=False)

    async def rechecked(_job: str, _argument: JSON) -> JSON:
        return refused.to_json()

    with replaced(running.scheduler, "run_job", rechecked):
        done = tocsin("recheck", f"0x{1:064x}", port=running.port)

    assert done.returncode == 1
    assert "The transaction failed." in done.stdout


def test_a_resume_says_whether_anything_was_held(running: Running) -> None:
    """An open breaker is held without a pause."""
    tasks = running.scheduler.shown.tasks
    nothing = tocsin("resume", port=running.port).stdout
    running.do(lambda: running.scheduler.show(tasks={**tasks, "tenero": task_status(failing=True)}))
    held = tocsin("resume", port=running.port).stdout
    running.do(lambda: running.scheduler.show(tasks=tasks))

    assert (nothing, held) == ("Nothing was paused.\n", "Resumed.\n")


def test_one_task_is_paused_and_resumed(running: Running) -> None:
    """Only that task: the answers name it."""
    paused = tocsin("pause", "--for", "2h", "--task", "sweep", port=running.port).stdout
    other = tocsin("resume", "--task", "tenero", port=running.port).stdout
    calls = [call for call in running.scheduler.calls if call[0] in {"pause_until", "resume"}][-2:]
    tocsin("resume", port=running.port)

    assert re.fullmatch(r"sweep is paused until .+\. `tocsin resume` ends the pause\.\n", paused)
    assert other == "Nothing was paused.\n"
    assert [(call[0], call[-1]) for call in calls] == [("pause_until", "sweep"), ("resume", "tenero")]


def test_runs_are_listed_page_by_page(running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As many as were asked for, and no more; `next` is where the list continues."""
    monkeypatch.setattr(list_runs, "PAGE_MAX", 2)
    client = client_of({"ADMIN_KEY": ADMIN_KEY}, tmp_path / ".env", port=running.port)
    running.scheduler.history = [run_record(id=number) for number in range(9, 0, -1)]
    running.scheduler.calls.clear()
    found = list_runs.list_runs(client, {"task": "tenero", "outcome": None}, 5)

    assert ([run.id for run in found.runs], found.next) == ([9, 8, 7, 6, 5], 5)
    asked = [(query["task"], query["limit"]) for _, query in running.scheduler.calls]
    assert asked == [("tenero", 2), ("tenero", 2), ("tenero", 1)]


@contextmanager
def replaced(scheduler: ScriptedScheduler, method: str, work: object) -> Iterator[None]:
    """The scripted scheduler with another method."""
    setattr(scheduler, method, work)
    try:
        yield
    finally:
        delattr(scheduler, method)
