"""The run history over HTTP: filters, pages, one run, the totals of each day."""

from pathlib import Path

import pytest

from support.asgi import ask
from support.scripted_scheduler import ADMIN_KEY, scene
from support.statuses import run_record
from tocsin.web.app import create_app

PATH = "/api/admin/scheduler"
KEY = {"X-Admin-Key": ADMIN_KEY}


async def test_the_run_history(tmp_path: Path) -> None:
    """Of all tasks or one, 50 runs by default."""
    async with scene(tmp_path) as made:
        partial = run_record(id=2, task="sweep", outcome="partial", reason="its time slice was nearly over")
        made.scheduler.history = [partial, run_record(id=1)]
        app = create_app(made.site)

        everything = await ask(app, f"{PATH}/runs", headers=KEY)
        one = await ask(app, f"{PATH}/runs?task=tenero&limit=1", headers=KEY)

        everyone = [run.to_json() for run in made.scheduler.history]
        assert everything.json() == {"name": "v1", "runs": everyone, "next": None}
        assert everything.json()["runs"][0]["reason"] == "its time slice was nearly over"
        assert [(run["task"], run["id"]) for run in one.json()["runs"]] == [("tenero", 1)]
        assert made.scheduler.calls == [
            ("runs", None, 50, None, None, None, None, None),
            ("runs", "tenero", 1, None, None, None, None, None),
        ]


async def test_the_run_history_is_filtered_and_paged(tmp_path: Path) -> None:
    """`next` of a page is the `cursor` of the following one."""
    async with scene(tmp_path) as made:
        made.scheduler.history = [run_record(id=number) for number in (3, 2, 1)]
        app = create_app(made.site)

        first = await ask(
            app, f"{PATH}/runs?limit=2&outcome=ok&since=1778700600000&until=1778700600001&trigger=alarm", headers=KEY
        )
        second = await ask(app, f"{PATH}/runs?limit=2&cursor={first.json()['next']}", headers=KEY)

        assert [run["id"] for run in first.json()["runs"]] == [3, 2]
        assert [run["id"] for run in second.json()["runs"]] == [1]
        assert (first.json()["next"], second.json()["next"]) == (2, None)
        assert made.scheduler.calls[0] == (*("runs", None, 2, "ok", 1778700600000, None, "alarm", 1778700600001),)


async def test_one_run(tmp_path: Path) -> None:
    """With its log lines; a number that no run has is not found."""
    async with scene(tmp_path) as made:
        made.scheduler.history = [run_record(id=7)]
        app = create_app(made.site)

        found = await ask(app, f"{PATH}/runs/7", headers=KEY)
        unknown = await ask(app, f"{PATH}/runs/8", headers=KEY)
        malformed = await ask(app, f"{PATH}/runs/7x", headers=KEY)
        without_key = await ask(app, f"{PATH}/runs/7")

        assert found.json()["run"] == run_record(id=7).to_json()
        assert found.json()["progress"] is None
        assert found.json()["log"]["leftOut"] == 3
        assert [line["event"] for line in found.json()["log"]["lines"]] == ["sweep.unit_failed"]
        assert (unknown.status, unknown.json()["code"]) == (404, "unknown_run")
        assert (malformed.status, malformed.json()["code"]) == (400, "bad_number")
        assert without_key.status == 401


async def test_the_totals_of_each_day(tmp_path: Path) -> None:
    """30 days by default."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), f"{PATH}/days", headers=KEY)
        too_many = await ask(create_app(made.site), f"{PATH}/days?limit=401", headers=KEY)

        [day] = answer.json()["days"]
        assert (day["day"], day["tasks"]["tenero"]["outcomes"]) == ("2026-05-13", {"ok": 2, "failed": 1})
        assert (too_many.status, too_many.json()["error"]) == (400, "limit is 1 to 400.")
        assert made.scheduler.calls == [("days", 30)]


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
        ("task=%00", "bad_task", "tenero, sweep"),
        ("task=price", "bad_task", "tenero, sweep"),
        ("task=all", "bad_task", "tenero, sweep"),
    ],
)
async def test_a_bad_history_query_is_refused(tmp_path: Path, query: str, code: str, sentence: str) -> None:
    """A number within the bound, and the name of a task that exists; the examples work."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), f"{PATH}/runs?{query}", headers=KEY)

        assert (answer.status, answer.json()["code"]) == (400, code)
        assert sentence in answer.json()["error"]
