"""The routes of operators, supervisors and the site's cron."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset, RemoteError
from holdfast.local.data_dir import FileFault
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast.types import JSON
from stacks_simulator.faults import SimulatedFault
from support.service_states import CASES, NOW, TASKS, Case, check, entries_of
from support.simulated_fetch import SimulatedFetch
from support.statuses import DAY, HEALTHY, scheduler_status, task_status
from support.world import (
    ADMIN_KEY,
    CRON_SECRET,
    FAILING,
    KEY,
    SETTINGS,
    VIEWER,
    VIEWER_KEY,
    FailingStub,
    Tocsin,
    named_keys,
    tocsin_in,
)
from tocsin import __version__
from tocsin.errors import RequestRefused
from tocsin.scheduler.health import HealthSnapshot, health_of
from tocsin.scheduler.history import day_of
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import (
    SERVICE_STATES,
    AuditRecord,
    Caller,
    Completeness,
    DayTotals,
    Paused,
    Reloaded,
    RunFilter,
    SchedulerOverview,
)
from tocsin.swaps.proof import SWITCHED_OFF
from tocsin.web.deps import Process

PATH = "/api/admin/scheduler"


async def test_the_status_is_passed_on(tmp_path: Path) -> None:
    """With the instance's name, for no cache and no search engine."""
    async with tocsin_in(tmp_path, feed_enabled=False) as made:
        answer = await made.ask(PATH, headers=KEY)

        assert answer.status == 200
        status = await made.client().status()
        health = health_of(HealthSnapshot(None, None, status), status.now)
        lists = dict.fromkeys(sorted(made.deps.rules.allowlist.contracts))
        caller = Caller("alice", "operator")
        unproven = Completeness(None, None, None, SWITCHED_OFF)
        overview = SchedulerOverview("v1", status, health, {}, lists, caller, unproven)
        assert answer.json() == overview.to_json()
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-robots-tag"] == "noindex"


async def test_refusals_of_the_last_day_are_counted_by_code(made: Tocsin) -> None:
    """Of every source. What was refused more than a day ago is left out."""
    insert = made.db.prepare(
        "INSERT INTO refusals SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), '', 'SP1',"
        " NULL, NULL, 1, 1, '', NULL, json_extract(value, '$[2]'), '1', json_extract(value, '$[3]')"
        " FROM json_each(?)"
    )
    rows = [
        ("0x1", "tx_failed", "agent", START_MS),
        ("0x2", "contract_not_allowlisted", "cron", START_MS - 1),
        ("0x3", "contract_not_allowlisted", "chainhook", START_MS - 86_400_000),
        ("0x4", "contract_not_allowlisted", "cron", START_MS - 86_400_001),
    ]
    await insert.bind(json.dumps(rows)).run()
    answer = await made.ask(PATH, headers=KEY)

    refusals = list(answer.json()["refusals"].items())
    assert refusals == [("contract_not_allowlisted", 2), ("tx_failed", 1)]


async def test_the_status_shows_without_the_database(made: Tocsin) -> None:
    """An operator needs it most at such a time; the log has what is missing."""
    await made.db.close()  # type: ignore[attr-defined]
    answer = await made.ask(PATH, headers=KEY)

    assert (answer.status, answer.json()["refusals"]) == (200, None)
    assert answer.json()["status"] == (await made.client().status()).to_json()
    assert len(made.log.named("refusals.not_counted")) == 1


