"""The routes of jobs: who may do what, and what is refused."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from support.asgi import Answer
from support.world import JSON_TYPE, KEY, VIEWER, Tocsin, named_keys, tocsin_in

JOBS = "/api/admin/jobs"
PAYOUTS = {"name": "payouts", "url": "https://site.example/jobs/payouts", "every": "15m", "secret": "site"}
DEFAULTS = {
    "cron": None,
    "zone": "UTC",
    "limit": "30s",
    "upstream": None,
    "callsPerRun": 0.0,
    "overdueAfter": None,
    "title": "",
    "enabled": True,
}


@pytest.fixture
def made(tmp_path: Path) -> AbstractAsyncContextManager[Tocsin]:
    return tocsin_in(tmp_path, job_secrets=named_keys("a-long-random-text", name="site", role="job"))


async def change(made: Tocsin, key: dict[str, str] = KEY, **body: Any) -> Answer:
    return await made.post(JOBS, body, {**JSON_TYPE, **key})


async def test_an_operator_changes_jobs_and_a_viewer_sees_them(made: Tocsin) -> None:
    """The answer has all jobs with their next times, and what changed; a dry run changes nothing."""
    dry = (await change(made, action="add", jobs=[PAYOUTS], dryRun=True)).json()
    added = (await change(made, action="add", jobs=[PAYOUTS], reason="asked for")).json()
    by_viewer = await change(made, VIEWER, action="remove", names=["payouts"])
    seen = (await made.get(JOBS, **VIEWER)).json()
    records = (await made.get("/api/admin/scheduler/audit", **KEY)).json()["records"]
    now = made.clock.now()

    line = "payouts: added, every 15m: https://site.example/jobs/payouts"
    assert (dry["jobs"], dry["changed"]) == ([], [line])
    assert added["changed"] == [line]
    assert [view["job"] for view in seen["jobs"]] == [{**DEFAULTS, **PAYOUTS}]
    quarter = 900_000
    assert seen["jobs"][0]["nextAt"] == [now - now % quarter + n * quarter for n in range(1, 6)]
    assert (seen["name"], seen["changed"]) == ("v1", [])
    assert (by_viewer.status, by_viewer.json()["code"]) == (403, "read_only_key")
    assert [(each["action"], each["target"], each["reason"], each["outcome"]) for each in records] == [
        ("job add", "payouts", "asked for", "done")
    ]


@pytest.mark.parametrize("headers", [{}, {"x-admin-key": "wrong-key-of-somebody"}])
async def test_nobody_else_sees_jobs(made: Tocsin, headers: dict[str, str]) -> None:
    assert (await made.get(JOBS, **headers)).status == 401
    assert (await change(made, headers, action="add", jobs=[PAYOUTS])).status == 401


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"action": "add"}, "add needs jobs."),
        ({"action": "add", "jobs": [{**PAYOUTS, "secret": "other"}]}, "no secret named 'other'; use site"),
        ({"action": "remove", "names": ["mail"]}, "There is no job 'mail'"),
        ({"action": "add", "jobs": [PAYOUTS], "reason": "two\nlines"}, "reason is one line"),
    ],
)
async def test_a_wrong_change_is_refused_with_a_sentence(made: Tocsin, body: dict[str, Any], sentence: str) -> None:
    answer = await change(made, **body)
    jobs = (await made.get(JOBS, **KEY)).json()["jobs"]

    assert (answer.status, jobs) == (400, [])
    assert sentence in answer.json()["error"]


async def test_a_secret_is_shown_by_its_name_only(made: Tocsin) -> None:
    added = await change(made, action="add", jobs=[PAYOUTS])

    assert b"a-long-random-text" not in added.body
    assert added.json()["jobs"][0]["job"]["secret"] == "site"
