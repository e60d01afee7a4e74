"""The routes of jobs: operators add them and change them; the scheduler's object stores and runs them."""

from starlette.requests import Request

from holdfast.errors import UsageError
from tocsin.errors import RequestRefused
from tocsin.scheduler.jobs import Job, JobChange, JobList, JobView, read_change
from tocsin.scheduler.types import AuditEntry
from tocsin.web.admin import TARGET_MAX, checked_reason
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.route import get, json_body, key_of, post

_PATH = "/api/admin/jobs"
_EXAMPLE = Job("payouts", "https://site.example/jobs/payouts", every="15m", secret="site")  # noqa: S106 - a name


class JobRoutes:
    """A viewer's key may only read, an operator's may act."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    @get(
        _PATH, "listJobs", "the jobs", example=JobList("v1", [JobView(_EXAMPLE, [1778707800000])], []), access="viewer"
    )
    async def show(self, _request: Request) -> JobList:
        """All jobs, each with the next five times of its schedule. Their runs are among those of the scheduler."""
        return await self._deps.scheduler().jobs()

    @post(
        _PATH,
        "changeJobs",
        "all jobs, and what changed",
        example=JobList("v1", [JobView(_EXAMPLE, [1778707800000])], ["payouts: every 5m → 15m"]),
        errors={400: "bad_job: the sentence says which field is wrong; nothing has changed"},
        access="operator",
        body=JobChange,
        body_example={"action": "add", "jobs": [_EXAMPLE.to_json()]},
    )
    async def change(self, request: Request) -> JobList:
        """Add, change, remove, pause or resume jobs, or apply a whole set: all of it or nothing.

        The audit log has each change. A call is signed as the Standard Webhooks specification describes.
        """
        key = key_of(request)
        try:
            wanted = read_change(await json_body(request))
            target = ", ".join([*wanted.names, *(job.name for job in wanted.jobs)])[:TARGET_MAX]
            client, reason = networks_of(request.scope)[0], checked_reason(wanted.reason or "")
            by = AuditEntry(key.name, "operator", client, f"job {wanted.action}", target, reason)
            return await self._deps.scheduler().change_jobs(wanted, by)
        except UsageError as error:
            raise RequestRefused(400, "bad_job", str(error)) from error