@pytest.mark.parametrize("key", ["", "wrong", ADMIN_KEY[:-1], f"{ADMIN_KEY}x", ADMIN_KEY.upper(), "schl\xfcssel"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", PATH),
        ("POST", f"{PATH}?action=resume"),
        ("GET", f"{PATH}/runs"),
        ("GET", f"{PATH}/days"),
        ("GET", f"{PATH}/events"),
    ],
)
async def test_without_the_key_nothing_is_shown_or_done(failing: Tocsin, method: str, path: str, key: str) -> None:
    """401 in the shape of all errors, without the key in it."""
    answer = await failing.ask(path, method=method, headers={"X-Admin-Key": key})

    assert (answer.status, answer.json()["code"]) == (401, "unauthorised")
    assert ADMIN_KEY.encode() not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "setting"),
    [("GET", PATH, "ADMIN_KEY"), ("POST", PATH, "ADMIN_KEY"), ("POST", "/api/competition/cron", "CRON_SECRET")],
)
async def test_without_a_configured_key_the_route_refuses(tmp_path: Path, method: str, path: str, setting: str) -> None:
    """It is closed, not open, and the sentence names the setting that opens it."""
    async with tocsin_in(tmp_path, stub=FAILING, admin_key=(), viewer_key=(), cron_secret=()) as made:
        answer = await made.ask(path, method=method, headers={"X-Admin-Key": ""})

    assert (answer.status, answer.json()["code"]) == (503, "key_not_configured")
    assert setting in answer.json()["error"]


def test_keys_are_not_shown() -> None:
    """Keys that end up in a log are not readable there."""
    assert "k3y" not in repr(SETTINGS)
    assert "s3cret" not in repr(SETTINGS)


async def test_pause_and_resume(made: Tocsin) -> None:
    """Until a time in unix milliseconds, and back."""
    until = START_MS + 7_200_000
    paused = await made.act(f"action=pause&until={until}")
    paused_until = (await made.client().status()).paused_until
    resumed = await made.act("action=resume")

    assert paused.json() == {"name": "v1", "pausedUntil": until}
    assert resumed.json() == {"name": "v1", "resumed": True}
    assert (paused_until, (await made.client().status()).paused_until) == (until, None)


@pytest.mark.parametrize(
    ("query", "task"),
    [
        ("&task=tenero", "tenero"),
        ("&task=sweep", "sweep"),
        ("&task=all", "all"),
        ("&task=competition", "sweep"),
        ("&task=", "tenero"),
        ("", "tenero"),
    ],
)
async def test_refresh_runs_a_task_and_returns_its_result(made: Tocsin, query: str, task: str) -> None:
    """Each task, or all of them; the site's name for the sweep, and the site's default."""
    await made.client().pause_until(made.clock.now() + 600_000)  # the tasks run by hand only
    answer = await made.act(f"action=refresh{query}")

    body, status = answer.json(), await made.client().status()
    results = body["result"] if task == "all" else {task: body["result"]}
    assert (body["name"], body["task"]) == ("v1", task)
    assert set(results) == (set(status.tasks) if task == "all" else {task})
    for name, result in results.items():
        assert result.pop("run")["outcome"] == "ok"
        assert result == status.last_result[name]


NO_DURATION = " is not a duration: a number and ms, s, m, h or d, such as for=2h."
WRONG_DURATIONS = ("soon", "0h", "-2h", "1.5h", "2H", f"{'9' * 60}d")
FOREIGN_PARAMETERS = ("resume&until=1", "refresh&task=tenero&for=2h", "pause&for=2h&txid=0x1")
WRONG_TIMES = ("tomorrow", "12abc", "-5", "1e12", "٣٣٣")
TASK_NAMES = ", ".join([*TASKS, "all"])


@pytest.mark.parametrize(
    ("query", "code", "sentence"),
    [
        ("", "unknown_action", "action=pause&for=2h, action=pause&until=UNIX_MS, action=resume, action=refresh&task="),
        ("action=stop", "unknown_action", "action=resume"),
        ("action=pause", "bad_until", "Give either for=2h or until=1778700600000."),
        ("action=pause&for=2h&until=1778700600000", "bad_until", "Give either for=2h or until=1778700600000."),
        *[(f"action=pause&for={text}", "bad_until", f"for={text[:40]}{NO_DURATION}") for text in WRONG_DURATIONS],
        ("action=pause&for=", "bad_until", "for= is not a duration"),
        *[(f"action={each}", "bad_request", "takes no") for each in FOREIGN_PARAMETERS],
        *[(f"action=pause&until={each}", "bad_until", "whole number") for each in WRONG_TIMES],
        ("action=pause&until=1", "bad_until", "That time is past"),
        *[(f"action=refresh&task={each}", "bad_task", TASK_NAMES) for each in ("../x", "nothing")],
    ],
)
async def test_a_wrong_action_is_refused_with_what_is_accepted(
    made: Tocsin, query: str, code: str, sentence: str
) -> None:
    """Refusals of the object itself are passed on as well; so is a parameter of another action."""
    answer = await made.act(query)

    assert (answer.status, answer.json()["code"]) == (400, code)
    assert sentence in answer.json()["error"]


