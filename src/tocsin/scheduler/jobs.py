"""Jobs: periodic tasks without code. A run of a job is one signed POST to a URL of the operator's.

    {"job": "payouts", "run": 17, "slot": 1778706900000, "trigger": "alarm", "attempt": 1}

The call is signed as the Standard Webhooks specification describes: `webhook-id`, `webhook-timestamp` (unix seconds),
and `webhook-signature`, which is `v1,` and the Base64 of HMAC-SHA256 over `id.timestamp.body`. The id is the
idempotency key: it stays the same when a run is repeated after a crash or a limit. The key of the HMAC is a setting; a
job only names it.

A JSON object with a status of 2xx is the result. 429, or any other status with Retry-After, makes the run limited: it
is repeated when that has passed. Everything else is a failure. Redirects are not followed.
"""

import hmac
import json
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from holdfast.errors import UsageError, ValueRefused
from holdfast.schedule import Cron, Every
from holdfast.types import JSON
from holdfast.values import encode
from tocsin import __version__
from tocsin.errors import FetchError, FetchTooLarge
from tocsin.fetch import Fetch, FetchResponse, check_request, without_secrets
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import CADENCE_MAX_MS, SLICE_MAX_MS
from tocsin.shape import FreeForm, Shape
from tocsin.text import camel_case, long_duration, parse_duration
from tocsin.upstream.answer import Limited
from tocsin.upstream.client import read_retry_after

JOBS_MAX = 100
CADENCE_MIN_MS = 10_000
RESULT_BYTES_MAX = 64 * 1024
SHOWN_MAX = 200  # characters of an answer that is a failure
LIMITED_MS = 60_000  # how long to wait after a 429 without Retry-After
NEXT_SHOWN = 5

JobAction: TypeAlias = Literal["add", "change", "remove", "pause", "resume", "apply"]
BY_NAME: tuple[JobAction, ...] = ("remove", "pause", "resume")  # these need only names


@dataclass(frozen=True, slots=True)
class Job(Shape):
    """A job: which `url` is called, and when.

    `name` is a lower-case word, `title` what the console calls it. It has either `every`, a duration such as `15m`, or
    `cron`, an expression of five fields in the time zone `zone`. `limit` is how long a call may take. `upstream` is the
    one whose budget the called program spends, with `calls_per_run` calls. The service is not ready without a complete
    run for `overdue_after`, or for two cadences if that is longer. `secret` is the name of the key that signs the
    calls. A job that is not `enabled` is paused.
    """

    name: str
    url: str
    every: str | None = None
    cron: str | None = None
    zone: str = "UTC"
    limit: str = "30s"
    upstream: str | None = None
    calls_per_run: float = 0.0
    overdue_after: str | None = None
    secret: str = "job"  # noqa: S105 - the name of one
    title: str = ""
    enabled: bool = True


JOB_FIELDS = {each.name for each in fields(Job)}


@dataclass(frozen=True, slots=True)
class JobChange(Shape):
    """An operator's change of jobs.

    `jobs` are those to add or to change, or the whole set to apply; `names` those to remove, pause or resume. `reason`
    is for the audit log. With `dry_run`, the answer says what would change, and nothing does.
    """

    action: JobAction
    jobs: list[Job] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    reason: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class JobView(Shape):
    """A `job`, and `next_at`: the next times of its schedule."""

    job: Job
    next_at: list[int]


@dataclass(frozen=True, slots=True)
class JobList(Shape):
    """All `jobs` by name. `name` is the scheduler instance. `changed` has a line for each job that changed."""

    name: str | None
    jobs: list[JobView]
    changed: list[str]


def read_change(body: JSON) -> JobChange:
    """An operator's change. Refuses a wrong field by its name."""
    known = {camel_case(each.name) for each in fields(JobChange)}
    if not isinstance(body, dict) or body.get("action") not in get_args(JobAction) or not body.keys() <= known:
        raise UsageError(
            f"Give an object with action, one of {', '.join(get_args(JobAction))}, and any of jobs, names, reason,"
            ' dryRun, such as {"action": "pause", "names": ["payouts"]}.'
        )
    jobs, names, reason = body.get("jobs", []), body.get("names", []), body.get("reason")
    if not isinstance(jobs, list) or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError("jobs is a list of jobs, names a list of texts.")
    if not isinstance(reason, str | None) or type(body.get("dryRun", False)) is not bool:
        raise UsageError("reason is a text, dryRun is true or false.")
    by_name = body["action"] in BY_NAME
    if (by_name and (jobs or not names)) or (not by_name and (names or (not jobs and body["action"] != "apply"))):
        raise UsageError(f"{body['action']} needs {'names' if by_name else 'jobs'}.")
    return JobChange.from_json({**body, "jobs": [_checked_fields(job) for job in jobs]})


