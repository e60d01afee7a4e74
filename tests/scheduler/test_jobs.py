"""Jobs without code: which are accepted, when they run, what is called, and what an answer means."""

import asyncio
import hmac
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import VirtualClock
from support.scheduler import MINUTE, Scheduler, scheduler
from support.scheduler import Job as CodedTask
from support.scripted_fetch import Handler, Request, ScriptedFetch, always, response
from tocsin.errors import FetchTimeout
from tocsin.fetch import FetchResponse
from tocsin.scheduler.jobs import (
    BY_NAME,
    JOBS_MAX,
    Job,
    JobChange,
    changed_jobs,
    check_job,
    job_task,
    judged,
    read_change,
)
from tocsin.scheduler.task import TaskResult
from tocsin.scheduler.types import AuditEntry

SECRETS = {"job": "a-long-random-text"}
PAYOUTS = Job("payouts", "https://site.example/jobs/payouts?region=eu", every="15m")
OK = response({"paid": 3})
EIGHT = int(datetime(2026, 3, 2, 8, 0, tzinfo=UTC).timestamp() * 1000)  # a Monday
BY = AuditEntry("alice", "operator", "127.0.0.1", "add", "payouts")


def at(hour: int, minute: int = 0, day: int = 2) -> int:
    return int(datetime(2026, 3, day, hour, minute, tzinfo=UTC).timestamp() * 1000)


def posts(handler: Handler) -> ScriptedFetch:
    fetch = ScriptedFetch(handler)
    fetch.method = "POST"
    return fetch


def with_jobs(path: Path, handler: Handler, *tasks: CodedTask, clock: VirtualClock | None = None) -> Any:
    return scheduler(path, *tasks, fetch=posts(handler), clock=clock or VirtualClock(EIGHT))


def change_of(action: Any, *jobs: Job) -> JobChange:
    if action in BY_NAME:
        return JobChange(action, names=[job.name for job in jobs])
    return JobChange(action, list(jobs))


async def add(made: Scheduler, *jobs: Job, action: Any = "add") -> list[str]:
    made.env.job_secrets = SECRETS
    return (await made.client().change_jobs(change_of(action, *jobs), BY)).changed


def sent(fetch: Any) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in fetch.requests]


# What is accepted


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"every": None}, "needs either every, such as 15m, or cron, such as 30 8 * * mon-fri"),
        ({"cron": "0 8 * * *"}, "needs either every"),
        ({"every": "soon"}, "every='soon' is not a duration"),
        ({"every": "9s"}, "every is from 10 seconds to 7 days; use cron for rarer times"),
        ({"every": "8d"}, "use cron for rarer times"),
        ({"every": None, "cron": "61 * * * *"}, "minute 61: use 0 to 59"),
        ({"every": None, "cron": "0 8 * * *", "zone": "Mars/Base"}, "there is no time zone 'Mars/Base'"),
        ({"url": "http://site.example/"}, "url begins with https://, because http is not encrypted"),
        ({"url": "http://10.0.0.1/"}, "url begins with https://"),
        ({"url": "http://127.0.0.1.example/"}, "url begins with https://"),
        ({"url": "http://site-localhost/"}, "url begins with https://"),
        ({"url": "https://site.example/" + "a" * 1_980}, "at most 2,000 characters"),
        ({"url": "https://bob:pass@site.example/"}, "url has no user"),
        ({"url": "ftp://site.example/"}, "url looks like https://site.example/jobs/payouts"),
        ({"url": "https://site.example/a b"}, "url looks like"),
        ({"limit": "15m"}, "limit is from 1 second to 14 minutes"),
        ({"limit": "500ms"}, "limit is from 1 second"),
        ({"overdue_after": "late"}, "overdue_after='late' is not a duration"),
        ({"upstream": "bns"}, "there is no upstream 'bns'; use hiro"),
        ({"calls_per_run": 5.0}, "calls_per_run is a number of calls to the upstream that it names"),
        ({"calls_per_run": -1.0, "upstream": "hiro"}, "calls_per_run is a number of calls"),
        ({"secret": "site"}, "there is no secret named 'site'; use job"),
        ({"title": "a\nb"}, "a title is one line of at most 60 characters"),
        ({"title": "a" * 61}, "a title is one line of at most 60 characters"),
    ],
)
def test_a_job_that_could_not_run_is_refused(changes: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_job(replace(PAYOUTS, **changes), {"hiro": None}, SECRETS)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://site.example/", "http://127.0.0.1:8000/x", "http://localhost/x", "http://[::1]:9/"]
)
def test_https_is_demanded_except_on_this_machine(url: str) -> None:
    check_job(replace(PAYOUTS, url=url, upstream="hiro", calls_per_run=2.5), {"hiro": None}, SECRETS)