PAUSES = {"90s": 90_000, "15m": 900_000, "2h": 7_200_000, "1d": DAY, "250ms": 250, "7d": 7 * DAY}


@pytest.mark.parametrize(("duration", "ms"), PAUSES.items())
async def test_a_pause_for_a_duration_ends_by_the_clock_of_the_service(made: Tocsin, duration: str, ms: int) -> None:
    """The service adds the duration to its own time; the answer is the object's."""
    await made.clock.sleep(86.4)
    until = START_MS + 86_400 + ms
    answer = await made.act(f"action=pause&for={duration}")

    assert (await made.client().status()).paused_until == until
    assert (answer.status, answer.json()) == (200, {"name": "v1", "pausedUntil": until})


class Shorter:
    """An object that ends a pause earlier than was asked."""

    async def pause_until(self, until: int, _task: str | None, _by: Any) -> JSON:
        return Paused("v2", until - 1).to_json()


async def test_the_end_of_a_pause_is_what_the_object_returns(tmp_path: Path) -> None:
    """If the object shortens a pause, the actual pause is shown, not the requested one."""
    async with tocsin_in(tmp_path, stub=Shorter()) as made:
        answer = await made.act("action=pause&for=2h")

    assert answer.json() == {"name": "v2", "pausedUntil": START_MS + 7_199_999}


async def test_one_task_is_paused_and_resumed(made: Tocsin) -> None:
    """The answer, the status and the audit log name it; an unknown one is refused."""
    paused = await made.act("action=pause&for=2h&task=competition")  # the site's name of the sweep
    tasks = (await made.client().status()).tasks
    resumed = await made.act("action=resume&task=sweep")
    unknown = [await made.act(f"action={action}&task=nothing") for action in ("resume", "pause&for=2h")]
    ended = (await made.client().status()).tasks

    assert paused.json() == {"name": "v1", "pausedUntil": START_MS + 7_200_000, "task": "sweep"}
    assert {name: task.paused_until for name, task in tasks.items() if task.paused_until} == {
        "sweep": START_MS + 7_200_000
    }
    assert resumed.json() == {"name": "v1", "resumed": True, "task": "sweep"}
    assert ended["sweep"].paused_until is None
    assert [(answer.status, answer.json()["code"]) for answer in unknown] == [(400, "bad_task")] * 2
    assert {(record.action, record.target, record.outcome) for record in await records(made)} == {
        ("pause", "sweep", "done"),
        ("resume", "sweep", "done"),
        ("resume", "nothing", "refused"),
        ("pause", "nothing", "refused"),
    }


@pytest.mark.parametrize(
    "error", [ObjectReset("the object was reset"), RemoteError("StoreUnavailable: /data/db.sqlite is locked")]
)
async def test_a_scheduler_that_does_not_answer_is_a_503(tmp_path: Path, error: Exception) -> None:
    """Retryable, logged, and without any detail of what is inside."""
    async with tocsin_in(tmp_path, stub=FailingStub(error)) as made:
        answer = await made.ask(PATH, headers=KEY)

        assert (answer.status, answer.json()["code"]) == (503, "scheduler_unavailable")
        assert answer.json()["retryable"] is True
        assert answer.headers["retry-after"] == "5"
        assert b"sqlite" not in answer.body
        assert str(error) in made.log.named("request.failed")[0]["error"]


async def test_the_cron_route_describes_itself(failing: Tocsin) -> None:
    """Without a secret, and without doing anything."""
    answer = await failing.ask("/api/competition/cron")

    assert answer.status == 200
    assert "X-Cron-Secret" in answer.json()["does"]