def _checked_fields(job: JSON) -> FreeForm:
    """The JSON of a job, if its fields have the right names and types."""
    known = [camel_case(each.name) for each in fields(Job)]
    if not isinstance(job, dict) or not job.keys() <= set(known):
        named = min(job.keys() - set(known)) if isinstance(job, dict) else job
        raise UsageError(f"A job has no field {named!r:.40}. The fields are: {', '.join(known)}.")
    for name, value in job.items():
        kinds = {"enabled": (bool, "true or false"), "callsPerRun": (int | float, "a number")}
        kind, words = kinds.get(name, (str | None, "a text"))
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise UsageError(f"{name} is {words}, not {value!r:.40}.")
    for name in ("name", "url"):
        if not job.get(name):
            raise UsageError(f"A job needs a {name}.")
    return {name: value for name, value in job.items() if value is not None}


def schedule_of(job: Job) -> Every | Cron:
    """When a job runs. Raises UsageError if it does not say so, or if it would run too often or too seldom."""
    if (job.every is None) == (job.cron is None):
        raise UsageError(f"The job {job.name} needs either every, such as 15m, or cron, such as 30 8 * * mon-fri.")
    if job.cron is not None:
        try:
            return Cron(job.cron, job.zone)
        except UsageError as error:
            raise UsageError(f"The job {job.name}: {error}.") from None
    period_ms = _duration(job, "every")
    if not CADENCE_MIN_MS <= period_ms <= CADENCE_MAX_MS:
        longest, shortest = long_duration(CADENCE_MAX_MS), long_duration(CADENCE_MIN_MS)
        raise UsageError(f"The job {job.name}: every is from {shortest} to {longest}; use cron for rarer times.")
    return Every(period_ms)


def check_job(job: Job, upstreams: Mapping[str, object], secrets: Mapping[str, str]) -> None:
    """Refuse a job that could not run, with what to change."""
    schedule_of(job)
    _check_url(job)
    if not 1_000 <= _duration(job, "limit") <= SLICE_MAX_MS:
        raise UsageError(f"The job {job.name}: limit is from 1 second to {long_duration(SLICE_MAX_MS)}.")
    if job.overdue_after is not None:
        _duration(job, "overdue_after")
    if job.upstream is not None and job.upstream not in upstreams:
        raise UsageError(f"The job {job.name}: there is no upstream {job.upstream!r:.40}; use {', '.join(upstreams)}.")
    if not 0 <= job.calls_per_run <= 1_000_000 or (job.calls_per_run and job.upstream is None):
        raise UsageError(f"The job {job.name}: calls_per_run is a number of calls to the upstream that it names.")
    if job.secret not in secrets:
        known = f"use {', '.join(secrets)}" if secrets else "set TOCSIN_JOB_SECRETS"
        raise UsageError(f"The job {job.name}: there is no secret named {job.secret!r:.40}; {known}.")
    if len(job.title) > 60 or not job.title.isprintable():
        raise UsageError(f"The job {job.name}: a title is one line of at most 60 characters.")


def _check_url(job: Job) -> None:
    try:
        check_request(job.url, "POST", {})
        parts = urlsplit(job.url)
    except UsageError:
        raise UsageError(f"The job {job.name}: url looks like https://site.example/jobs/payouts.") from None
    if "@" in parts.netloc or len(job.url) > 2_000:
        raise UsageError(f"The job {job.name}: url has no user, and at most 2,000 characters.")
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise UsageError(f"The job {job.name}: url begins with https://, because http is not encrypted.")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _duration(job: Job, field: str) -> int:
    text = getattr(job, field)
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"The job {job.name}: {field}={text!r:.40} {error}, such as 15m.") from None


def changed_jobs(jobs: Mapping[str, Job], change: JobChange) -> tuple[dict[str, Job], list[str]]:
    """Return the jobs after a change, and what it did."""
    action = change.action
    names = [*change.names, *(job.name for job in change.jobs)]
    if len(set(names)) < len(names):
        raise UsageError("Two jobs have the same name.")
    missing = sorted(set(names) - set(jobs))
    if action == "add" and len(missing) < len(names):
        raise UsageError(f"There is a job {(set(names) & set(jobs)).pop()} already: change it, or use another name.")
    if action not in {"add", "apply"} and missing:
        known = f"the jobs are {', '.join(jobs)}" if jobs else "none was added yet"
        raise UsageError(f"There is no job {missing[0]!r:.40}; {known}.")
    after = {} if action == "apply" else dict(jobs)
    after |= {job.name: job for job in change.jobs}
    for name in change.names:
        if action == "remove":
            del after[name]
        else:
            after[name] = replace(jobs[name], enabled=action == "resume")
    if len(after) > JOBS_MAX:
        raise UsageError(f"There can be at most {JOBS_MAX} jobs.")
    return dict(sorted(after.items())), differences(jobs, after)


