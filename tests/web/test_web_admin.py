"""`/api/admin/scheduler` and `/api/competition/cron`: the object's RPC, for callers with the key."""

import asyncio
import json
from inspect import signature
from pathlib import Path

import pytest

from holdfast.errors import ObjectReset, RemoteError
from holdfast.types import JSON
from holdfast_testing.virtual_time import START_MS
from support.asgi import Answer, ask
from support.scripted_scheduler import ADMIN_KEY, CRON_SECRET, KEYS, Scene, ScriptedScheduler, scene
from support.statuses import DAY
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import Caller, Completeness, Health, Paused, SchedulerOverview
from tocsin.swaps.proof import SWITCHED_OFF
from tocsin.web.app import create_app
from tocsin.web.deps import InForce, Keys

PATH = "/api/admin/scheduler"
KEY = {"X-Admin-Key": ADMIN_KEY}


RPC = (
    "arm",
    "status",
    "refresh_now",
    "pause_until",
    "resume",
    "runs",
    "days",
    "events",
    "run_job",
    "audit_begin",
    "audit_end",
    "audit",
    "reload",
)


@pytest.mark.parametrize("method", RPC)
def test_the_double_has_the_methods_of_the_object(method: str) -> None:
    """With the same parameters: a test must not call what the object does not have."""
    double, real = (list(signature(getattr(cls, method)).parameters) for cls in (ScriptedScheduler, SchedulerDO))

    assert double == real


async def post(made: Scene, query: str) -> Answer:
    return await ask(create_app(made.site), f"{PATH}?{query}", method="POST", headers=KEY)


async def test_the_status_is_passed_on(tmp_path: Path) -> None:
    """With the instance's name, for no cache and no search engine."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), PATH, headers=KEY)

        assert answer.status == 200
        health = Health(ready=True, state="ready", reasons=[], notes=[])
        lists = dict.fromkeys(sorted(made.site.rules.allowlist.contracts))
        caller = Caller("alice", "operator")
        unproven = Completeness(None, None, None, SWITCHED_OFF)
        overview = SchedulerOverview("v1", made.scheduler.shown, health, {}, lists, caller, unproven)
        assert answer.json() == overview.to_json()
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-robots-tag"] == "noindex"


async def test_refusals_of_the_last_day_are_counted_by_code(tmp_path: Path) -> None:
    """Of every source. What was refused more than a day ago is left out."""
    async with scene(tmp_path) as made:
        insert = made.site.db.prepare(
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
        answer = await ask(create_app(made.site), PATH, headers=KEY)

        refusals = list(answer.json()["refusals"].items())
        assert refusals == [("contract_not_allowlisted", 2), ("tx_failed", 1)]


async def test_the_status_shows_without_the_database(tmp_path: Path) -> None:
    """An operator needs it most at such a time; the log has what is missing."""
    async with scene(tmp_path) as made:
        await made.site.db.close()  # type: ignore[attr-defined]
        answer = await ask(create_app(made.site), PATH, headers=KEY)

        assert (answer.status, answer.json()["refusals"]) == (200, None)
        assert answer.json()["status"] == made.scheduler.shown.to_json()
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
async def test_without_the_key_nothing_is_shown_or_done(tmp_path: Path, method: str, path: str, key: str) -> None:
    """401 in the shape of all errors, without the key in it."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), path, method=method, headers={"X-Admin-Key": key})

        assert (answer.status, answer.json()["code"]) == (401, "unauthorised")
        assert ADMIN_KEY.encode() not in answer.body
        assert made.scheduler.calls == []


@pytest.mark.parametrize(
    ("method", "path", "setting"),
    [("GET", PATH, "ADMIN_KEY"), ("POST", PATH, "ADMIN_KEY"), ("POST", "/api/competition/cron", "CRON_SECRET")],
)
async def test_without_a_configured_key_the_route_refuses(tmp_path: Path, method: str, path: str, setting: str) -> None:
    """It is closed, not open, and the sentence names the setting that opens it."""
    async with scene(tmp_path) as made:
        made.with_site(in_force=InForce(Keys(), made.site.rules))
        answer = await ask(create_app(made.site), path, method=method, headers={"X-Admin-Key": ""})

        assert (answer.status, answer.json()["code"]) == (503, "key_not_configured")
        assert setting in answer.json()["error"]
        assert made.scheduler.calls == []