async def test_the_cron_route_has_a_retry_after(failing: Tocsin) -> None:
    """503 when the scheduler does not answer."""
    answer = await failing.ask("/api/competition/cron", method="POST", headers={"X-Cron-Secret": CRON_SECRET})

    assert (answer.status, answer.headers["retry-after"]) == (503, "5")


async def test_old_counts_are_not_shown_when_the_database_stops_answering(made: Tocsin) -> None:
    """Unknown is not what it was a while ago."""
    before = (await made.ask(PATH, headers=KEY)).json()["refusals"]
    await made.db.close()  # type: ignore[attr-defined]
    await asyncio.sleep(3)
    after = (await made.ask(PATH, headers=KEY)).json()["refusals"]

    assert (before, after) == ({}, None)


@pytest.mark.parametrize("action", ["recheck&txid=", "refresh&task="])
async def test_a_long_target_is_cut_in_the_audit_log(made: Tocsin, action: str) -> None:
    """It is a caller's text, and may be anything."""
    await made.act(f"action={action}{'x' * 500}")

    [record] = await records(made)
    assert record.target == "x" * 80


async def test_the_running_runs_can_be_listed(tmp_path: Path) -> None:
    """As an outcome, although they have none yet."""
    async with tocsin_in(tmp_path, fetch=lambda simulator: SimulatedFetch(simulator, latency_s=5)) as made:
        await made.act("action=refresh&task=rounds")
        refresh = asyncio.create_task(made.act("action=refresh&task=tenero"))
        await asyncio.sleep(1)
        answer = await made.ask(f"{PATH}/runs?outcome=running", headers=KEY)
        await refresh

        running = [run["task"] for run in answer.json()["runs"]]
        assert ("tenero" in running, "rounds" in running) == (True, False)


VIEWS = (PATH, f"{PATH}/runs", f"{PATH}/audit")
ACTIONS = (
    "action=pause&for=1h",
    "action=resume",
    "action=refresh&task=all",
    "action=recheck&txid=0x1",
    "action=reload",
)


async def records(made: Tocsin) -> list[AuditRecord]:
    """The audit log, oldest first."""
    return [*reversed((await made.client().audit(50)).records)]


async def test_a_viewer_may_look(made: Tocsin) -> None:
    """At everything; the overview says whose key it was."""
    answers = [await made.ask(path, headers=VIEWER) for path in VIEWS]

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert answers[0].json()["caller"] == {"name": "carol", "role": "viewer"}


@pytest.mark.slow
@pytest.mark.parametrize("query", ACTIONS)
async def test_a_viewer_may_not_act(made: Tocsin, query: str) -> None:
    """403 with a sentence, a line in the log, and nothing done; the wrong-key limit is not for them."""
    answers = [await made.act(query, VIEWER_KEY) for _ in range(12)]

    assert {answer.status for answer in answers} == {403}
    body = answers[0].json()
    assert body["code"] == "read_only_key"
    assert body["error"] == "The key carol is read-only: this action needs a key from ADMIN_KEY."
    assert await records(made) == []
    assert made.log.named("auth.forbidden")[0]["key"] == "carol"
    assert (await made.ask(PATH, headers=VIEWER)).status == 200


async def test_every_key_of_the_setting_opens(tmp_path: Path) -> None:
    """The first, the last and those between; a reload that removes one closes it."""
    many = named_keys("first-key-of-many", "second-key-of-many", "third-key-of-many")
    async with tocsin_in(tmp_path, admin_key=many) as made:
        opened = [(await made.ask(PATH, headers={"X-Admin-Key": key.secret})).status for key in many]
        made.built.in_force.settings = replace(made.built.settings, admin_key=many[1:])
        after = [(await made.ask(PATH, headers={"X-Admin-Key": key.secret})).status for key in many]

        assert opened == [200, 200, 200]
        assert after == [401, 200, 200]


