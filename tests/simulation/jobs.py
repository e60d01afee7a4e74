"""Jobs in a history: a site whose URLs hang, limit, fail and lie, operators who change jobs, and what must hold.

Every call is signed. Calls of one job never overlap while their process lives. A key belongs to one slot, and its
attempts are numbered upwards. A removed or paused job is not called. What an operator's change acknowledged is there
after any crash. At the end of the calm, every job runs on its schedule and its last run is ok.
"""

import json
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.types import JSON
from tocsin.errors import FetchFailed, FetchTimeout
from tocsin.fetch import FetchResponse
from tocsin.scheduler.jobs import Job, JobList, signed
from tocsin.scheduler.types import Status
from tocsin.settings import AccessKey

if TYPE_CHECKING:
    from simulation.history import History
    from simulation.process import SimulatedProcess

SiteMode: TypeAlias = Literal["answers", "fails", "limits", "hangs", "lies", "cuts", "redirects"]
MODES: tuple[SiteMode, ...] = ("answers", "answers", "fails", "limits", "hangs", "lies", "cuts", "redirects")
SITE_URL = "https://site.test/jobs"
SECRET = AccessKey("site", "job", "the-secret-of-the-site")
PATH = "/api/admin/jobs"
NAMES = ("job_a", "job_b", "job_c")
SCHEDULES: tuple[dict[str, Any], ...] = (
    {"every": "1h"},
    {"every": "3h"},
    {"cron": "30 2,14 * * *", "zone": "Europe/Berlin"},
    {"cron": "*/45 */3 * * mon-fri", "zone": "America/New_York"},
)
LIES = (b"", b"[]", b'{"a": NaN}', b'{"a": ' + b"[" * 250 + b"]" * 250 + b"}", b'{"a": "\\ud800"}', b"\xff", b"7")
RUNS_WITHIN_S = 20 * 3_600  # at the end of the calm, every job has run in this time, if its day is a workday