def differences(before: Mapping[str, Job], after: Mapping[str, Job]) -> list[str]:
    """What distinguishes two sets of jobs, a line for each."""
    lines = [f"{name}: removed" for name in sorted(before.keys() - after.keys())]
    for name, job in sorted(after.items()):
        old = before.get(name)
        if old is None:
            lines.append(f"{name}: added, {words_of(job)}")
            continue
        pairs = [(field, getattr(old, field), getattr(job, field)) for field in sorted(JOB_FIELDS)]
        changes = [f"{field} {_word(field, was)} → {_word(field, now)}" for field, was, now in pairs if was != now]
        if changes:
            lines.append(f"{name}: {', '.join(changes)}")
    return lines


def words_of(job: Job) -> str:
    """When it runs and what it calls, in a few words."""
    when = f"every {job.every}" if job.every is not None else f"{job.cron} ({job.zone})"
    return f"{when}: {without_secrets(job.url)}"


def _word(field: str, value: object) -> str:
    if field == "url":
        return without_secrets(str(value))
    return {None: "none", True: "yes", False: "no", "": "none"}.get(value, str(value))  # type: ignore[call-overload, no-any-return]  # a mixed table


def view_of(job: Job, now: int) -> JobView:
    """A job with its next times. A stored job that this release cannot run has none."""
    times: list[int] = []
    with suppress(UsageError):
        schedule = schedule_of(job)
        for _ in range(NEXT_SHOWN):
            times.append(schedule.after(times[-1] if times else now))
    return JobView(job, times)


def job_task(job: Job, fetch: Fetch, secrets: Mapping[str, str]) -> Task:
    """The task that runs a job."""
    schedule, limit_ms = schedule_of(job), _duration(job, "limit")

    async def run(context: TaskContext) -> TaskResult:
        return await call(job, context, fetch, secrets.get(job.secret), limit_ms / 1000)

    return Task(
        job.name,
        schedule.period_ms if isinstance(schedule, Every) else schedule.mean_ms(),
        # The call ends before the slice does, so that its failure says what happened.
        min(SLICE_MAX_MS, limit_ms + 5_000),
        run,
        upstream=job.upstream,
        calls_per_run=job.calls_per_run,
        overdue_after_ms=0 if job.overdue_after is None else _duration(job, "overdue_after"),
        enabled=job.enabled,
        why=f"a job: {words_of(job)}",
        title=job.title,
        cron=schedule if isinstance(schedule, Cron) else None,
    )


async def call(job: Job, context: TaskContext, fetch: Fetch, secret: str | None, limit_s: float) -> TaskResult:
    """Call the URL once, and return what the answer means."""
    if secret is None:
        return TaskResult({}, f"there is no secret named {job.secret!r} in TOCSIN_JOB_SECRETS", error_kind="NoSecret")
    this = context.attempt
    body = json.dumps(
        {"job": job.name, "run": this.run, "slot": this.slot_at, "trigger": this.trigger, "attempt": this.number}
    ).encode()
    headers = {
        "content-type": "application/json",
        "user-agent": f"tocsin/{__version__}",
        **signed(f"{job.name}-{this.first_at}", context.clock.now() // 1000, body, secret),
    }
    try:
        response = await fetch(
            job.url, method="POST", headers=headers, body=body, timeout_s=limit_s, body_max=RESULT_BYTES_MAX
        )
    except FetchError as error:
        if not isinstance(error, FetchTooLarge) or error.status < 300:
            return TaskResult({}, f"{error}", error_kind=type(error).__name__)
        response = FetchResponse(error.status, error.headers, error.start)  # of an error, the start is enough
    return judged(response, context.clock.now())


def signed(message_id: str, at_s: int, body: bytes, secret: str) -> dict[str, str]:
    """The headers of a signed call."""
    signature = hmac.new(secret.encode(), f"{message_id}.{at_s}.".encode() + body, sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }


def judged(response: FetchResponse, now: int) -> TaskResult:
    """What an answer means for the run. Pure."""
    status, wait_ms = response.status, read_retry_after(response.headers, now)
    if status == 429 or (status >= 400 and wait_ms is not None):
        until = now + (LIMITED_MS if wait_ms is None else wait_ms)
        return TaskResult.of(Limited(until, f"the URL answered {status}: {_start(response)}"), {})
    if 300 <= status < 400:
        return TaskResult({}, f"the URL answered {status}: redirects are not followed", error_kind="Redirected")
    if not 200 <= status < 300:
        return TaskResult({}, f"the URL answered {status}: {_start(response)}", error_kind="Refused")
    try:
        result: Any = json.loads(response.body) if response.body.strip() else {}
        encode(result, "the result")  # it can be stored
        json.dumps(result, ensure_ascii=False).encode()  # and shown
    except (ValueError, RecursionError, ValueRefused):
        result = None
    if not isinstance(result, dict):
        return TaskResult({}, f"the URL answered no JSON object: {_start(response)}", error_kind="Malformed")
    return TaskResult(result)


def _start(response: FetchResponse) -> str:
    text = response.body[: SHOWN_MAX * 4].decode(errors="replace")
    shown = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))[:SHOWN_MAX]
    return shown or "an empty body"