async def test_an_action_is_recorded_with_who_what_why_and_how_it_ended(made: Tocsin) -> None:
    """The name of the key, never the key."""
    await made.act("action=pause&for=2h&reason=Hiro%20moves%20house")
    await made.act("action=refresh&task=all")
    answer = await made.ask(f"{PATH}/audit?limit=1", headers=KEY)

    pause, refresh = await records(made)
    assert pause == AuditRecord(
        "alice", "operator", "192.0.2.1", "pause", None, "Hiro moves house", id="operator-1", at=START_MS,
        outcome="done", ended_at=START_MS, detail="until 2026-05-13 21:30 UTC",
    )  # fmt: skip
    assert (refresh.target, refresh.reason) == ("all", None)
    assert refresh.detail is not None
    assert "of tenero: ok" in refresh.detail
    assert answer.json() == {"name": "v1", "records": [refresh.to_json()]}
    assert ADMIN_KEY.encode() not in answer.body


async def test_what_the_object_refuses_is_recorded_as_refused(made: Tocsin) -> None:
    """And what the request does not say clearly is not an action."""
    assert (await made.act("action=refresh&task=nothing")).status == 400
    assert (await made.act("action=pause&until=1")).status == 400
    before = await records(made)
    assert (await made.act("action=pause")).status == 400
    assert (await made.act("action=dance")).status == 400

    assert [record.outcome for record in before] == ["refused", "refused"]
    assert before[0].detail == f"there is no task 'nothing': give one of {TASK_NAMES}"
    assert await records(made) == before


async def test_an_action_that_cannot_be_recorded_is_not_done(made: Tocsin) -> None:
    """The audit log is in the same store as the scheduler: without it nothing can be done at all."""
    made.scheduler.runtime.refuse_writes("the disk is full")
    answer = await made.act("action=refresh")
    made.scheduler.runtime.refuse_writes(None)

    assert (answer.status, answer.json()["code"]) == (503, "scheduler_unavailable")
    assert (await records(made), (await made.client().runs(RunFilter(None, 9))).runs) == ([], [])