@pytest.mark.parametrize(
    "changes",
    [
        {"every": "10s"},
        {"every": "7d"},
        {"limit": "1s"},
        {"limit": "14m"},
        {"title": "a" * 60},
        {"overdue_after": "1s"},
    ],
)
def test_a_job_at_a_bound_is_accepted_and_a_hundred_jobs_are(changes: Mapping[str, Any]) -> None:
    check_job(replace(PAYOUTS, **changes), {}, SECRETS)
    hundred = [replace(PAYOUTS, name=f"job{number}") for number in range(JOBS_MAX)]
    assert len(changed_jobs({}, JobChange("add", hundred))[0]) == 100


def test_without_any_secret_the_setting_is_named() -> None:
    with pytest.raises(UsageError, match="set TOCSIN_JOB_SECRETS"):
        check_job(PAYOUTS, {}, {})


@pytest.mark.parametrize(
    ("action", "names", "sentence"),
    [
        ("add", ["a"], "There is a job a already"),
        ("add", ["n", "n"], "Two jobs have the same name"),
        ("change", ["n"], "There is no job 'n'; the jobs are a, b"),
        ("remove", ["a", "n"], "There is no job 'n'"),
        ("pause", ["n"], "There is no job 'n'"),
        ("apply", [f"job{n}" for n in range(JOBS_MAX + 1)], "There can be at most 100 jobs"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(action: Any, names: list[str], sentence: str) -> None:
    jobs = {name: replace(PAYOUTS, name=name) for name in ("a", "b")}
    with pytest.raises(UsageError) as refused:
        changed_jobs(jobs, change_of(action, *(replace(PAYOUTS, name=name) for name in names)))
    assert sentence in str(refused.value)


def test_a_set_is_applied_and_described() -> None:
    """What is not in the set is removed; the difference has a line for each job, and no query, which may be secret."""
    jobs = {name: replace(PAYOUTS, name=name) for name in ("a", "b", "c")}
    given = [
        jobs["b"],
        replace(jobs["c"], every="1h", enabled=False, secret="site", url="https://site.example/c?key=b"),
        replace(PAYOUTS, name="d", every=None, cron="0 8 * * *"),
    ]

    after, lines = changed_jobs(jobs, JobChange("apply", given))

    assert list(after) == ["b", "c", "d"]
    assert lines == [
        "a: removed",
        (
            "c: enabled yes → no, every 15m → 1h, secret job → site,"
            " url https://site.example/jobs/payouts → https://site.example/c"
        ),
        "d: added, 0 8 * * * (UTC): https://site.example/jobs/payouts",
    ]


def adding(**job: Any) -> Any:
    return {"action": "add", "jobs": [job]}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([], "Give an object with action, one of add, change, remove, pause, resume, apply"),
        ({"action": "stop"}, "Give an object with action"),
        ({"action": "pause", "name": "payouts"}, 'such as {"action": "pause", "names": ["payouts"]}'),
        ({"action": "pause"}, "pause needs names."),
        ({"action": "pause", "names": [5]}, "names a list of texts"),
        ({"action": "add", "names": ["payouts"]}, "add needs jobs."),
        ({"action": "add", "jobs": []}, "add needs jobs."),
        ({"action": "add", "jobs": ["payouts"]}, "A job has no field 'payouts'"),
        ({"action": "apply", "jobs": [], "dryRun": 1}, "dryRun is true or false"),
        (adding(name="a", url="u", evry="5m"), "A job has no field 'evry'. The fields are: name, url, every, cron"),
        (adding(name="a"), "A job needs a url."),
        (adding(name="a", url="u", every=15), "every is a text, not 15."),
        (adding(name="a", url="u", enabled=1), "enabled is true or false, not 1."),
        (adding(name="a", url="u", callsPerRun=True), "callsPerRun is a number, not True."),
    ],
)
def test_a_wrong_body_is_refused_with_a_sentence(body: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_change(body)
    assert sentence in str(refused.value)


def test_a_body_is_read_with_the_defaults_of_a_job() -> None:
    body: Any = {"action": "apply", "jobs": [{"name": "a", "url": "https://a.example/", "every": "5m", "cron": None}]}
    assert read_change(body) == JobChange("apply", [Job("a", "https://a.example/", every="5m")])


# What an answer means


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b'{"a": 1}', TaskResult({"a": 1})),
        (202, b" ", TaskResult({})),
        (204, b"", TaskResult({})),
        (200, b"[1]", TaskResult({}, "the URL answered no JSON object: [1]", error_kind="Malformed")),
        (200, b"<p>hi\n</p>", TaskResult({}, "the URL answered no JSON object: <p>hi </p>", error_kind="Malformed")),
        (200, b'{"a": NaN}', TaskResult({}, 'the URL answered no JSON object: {"a": NaN}', error_kind="Malformed")),
        (302, b"", TaskResult({}, "the URL answered 302: redirects are not followed", error_kind="Redirected")),
        (500, b"oh", TaskResult({}, "the URL answered 500: oh", error_kind="Refused")),
        (404, b"", TaskResult({}, "the URL answered 404: an empty body", error_kind="Refused")),
        (
            500,
            b"\x1b" + "é".encode() * 300,
            TaskResult({}, f"the URL answered 500:  {'é' * 199}", error_kind="Refused"),
        ),
    ],
)
def test_what_an_answer_means(status: int, body: bytes, expected: TaskResult) -> None:
    """`Retry-After` means something in an error only."""
    headers = {"retry-after": "7"} if status < 400 else {}
    assert judged(FetchResponse(status, headers, body), EIGHT) == expected