class JobSite:
    """The site, and the checks of what it is called with."""

    def __init__(self, history: "History") -> None:
        self.mode: SiteMode = "answers"
        self._history = history
        self._under_way: dict[str, int] = {}  # the process that calls each job now
        self._keys: dict[str, tuple[int | None, int]] = {}  # the slot and the last attempt of each key
        self.known: dict[str, Job] | None = {}  # as acknowledged; None while nobody knows
        self._asking = 0
        self.state_lost = False

    async def receive(
        self, url: str, *, headers: Mapping[str, str], body: bytes, timeout_s: float, **_options: Any
    ) -> FetchResponse:
        name, rng = url.rpartition("/")[2], self._history.rng
        number = self._history.happened["process"]
        self._check(name, headers, body, number)
        self._under_way[name] = number
        try:
            mode: SiteMode = self.mode if rng.random() < 0.8 else "answers"
            if mode == "hangs":
                await self._history.time.sleep(timeout_s)
                raise FetchTimeout("no complete reply in time")
            await self._history.time.sleep(rng.choice((0.05, 0.5, timeout_s * 0.9)))
            if mode == "cuts":
                raise FetchFailed("the connection was cut")
            return _answer(mode, rng)
        finally:
            self._under_way.pop(name, None)

    def _check(self, name: str, headers: Mapping[str, str], body: bytes, number: int) -> None:
        history, told = self._history, json.loads(body)
        key, at = headers["webhook-id"], int(headers["webhook-timestamp"])
        if signed(key, at, body, SECRET.secret)["webhook-signature"] != headers["webhook-signature"]:
            history.broken("jobs", f"{name} is called with a wrong signature")
        was_reset = history.checks.excuses.cover(history.time.now_s - 130, history.time.now_s)
        if self._under_way.get(name) == number and was_reset is None:
            history.broken("jobs", f"{name} is called while it is called")
        if self.known is not None and not history.disk.is_slow and told["trigger"] != "refresh":
            job = self.known.get(name)
            if job is None or not job.enabled:
                history.broken("jobs", f"{name} is called, and it is {'paused' if job else 'removed'}")
        slot, attempt = self._keys.get(key, (told["slot"], 0))
        if told["slot"] not in {slot, None} and slot is not None and not self.state_lost:
            history.broken("jobs", f"{key} is the key of the slots {slot} and {told['slot']}")
        if told["attempt"] <= attempt and not self.state_lost:
            history.broken("jobs", f"{key}: attempt {told['attempt']} after {attempt}")
        self._keys[key] = told["slot"] if slot is None else slot, told["attempt"]

    async def change(self, process: "SimulatedProcess", values: Mapping[str, Any]) -> None:
        """Let an operator change jobs. Without an answer, nobody knows which jobs there are until the next look."""
        job = Job(values["name"], f"{SITE_URL}/{values['name']}", secret=SECRET.name, limit="1m", **values["schedule"])
        action = values["action"]
        body: dict[str, JSON] = {"action": action}
        body |= {"names": [job.name]} if action in {"pause", "resume", "remove"} else {"jobs": [job.to_json()]}
        self.known, self._asking = None, self._asking + 1
        try:
            answer = await self._history.actions._post(
                process, PATH, {"x-admin-key": self._history.settings.admin_key[0].secret}, json.dumps(body).encode()
            )
            self._history.note("jobs", action=action, status=answer.status)
            if answer.status == 200:
                self.known = {view.job.name: view.job for view in JobList.from_json(answer.json()).jobs}
        finally:
            self._asking -= 1
            if self._asking:
                self.known = None

    def clock_was_set(self) -> None:
        """The slots of a while ago may come again, with their keys."""
        self._keys.clear()

    def forget(self) -> None:
        """A stored job may be lost."""
        self.known, self.state_lost = None, True

    async def look(self, process: "SimulatedProcess") -> None:
        """After a start: what was acknowledged is there."""
        found = {view.job.name: view.job for view in (await process.scheduler().jobs()).jobs}
        if self.known is not None and not self._asking and found != self.known and not self.state_lost:
            self._history.broken("acknowledged", f"the jobs are {found}, acknowledged {self.known}")
        if not self._asking:
            self.known, self.state_lost = found, False

    async def calm(self, process: "SimulatedProcess") -> None:
        self.mode = "answers"
        for name in NAMES:
            await self.change(process, {"name": name, "action": "resume", "schedule": {}})

    def ending(self, status: Status, now_ms: int) -> None:
        for name, job in (self.known or {}).items():
            task = status.tasks[name]
            if not job.enabled or (job.cron is not None and "mon-fri" in job.cron):
                continue
            if task.condition != "ok" or task.last_success_at is None:
                self._history.broken("jobs", f"after the calm, {name} is {task.condition}: {task.sentence}")
            elif now_ms - task.last_success_at > RUNS_WITHIN_S * 1000:
                self._history.broken("jobs", f"after the calm, {name} was last ok at {task.last_success_at}")


def _answer(mode: SiteMode, rng: Random) -> FetchResponse:
    match mode:
        case "fails":
            return FetchResponse(rng.choice((500, 404, 401)), {}, b"oh")
        case "limits":
            return FetchResponse(429, {"retry-after": str(rng.choice((1, 30, 3_000)))}, b"busy")
        case "redirects":
            return FetchResponse(302, {"location": "https://elsewhere.test/"}, b"")
        case "lies":
            return FetchResponse(200, {}, rng.choice(LIES))
        case _:
            return FetchResponse(200, {}, b'{"done": 1}')


def drawn_job(rng: Random) -> dict[str, Any]:
    return {
        "name": rng.choice(NAMES),
        "action": rng.choice(("add", "add", "add", "change", "pause", "resume", "remove")),
        "schedule": rng.choice(SCHEDULES),
    }