async def test_an_action_whose_end_cannot_be_recorded_was_done(made: Tocsin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets its answer, the record stays `begun`, and the log has the outcome."""

    async def lost(*_arguments: object) -> None:
        raise ObjectReset("the disk is full")

    monkeypatch.setattr(SchedulerDO, "audit_end", lost)
    answer = await made.act("action=refresh")

    assert answer.status == 200
    assert [record.outcome for record in await records(made)] == ["begun"]
    line = made.log.named("audit.end_failed")[0]
    assert (line["record"], line["action"], line["key"], line["outcome"]) == ("operator-1", "refresh", "alice", "done")


async def test_a_failed_action_is_recorded_as_failed(tmp_path: Path) -> None:
    """As far as it can be: here the object answers again."""

    async def reload() -> Reloaded:
        raise ObjectReset("the object was reset")

    async with tocsin_in(tmp_path, process=Process(reload=reload)) as made:
        answer = await made.act("action=reload")

        assert answer.status == 503
        assert [(record.outcome, record.detail) for record in await records(made)] == [
            ("failed", "the object was reset")
        ]


@pytest.mark.parametrize(
    ("reason", "kept"),
    [("x" * 201, None), ("two%0Alines", None), ("%1B[2J", None), (f"%3Cb%3E{'x' * 197}", f"<b>{'x' * 197}")],
)
async def test_a_reason_is_one_short_line(made: Tocsin, reason: str, kept: str | None) -> None:
    """It is shown in terminals and pages; of that length, it is kept as it is."""
    answer = await made.act(f"action=resume&reason={reason}")

    assert answer.json().get("code") == (None if kept else "bad_reason")
    assert [record.reason for record in await records(made)] == ([kept] if kept else [])


async def test_the_cron_route_runs_the_sweep_and_is_in_the_audit_log(tmp_path: Path) -> None:
    """With both of its secrets while one replaces the other; it returns the sweep's summary."""
    both = (*SETTINGS.cron_secret, *named_keys("cr0n-s3cret-to-come", name="new", role="cron"))
    async with tocsin_in(tmp_path, cron_secret=both) as made:
        answers = [
            await made.ask("/api/competition/cron", method="POST", headers={"X-Cron-Secret": secret})
            for secret in (CRON_SECRET, "cr0n-s3cret-to-come", "guess")
        ]

        assert [answer.status for answer in answers] == [200, 200, 401]
        assert answers[0].json()["contractsRead"] == 40
        assert [(record.key, record.role, record.action, record.target) for record in await records(made)] == [
            ("cron", "cron", "refresh", "sweep"),
            ("new", "cron", "refresh", "sweep"),
        ]


async def test_a_reload_answers_with_what_changed(tmp_path: Path) -> None:
    """Settings that are wrong are refused with every problem."""

    async def reload() -> Reloaded:
        return Reloaded("v1", ["ADMIN_KEY"], ["TOCSIN_PORT"], [])

    async def refuse() -> Reloaded:
        raise RequestRefused(422, "settings_refused", "ADMIN_KEY: its value is too short")

    async with tocsin_in(tmp_path, process=Process(reload=reload)) as made:
        done = await made.act("action=reload")
        made.with_deps(process=Process(reload=refuse))
        refused = await made.act("action=reload")

        assert done.json() == {
            "name": "v1",
            "applied": ["ADMIN_KEY"],
            "needsRestart": ["TOCSIN_PORT"],
            "overridden": [],
        }
        assert (refused.status, refused.json()["error"]) == (422, "ADMIN_KEY: its value is too short")
        assert [(record.outcome, record.detail) for record in await records(made)] == [
            ("done", "applied: ADMIN_KEY; needs a restart: TOCSIN_PORT"),
            ("refused", "ADMIN_KEY: its value is too short"),
        ]


async def test_where_a_reload_is_a_deployment_the_answer_says_so(made: Tocsin) -> None:
    """On Cloudflare."""
    answer = await made.act("action=reload")

    assert (answer.status, answer.json()["code"]) == (409, "reload_is_a_deployment")
    assert "wrangler secret put" in answer.json()["error"]


async def test_the_run_history(made: Tocsin) -> None:
    """Of all tasks or one, the newest first."""
    await made.act("action=refresh&task=tenero")
    await made.act("action=refresh&task=sweep")

    everything = await made.ask(f"{PATH}/runs", headers=KEY)
    one = await made.ask(f"{PATH}/runs?task=tenero&limit=1", headers=KEY)

    assert everything.json() == (await made.client().runs(RunFilter(None, 50))).to_json()
    runs = everything.json()["runs"]
    assert {"sweep", "tenero"} <= {run["task"] for run in runs}
    assert (everything.json()["name"], everything.json()["next"]) == ("v1", None)
    assert one.json()["runs"] == [run for run in runs if run["task"] == "tenero"][:1]


async def test_a_page_of_the_run_history_has_50_runs(made: Tocsin) -> None:
    """Unless another limit is given."""
    for _ in range(51):
        await made.client().refresh("rounds")
    answer = await made.ask(f"{PATH}/runs", headers=KEY)

    newest = answer.json()["runs"][0]["id"]
    assert newest >= 51
    assert [run["id"] for run in answer.json()["runs"]] == [*range(newest, newest - 50, -1)]


async def test_the_run_history_is_filtered_and_paged(made: Tocsin) -> None:
    """`next` of a page is the `cursor` of the following one."""
    for _ in range(5):
        await made.clock.sleep(1)
        await made.client().refresh("rounds")
    made.simulator.faults.add(SimulatedFault(kind="status", upstream="tenero"))
    await made.client().refresh("tenero")

    async def seconds(query: str) -> tuple[list[int], int | None]:
        page = (await made.ask(f"{PATH}/runs?trigger=refresh&{query}", headers=KEY)).json()
        return [(run["startedAt"] - START_MS) // 1000 for run in page["runs"]], page["next"]

    first, after = await seconds(f"limit=2&outcome=ok&until={START_MS + 3_000}")

    assert first == [3, 2]
    assert await seconds(f"limit=2&cursor={after}") == ([1], None)
    assert await seconds(f"since={START_MS + 5_000}&outcome=ok") == ([5], None)
    assert (await seconds("outcome=failed"))[1] is None
    assert (await made.ask(f"{PATH}/runs?outcome=failed", headers=KEY)).json()["runs"][0]["task"] == "tenero"


async def test_one_run(made: Tocsin) -> None:
    """With its log lines; a number that no run has is not found."""
    made.simulator.faults.add(SimulatedFault(kind="status", upstream="hiro"))
    await made.act("action=refresh&task=sweep")
    [run] = (await made.client().runs(RunFilter("sweep", 9, trigger="refresh"))).runs

    found = await made.ask(f"{PATH}/runs/{run.id}", headers=KEY)
    unknown = await made.ask(f"{PATH}/runs/800", headers=KEY)
    malformed = await made.ask(f"{PATH}/runs/7x", headers=KEY)
    without_key = await made.ask(f"{PATH}/runs/1")

    assert found.json() == (await made.client().run(run.id)).to_json()
    assert found.json()["run"] == run.to_json()
    assert found.json()["progress"] is None
    assert "sweep.unit_unanswered" in [line["event"] for line in found.json()["log"]["lines"]]
    assert set(found.json()["log"]) == {"lines", "leftOut"}
    assert (unknown.status, unknown.json()["code"]) == (404, "unknown_run")
    assert (malformed.status, malformed.json()["code"]) == (400, "bad_number")
    assert without_key.status == 401


async def test_the_totals_of_each_day(tmp_path: Path) -> None:
    """30 days by default."""
    earlier = [day_of(START_MS - number * DAY) for number in range(1, 32)]
    stored = {f"day:{day}": DayTotals(day).to_json() for day in earlier}
    async with tocsin_in(tmp_path, stored=stored) as made:
        await made.client().refresh("rounds")
        answer = await made.ask(f"{PATH}/days", headers=KEY)
        all_days = await made.ask(f"{PATH}/days?limit=400", headers=KEY)
        too_many = await made.ask(f"{PATH}/days?limit=401", headers=KEY)

        newest = answer.json()["days"][0]
        assert (newest["day"], newest["tasks"]["rounds"]["outcomes"]) == ("2026-05-13", {"ok": 1})
        assert (len(answer.json()["days"]), len(all_days.json()["days"])) == (30, 32)
        assert (too_many.status, too_many.json()["error"]) == (400, "limit is 1 to 400.")


@pytest.mark.parametrize(
    ("query", "code", "sentence"),
    [
        ("limit=0", "bad_limit", "limit is 1 to 2000."),
        ("limit=2001", "bad_limit", "limit is 1 to 2000."),
        ("limit=12abc", "bad_limit", "limit=50"),
        ("limit=", "bad_limit", "limit=50"),
        ("limit=-1", "bad_limit", "limit=50"),
        ("since=yesterday", "bad_since", "since=1778700600000"),
        ("cursor=x", "bad_cursor", "cursor is a whole number"),
        ("outcome=fine", "bad_outcome", "outcome is one of running, ok, partial"),
        ("trigger=me", "bad_trigger", "trigger is one of alarm, refresh, rerun"),
        ("until=now", "bad_until", "until=1778700600000"),
        ("task=%00", "bad_task", "tenero, feed, sweep, board, snapshot, rounds"),
        ("task=price", "bad_task", "tenero, feed, sweep, board, snapshot, rounds"),
        ("task=all", "bad_task", "tenero, feed, sweep, board, snapshot, rounds"),
    ],
)
async def test_a_bad_history_query_is_refused(made: Tocsin, query: str, code: str, sentence: str) -> None:
    """A number within the bound, and the name of a task that exists; the examples work."""
    answer = await made.ask(f"{PATH}/runs?{query}", headers=KEY)

    assert (answer.status, answer.json()["code"]) == (400, code)
    assert sentence in answer.json()["error"]


async def test_a_live_process_is_healthy(failing: Tocsin) -> None:
    """Nothing else is checked: not even a broken scheduler matters."""
    answer = await failing.ask("/healthz")

    assert (answer.status, answer.json()) == (200, {"ok": True, "version": __version__})


async def test_a_healthy_service_is_ready(tmp_path: Path) -> None:
    """With no reasons against it, and without a call to the scheduler."""
    clock = VirtualClock(NOW)
    async with tocsin_in(tmp_path, clock=clock, process=Process(), stored=entries_of(CASES["ready"]), arm=True) as made:
        await made.built.health.check()
        before = made.scheduler.runtime.metrics.calls
        answer = await made.ask("/readyz")

        assert (answer.status, answer.json()) == (200, {"ready": True, "state": "ready", "reasons": [], "notes": []})
        assert answer.headers["cache-control"] == "no-store"
        assert made.scheduler.runtime.metrics.calls == before


@pytest.mark.parametrize(
    ("snapshot", "shown", "state", "reason"),
    [
        ({"loop_tick_age_s": 6.0}, {}, "broken", "the event loop has been stuck for 6 s"),
        ({"store_error": "disk is full"}, {}, "broken", "the store cannot be written: disk is full"),
        ({}, {"next_alarm_at": None}, "broken", "no alarm is set: no task will run"),
        ({}, {"next_alarm_at": START_MS - 61_000}, "broken", "the alarm is 61 s late"),
        (
            {},
            {"tasks": {"sweep": task_status(condition="overdue", problem="sweep is overdue")}},
            "overdue",
            "sweep is overdue",
        ),
    ],
)
async def test_each_problem_is_a_503_with_its_reason(
    made: Tocsin, snapshot: dict[str, Any], shown: dict[str, Any], state: str, reason: str
) -> None:
    """In the shape of all errors, so that an operator reads a sentence."""

    async def seen() -> HealthSnapshot:
        return replace(HEALTHY, status=scheduler_status(**shown), **snapshot)

    made.with_deps(health=seen)
    answer = await made.ask("/readyz")

    assert answer.status == 503
    assert answer.json() == {
        "error": f"Not ready: {reason}.",
        "code": "not_ready",
        "retryable": True,
        "ready": False,
        "state": state,
        "reasons": [reason],
        "notes": [],
    }


def test_all_reasons_are_listed_together_and_the_worst_names_the_state() -> None:
    """One fault does not hide another."""
    tasks = {
        "tenero": task_status(condition="failing", problem="a"),
        "sweep": task_status(condition="disabled", problem="b"),
        "watch": task_status(condition="limited", sentence="watch is limited"),
    }
    health = health_of(HealthSnapshot(9.0, "full", scheduler_status(tasks=tasks)), START_MS)

    assert (health.state, health.ready, len(health.reasons)) == ("broken", False, 4)
    assert health.notes == ["watch is limited"]
    assert health_of(HealthSnapshot(0, None, scheduler_status(tasks=tasks)), START_MS).state == "disabled"


async def seen(made: Tocsin) -> list[Any]:
    """What the routes show after a look at the scheduler and the store."""
    await made.built.health.check()
    paths = ("/readyz", PATH, "/api/competition/leaderboard", "/metrics")
    readyz, overview, board, metrics = [await made.ask(path, headers=KEY) for path in paths]
    return [readyz, overview.json(), board.json(), metrics.body.decode()]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_everything_says_the_same_in_every_state(tmp_path: Path, name: str) -> None:
    """The state, whether it is ready, and the sentences."""
    case, clock = CASES[name], VirtualClock(NOW)
    async with tocsin_in(tmp_path, clock=clock, process=Process(), stored=entries_of(case), arm=True) as made:
        check(case, *await seen(made))


async def test_what_only_a_process_can_be(tmp_path: Path) -> None:
    """Switched off by the settings, or with a store that cannot be written."""
    clock = VirtualClock(NOW)
    stored = entries_of(CASES["ready"])
    process = Process(check_files=lambda: FileFault(Path("db.sqlite"), "db.sqlite was deleted", loses_writes=True))
    async with tocsin_in(
        tmp_path, clock=clock, process=Process(), stored=stored, sweep_enabled=False, arm=True
    ) as made:
        disabled = await seen(made)
    async with tocsin_in(tmp_path, clock=clock, process=process) as made:
        broken = await seen(made)

    check(Case("disabled", False, "Swap sweep switched off (TOCSIN_SWEEP_ENABLED)"), *disabled)
    check(Case("broken", False, "the store cannot be written: db.sqlite was deleted"), *broken)


def test_the_table_has_every_state() -> None:
    """Except those of the process."""
    assert {case.state for case in CASES.values()} == set(SERVICE_STATES) - {"disabled", "broken"}