def test_keys_are_not_shown() -> None:
    """Keys that end up in a log are not readable there."""
    assert "k3y" not in repr(KEYS)
    assert "s3cret" not in repr(KEYS)


async def test_pause_and_resume(tmp_path: Path) -> None:
    """Until a time in unix milliseconds, and back."""
    async with scene(tmp_path) as made:
        until = START_MS + 7_200_000
        paused, resumed = await post(made, f"action=pause&until={until}"), await post(made, "action=resume")

        assert paused.json() == {"name": "v1", "pausedUntil": until}
        assert resumed.json() == {"name": "v1", "resumed": True}
        assert made.scheduler.calls == [("pause_until", until), ("resume",)]


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
async def test_refresh_runs_a_task_and_returns_its_result(tmp_path: Path, query: str, task: str) -> None:
    """Each task, or all of them; the site's name for the sweep, and the site's default."""
    async with scene(tmp_path) as made:
        answer = await post(made, f"action=refresh{query}")

        assert made.scheduler.calls == [("refresh_now", task)]
        result = await made.scheduler.refresh_now(task)
        assert answer.json() == {"name": "v1", "task": task, "result": result}


@pytest.mark.parametrize(
    ("query", "code", "sentence"),
    [
        ("", "unknown_action", "action=pause&for=2h, action=pause&until=UNIX_MS, action=resume, action=refresh&task="),
        ("action=stop", "unknown_action", "action=resume"),
        ("action=pause", "bad_until", "until=1778700600000"),
        ("action=pause&until=tomorrow", "bad_until", "whole number"),
        ("action=pause&until=12abc", "bad_until", "whole number"),
        ("action=pause&until=-5", "bad_until", "whole number"),
        ("action=pause&until=1e12", "bad_until", "whole number"),
        ("action=pause&until=٣٣٣", "bad_until", "whole number"),
        ("action=pause&until=1", "bad_until", "That time is past"),
        ("action=refresh&task=../x", "bad_task", "tenero, sweep, all"),
        ("action=refresh&task=nothing", "bad_task", "tenero, sweep, all"),
    ],
)
async def test_a_wrong_action_is_refused_with_what_is_accepted(
    tmp_path: Path, query: str, code: str, sentence: str
) -> None:
    """Refusals of the object itself are passed on as well."""
    async with scene(tmp_path) as made:
        answer = await post(made, query)

        assert (answer.status, answer.json()["code"]) == (400, code)
        assert sentence in answer.json()["error"]


PAUSES = {"90s": 90_000, "15m": 900_000, "2h": 7_200_000, "1d": DAY, "250ms": 250, "7d": 7 * DAY}


@pytest.mark.parametrize(("duration", "ms"), PAUSES.items())
async def test_a_pause_for_a_duration_ends_by_the_clock_of_the_service(tmp_path: Path, duration: str, ms: int) -> None:
    """The service adds the duration to its own time; the answer is the object's."""
    async with scene(tmp_path) as made:
        await made.site.clock.sleep(86.4)
        until = START_MS + 86_400 + ms
        answer = await post(made, f"action=pause&for={duration}")

        assert made.scheduler.calls == [("pause_until", until)]
        assert (answer.status, answer.json()) == (200, {"name": "v1", "pausedUntil": until})


async def test_the_end_of_a_pause_is_what_the_object_returns(tmp_path: Path) -> None:
    """If the object shortens a pause, the actual pause is shown, not the requested one."""
    async with scene(tmp_path) as made:

        async def shorter(until: int) -> JSON:
            return Paused("v2", until - 1).to_json()

        made.scheduler.pause_until = shorter  # type: ignore[method-assign]
        answer = await post(made, "action=pause&for=2h")

        assert answer.json() == {"name": "v2", "pausedUntil": START_MS + 7_199_999}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("for=2h&until=1778700600000", "Give either for=2h or until=1778700600000."),
        ("", "Give either for=2h or until=1778700600000."),
        ("for=soon", "for=soon is not a duration: a number and ms, s, m, h or d, such as for=2h."),
        ("for=", "for= is not a duration: a number and ms, s, m, h or d, such as for=2h."),
        ("for=0h", "for=0h is not a duration: a number and ms, s, m, h or d, such as for=2h."),
        ("for=-2h", "for=-2h is not a duration: a number and ms, s, m, h or d, such as for=2h."),
        ("for=1.5h", "for=1.5h is not a duration: a number and ms, s, m, h or d, such as for=2h."),
        ("for=2H", "for=2H is not a duration: a number and ms, s, m, h or d, such as for=2h."),
        (f"for={'9' * 60}d", f"for={'9' * 40} is not a duration: a number and ms, s, m, h or d, such as"),
    ],
)
async def test_a_wrong_pause_is_refused_with_an_example(tmp_path: Path, query: str, sentence: str) -> None:
    """400; the object is not called."""
    async with scene(tmp_path) as made:
        answer = await post(made, f"action=pause&{query}")

        assert (answer.status, answer.json()["code"]) == (400, "bad_until")
        assert sentence in answer.json()["error"]
        assert made.scheduler.calls == []