@pytest.mark.parametrize("body", [b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", b'{"a": "\\ud800"}', b"[" * 60_000])
def test_what_cannot_be_stored_or_shown_is_a_failure(body: bytes) -> None:
    assert judged(FetchResponse(200, {}, body), EIGHT).error_kind == "Malformed"


@pytest.mark.parametrize(
    ("status", "headers", "wait_ms"),
    [
        (429, {}, 60_000),
        (429, {"retry-after": "0"}, 0),
        (429, {"retry-after": "7"}, 7_000),
        (400, {"retry-after": "120"}, 120_000),
        (503, {"retry-after": "120"}, 120_000),
    ],
)
def test_a_limited_answer_says_when_to_repeat(status: int, headers: Mapping[str, str], wait_ms: int) -> None:
    result = judged(FetchResponse(status, headers, b"busy"), EIGHT)
    assert (result.limited_until, result.progressed) == (EIGHT + wait_ms, False)
    assert result.incomplete == f"the URL answered {status}: busy"


# Runs


async def test_a_job_calls_its_url_on_the_grid_with_a_signature(tmp_path: Path) -> None:
    """At once, and then at each quarter; the receiver can verify who calls, and when."""
    async with with_jobs(tmp_path, always(OK)) as made:
        assert await add(made, PAYOUTS) == ["payouts: added, every 15m: https://site.example/jobs/payouts"]
        await asyncio.sleep(31 * 60)
        requests: list[Request] = made.env.fetch.requests
        status = await made.status()
        audit = (await made.client().audit(5)).records

    assert [request.url for request in requests] == [PAYOUTS.url] * 3
    assert sent(made.env.fetch)[:2] == [
        {"job": "payouts", "run": 1, "slot": EIGHT, "trigger": "alarm", "attempt": 1},
        {"job": "payouts", "run": 2, "slot": at(8, 15), "trigger": "alarm", "attempt": 1},
    ]
    message = requests[1]
    assert message.body is not None
    assert message.headers["webhook-id"] == f"payouts-{at(8, 15)}"
    assert message.headers["webhook-timestamp"] == str(at(8, 15) // 1000)
    version, _, signature = message.headers["webhook-signature"].partition(",")
    content = f"payouts-{at(8, 15)}.{at(8, 15) // 1000}.".encode() + message.body
    assert version == "v1"
    assert b64decode(signature) == hmac.new(b"a-long-random-text", content, sha256).digest()
    assert status.last_result["payouts"] is not None
    assert status.last_result["payouts"]["paid"] == 3
    assert status.tasks["payouts"].next_at == [at(8, 45), at(9), at(9, 15), at(9, 30), at(9, 45)]
    assert (status.tasks["payouts"].title, status.tasks["payouts"].condition) == ("Payouts", "ok")
    assert [(each.action, each.target, each.outcome) for each in audit] == [("add", "payouts", "done")]


async def test_a_cron_job_waits_for_its_time_and_catches_up_once(tmp_path: Path) -> None:
    """In its zone; after a pause of two days it runs once, and the times that passed are counted."""
    job = replace(PAYOUTS, every=None, cron="30 9 * * *", zone="Europe/Berlin")
    async with with_jobs(tmp_path, always(OK)) as made:
        await add(made, job)
        await asyncio.sleep(29 * 60)
        before = len(made.env.fetch.requests)
        await asyncio.sleep(2 * 60)
        first = sent(made.env.fetch)
        await made.client().pause_until(at(12, 0, day=4), "payouts")
        await asyncio.sleep(3 * 86_400)
        slots = [each["slot"] for each in sent(made.env.fetch)]
        task = (await made.status()).tasks["payouts"]

    assert (before, [each["slot"] for each in first]) == (0, [at(8, 30)])
    assert slots == [at(8, 30), at(8, 30, day=4), at(8, 30, day=5)]
    assert (task.missed_slots, task.cadence_ms) == (1, 86_400_000)
    assert task.next_due_at == at(8, 30, day=6)


async def test_a_run_cut_off_by_a_crash_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    """The receiver sees that it is the same work: one result, however often it is called."""
    clock = VirtualClock(EIGHT)

    async def slow_then_quick(request: Request) -> FetchResponse:
        await asyncio.sleep(20 if json.loads(request.body or b"")["attempt"] == 1 else 0)
        return OK

    async with with_jobs(tmp_path, slow_then_quick, clock=clock) as made:
        await add(made, PAYOUTS)
        await asyncio.sleep(5)
        made.reset()
        await made.client().status()
        await asyncio.sleep(60)
        requests, runs = made.env.fetch.requests, await made.runs("payouts")
        await asyncio.sleep(15 * 60)

    assert [request.headers["webhook-id"] for request in requests[:2]] == [f"payouts-{EIGHT}"] * 2
    assert [(each["attempt"], each["slot"]) for each in sent(made.env.fetch)] == [
        (1, EIGHT),
        (2, EIGHT),
        (1, at(8, 15)),
    ]
    assert [(run.outcome, run.trigger) for run in runs] == [("ok", "rerun"), ("interrupted", "alarm")]
    assert requests[2].headers["webhook-id"] == f"payouts-{at(8, 15)}"


@pytest.mark.parametrize(("by_hand", "again_s"), [(False, 120), (True, 10)])
async def test_a_limited_run_is_repeated_with_the_same_key(tmp_path: Path, by_hand: bool, again_s: int) -> None:
    """When the wait is over, or when an operator asks for a run before."""
    answers = iter([response({}, status=429, headers={"retry-after": "120"}), OK])
    async with with_jobs(tmp_path, lambda _: next(answers)) as made:
        await add(made, PAYOUTS)
        await asyncio.sleep(10)
        limited = (await made.status()).tasks["payouts"]
        if by_hand:
            await made.client().refresh("payouts")
        await asyncio.sleep(150)
        sent_ids = [
            (request.headers["webhook-id"], int(request.headers["webhook-timestamp"]) - EIGHT // 1000)
            for request in made.env.fetch.requests
        ]
        runs = await made.runs("payouts")

    assert limited.condition == "limited"
    assert sent_ids == [(f"payouts-{EIGHT}", 0), (f"payouts-{EIGHT}", again_s)]
    assert [each["attempt"] for each in sent(made.env.fetch)] == [1, 2]
    assert [run.outcome for run in runs] == ["ok", "limited"]
    assert runs[0].started_at == EIGHT + again_s * 1_000


async def test_a_run_of_the_next_slot_has_another_key_although_the_last_one_was_limited(tmp_path: Path) -> None:
    answers = iter([response({}, status=429, headers={"retry-after": "1200"}), OK])
    async with with_jobs(tmp_path, lambda _: next(answers)) as made:
        await add(made, PAYOUTS)
        await asyncio.sleep(25 * 60)
        keys = [request.headers["webhook-id"] for request in made.env.fetch.requests]

    assert [(each["slot"], each["attempt"]) for each in sent(made.env.fetch)] == [(EIGHT, 1), (at(8, 15), 1)]
    assert keys == [f"payouts-{EIGHT}", f"payouts-{EIGHT + 1_200_000}"]


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        (response("busy" * 20_000, status=429, headers={"retry-after": "7"}), "limited", "the URL answered 429: busy"),
        (response("<p>oh" * 20_000, status=500), "failed", "the URL answered 500: <p>oh"),
        (response("<p>oh" * 20_000, status=302), "failed", "the URL answered 302: redirects are not followed"),
        (response("x" * 70_000), "failed", "the body is larger than 65536 bytes"),
    ],
)
async def test_a_large_body_hides_no_status(tmp_path: Path, answer: FetchResponse, outcome: str, words: str) -> None:
    """A server's page of an error may be larger than a result may be."""
    async with with_jobs(tmp_path, always(answer)) as made:
        await add(made, PAYOUTS)
        await asyncio.sleep(1)
        (run,) = await made.runs("payouts")

    assert run.outcome == outcome
    assert (run.reason or (run.error and run.error.message) or "").startswith(words)


async def test_a_url_that_hangs_fails_within_its_limit_and_holds_up_nobody(tmp_path: Path) -> None:
    """The time limit is the client's; other tasks keep their slots."""

    async def hang(request: Request) -> FetchResponse:
        await asyncio.sleep(request.timeout_s)
        raise FetchTimeout("no complete response within 10 s")

    other = CodedTask("tenero", 5 * MINUTE)
    async with with_jobs(tmp_path, hang, other) as made:
        await add(made, replace(PAYOUTS, limit="10s"))
        await asyncio.sleep(11 * 60)
        runs, task = await made.runs("payouts"), (await made.status()).tasks["payouts"]

    assert [(run.outcome, run.duration_ms) for run in runs] == [("failed", 10_000)]
    assert task.last_error is not None
    assert (task.last_error.kind, task.last_error.message) == ("FetchTimeout", "no complete response within 10 s")
    assert other.started == [EIGHT, EIGHT + 5 * MINUTE, EIGHT + 10 * MINUTE]


async def test_a_refresh_returns_the_result_of_the_url(tmp_path: Path) -> None:
    async with with_jobs(tmp_path, always(OK)) as made:
        await add(made, PAYOUTS)
        await asyncio.sleep(1)
        result = await made.client().refresh("payouts")
        await asyncio.sleep(1)
        await made.client().refresh("payouts")
        keys = {request.headers["webhook-id"] for request in made.env.fetch.requests}

    assert (result.summary["paid"], result.run.outcome, len(keys)) == (3, "ok", 3)
    assert sent(made.env.fetch)[1] | {"run": 0} == {
        "job": "payouts", "run": 0, "slot": None, "trigger": "refresh", "attempt": 1,
    }  # fmt: skip


async def test_jobs_survive_a_reset_and_follow_changes(tmp_path: Path) -> None:
    """Changed, paused, resumed and removed; what was removed leaves nothing behind."""
    async with with_jobs(tmp_path, always(OK)) as made:
        await add(made, PAYOUTS)
        await asyncio.sleep(1)
        made.reset()
        assert [each.job for each in (await made.client().jobs()).jobs] == [PAYOUTS]
        await add(made, replace(PAYOUTS, every="1h"), action="change")
        await asyncio.sleep(30 * 60)
        hourly = len(made.env.fetch.requests)
        paused = await add(made, PAYOUTS, action="pause")
        await asyncio.sleep(3 * 3_600)
        while_paused, shown = len(made.env.fetch.requests), (await made.status()).tasks["payouts"]
        await add(made, PAYOUTS, action="resume")
        await asyncio.sleep(1)
        after = len(made.env.fetch.requests)
        assert await add(made, PAYOUTS, action="remove") == ["payouts: removed"]
        await asyncio.sleep(3 * 3_600)
        entries, status = made.entries(), await made.status()

    assert (hourly, paused) == (1, ["payouts: enabled yes → no"])
    assert (while_paused, after, len(made.env.fetch.requests)) == (1, 2, 2)
    assert (shown.condition, shown.next_due_at, shown.overdue) == ("disabled", None, False)
    assert "payouts" not in status.tasks
    assert not [key for key in entries if key in {"job:payouts", "task:payouts"}]


async def test_a_job_removed_during_its_run_ends_in_peace(tmp_path: Path) -> None:
    async def slow(_request: Request) -> FetchResponse:
        await asyncio.sleep(20)
        return OK

    async with with_jobs(tmp_path, slow) as made:
        await add(made, PAYOUTS)
        await asyncio.sleep(1)
        await add(made, PAYOUTS, action="remove")
        await asyncio.sleep(60)
        entries, runs = made.entries(), await made.runs()

    assert [(run.task, run.outcome) for run in runs] == [("payouts", "ok")]
    assert not [key for key in entries if key.endswith(":payouts")]


async def test_a_refused_change_changes_nothing(tmp_path: Path) -> None:
    """Of several jobs none is added; the audit log has the reason; a name of Tocsin's own task is taken."""
    async with with_jobs(tmp_path, always(OK), CodedTask("tenero", 5 * MINUTE)) as made:
        for wrong in (replace(PAYOUTS, name="tenero"), replace(PAYOUTS, name="Bad Name"), replace(PAYOUTS, name="all")):
            with pytest.raises(UsageError):
                await add(made, PAYOUTS, wrong)
        jobs, records = (await made.client().jobs()).jobs, (await made.client().audit(5)).records
        await add(made, PAYOUTS)
        with pytest.raises(UsageError):
            await add(made, replace(PAYOUTS, url="http://site.example/"), action="change")
        kept = (await made.client().jobs()).jobs

    assert jobs == []
    assert [view.job for view in kept] == [PAYOUTS]
    assert [(record.outcome, record.detail) for record in records][-1] == (
        "refused", "tenero is a task of Tocsin itself: give the job another name.",
    )  # fmt: skip


async def test_a_stored_job_that_this_release_cannot_run_is_reported_and_kept(tmp_path: Path) -> None:
    """Its upstream or zone may be gone, or its name taken; everything else goes on."""
    stored = {
        "job:payouts": {**PAYOUTS.to_json(), "every": None, "cron": "0 8 * * *", "zone": "Mars/Base"},
        "job:tenero": replace(PAYOUTS, name="tenero").to_json(),
        "job:good": replace(PAYOUTS, name="good", upstream="gone").to_json(),
        "job:broken": {"name": 5},
    }
    other = CodedTask("tenero", 5 * MINUTE)
    async with scheduler(tmp_path, other, fetch=posts(always(OK)), clock=VirtualClock(EIGHT), stored=stored) as made:
        made.env.job_secrets = SECRETS
        await asyncio.sleep(5)
        status, jobs = await made.status(), (await made.client().jobs()).jobs

    assert list(status.tasks) == ["tenero", "good"]
    assert {each.job.name: bool(each.next_at) for each in jobs} == {"good": True, "payouts": False, "tenero": True}
    assert len(other.started) == 1
    assert [line.fields["job"] for line in made.log.lines if line.event == "job.unusable"][:2] == ["payouts", "tenero"]


async def test_a_secret_that_is_gone_is_a_failure_that_names_it(tmp_path: Path) -> None:
    """And the job can be paused; it cannot be resumed without its secret."""
    async with with_jobs(tmp_path, always(OK)) as made:
        await add(made, PAYOUTS)
        made.env.job_secrets = {}
        await made.stub().reload()
        result = await made.client().refresh("payouts")
        paused = await made.client().change_jobs(change_of("pause", PAYOUTS))
        with pytest.raises(UsageError, match="there is no secret named 'job'"):
            await made.client().change_jobs(change_of("resume", PAYOUTS))

    assert result.run.error is not None
    assert result.run.error.message == "there is no secret named 'job' in TOCSIN_JOB_SECRETS"
    assert paused.changed == ["payouts: enabled yes → no"]


def test_a_task_of_a_cron_job_knows_how_far_its_runs_are_apart() -> None:
    """On average, for the budget: 132 runs a day, eleven minutes apart, with as many calls as the job says."""
    job = replace(PAYOUTS, every=None, cron="*/5 8-18 * * *", upstream="hiro", calls_per_run=2.5, title="Pay out")
    task = job_task(job, posts(always(OK)), SECRETS)
    assert (task.cadence_ms, task.upstream, task.calls_per_run) == (86_400_000 // 132, "hiro", 2.5)
    assert (task.title, task.why) == ("Pay out", "a job: */5 8-18 * * * (UTC): https://site.example/jobs/payouts")


@pytest.mark.parametrize("loaded_at", [at(9, 2), at(18, 32)])
async def test_a_cron_job_is_overdue_by_its_times_whenever_it_was_loaded(tmp_path: Path, loaded_at: int) -> None:
    """After two of its times without a complete run, at night and in the day; `overdue_after` may be longer."""
    answers = [OK]
    job = replace(PAYOUTS, every=None, cron="*/5 8-18 * * *")
    async with with_jobs(tmp_path, lambda _: answers[0], clock=VirtualClock(at(7))) as made:
        await add(made, job, replace(job, name="patient", overdue_after="1h"))
        await asyncio.sleep((loaded_at - at(7)) / 1000)
        await made.stub().reload()
        await asyncio.sleep((at(9, 57, day=3) - loaded_at) / 1000)
        calm = {name: task.overdue for name, task in (await made.status()).tasks.items()}
        answers[0] = response({}, status=500)
        await asyncio.sleep(9 * 60)
        late = {name: task.overdue for name, task in (await made.status()).tasks.items()}
        night = (await made.runs("payouts", 1))[0].started_at

    assert calm == {"patient": False, "payouts": False}
    assert (late, night) == ({"patient": False, "payouts": True}, at(10, 5, day=3))


async def test_a_new_or_resumed_job_is_overdue_only_after_its_own_times(tmp_path: Path) -> None:
    """On workdays at 8:30: not before its first time, not over a weekend, but after two times without a success."""
    answers: list[FetchResponse] = []
    job = replace(PAYOUTS, every=None, cron="30 8 * * mon-fri")
    async with with_jobs(tmp_path, lambda _: answers[0], clock=VirtualClock(at(9, 0, day=5))) as made:  # a Thursday
        await asyncio.sleep(5 * 86_400)
        answers.append(OK)
        await add(made, job)
        conditions = []
        for _ in range(7):
            await asyncio.sleep(86_400)
            conditions.append((await made.status()).tasks["payouts"].condition)
        await add(made, job, action="pause")
        await asyncio.sleep(9 * 86_400)
        await add(made, job, action="resume")
        await asyncio.sleep(60)
        resumed = (await made.status()).tasks["payouts"].condition
        answers[0] = response({}, status=404)
        await asyncio.sleep(3 * 86_400)
        on_sunday = (await made.status()).tasks["payouts"].overdue
        await asyncio.sleep(3 * 86_400)
        await add(made, replace(job, title="Pay out"), action="change")
        failing = (await made.status()).tasks["payouts"]

    assert set(conditions) <= {"starting", "ok"}
    assert (resumed, on_sunday) == ("starting", False)
    assert (failing.overdue, failing.problem is not None) == (True, True)