@pytest.mark.parametrize(
    "error", [ObjectReset("the object was reset"), RemoteError("StoreUnavailable: /data/db.sqlite is locked")]
)
async def test_a_scheduler_that_does_not_answer_is_a_503(tmp_path: Path, error: Exception) -> None:
    """Retryable, logged, and without any detail of what is inside."""
    async with scene(tmp_path) as made:
        made.scheduler.failing = error
        answer = await ask(create_app(made.site), PATH, headers=KEY)

        assert (answer.status, answer.json()["code"]) == (503, "scheduler_unavailable")
        assert answer.json()["retryable"] is True
        assert answer.headers["retry-after"] == "5"
        assert b"sqlite" not in answer.body
        assert str(error) in made.log.named("request.failed")[0]["error"]


async def test_the_cron_route_describes_itself(tmp_path: Path) -> None:
    """Without a secret, and without doing anything."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), "/api/competition/cron")

        assert answer.status == 200
        assert "X-Cron-Secret" in answer.json()["does"]
        assert made.scheduler.calls == []


async def test_the_cron_route_runs_the_sweep(tmp_path: Path) -> None:
    """With the secret only; it returns the sweep's summary."""
    async with scene(tmp_path) as made:
        app, path = create_app(made.site), "/api/competition/cron"
        refused = await ask(app, path, method="POST", headers={"X-Cron-Secret": "guess"})
        done = await ask(app, path, method="POST", headers={"X-Cron-Secret": CRON_SECRET})

        assert refused.status == 401
        assert done.json()["scanned"] == 430
        assert made.scheduler.calls == [("refresh_now", "sweep")]


async def test_the_cron_route_has_a_retry_after(tmp_path: Path) -> None:
    """503 when the scheduler does not answer."""
    async with scene(tmp_path) as made:
        made.scheduler.failing = ObjectReset("gone")
        answer = await ask(
            create_app(made.site), "/api/competition/cron", method="POST", headers={"X-Cron-Secret": CRON_SECRET}
        )

        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize(
    "query", ["action=resume&until=1", "action=refresh&task=tenero&for=2h", "action=pause&for=2h&task=sweep"]
)
async def test_a_parameter_of_another_action_is_refused(query: str, tmp_path: Path) -> None:
    """The caller meant something else, so nothing is done."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), f"{PATH}?{query}", method="POST", headers=KEY)

    assert (answer.status, answer.json()["code"]) == (400, "bad_request")
    assert "takes no" in answer.json()["error"]
    assert made.scheduler.calls == []


async def test_old_counts_are_not_shown_when_the_database_stops_answering(tmp_path: Path) -> None:
    """Unknown is not what it was a while ago."""
    async with scene(tmp_path) as made:
        app = create_app(made.site)
        before = (await ask(app, PATH, headers=KEY)).json()["refusals"]
        await made.site.db.close()  # type: ignore[attr-defined]
        await asyncio.sleep(3)
        after = (await ask(app, PATH, headers=KEY)).json()["refusals"]

    assert (before, after) == ({}, None)


@pytest.mark.parametrize("action", ["recheck&txid=", "refresh&task="])
async def test_a_long_target_is_cut_in_the_audit_log(tmp_path: Path, action: str) -> None:
    """It is a caller's text, and may be anything."""
    async with scene(tmp_path) as made:
        await post(made, f"action={action}{'x' * 500}")

        [record] = made.scheduler.audited.values()
        assert record.target == "x" * 80


async def test_the_running_runs_can_be_listed(tmp_path: Path) -> None:
    """As an outcome, although they have none yet."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), f"{PATH}/runs?outcome=running", headers=KEY)

        assert answer.status == 200
        assert made.scheduler.calls == [("runs", None, 50, "running", None, None, None, None)]
