"""The scheduler inside the real runtime: started by its alarm, asked while it works, killed, badly bound."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudflare.platforms import LocalPlatform
from holdfast.errors import RemoteError
from holdfast.testing.virtual_time import run_virtual
from support.examples import shape_differences
from support.processes import running_simulator
from support.workerd import Workerd, require_workerd, running

NOW = 1_800_000_000_000


def scheduler(workerd: Workerd, method: str, *arguments: Any) -> Any:
    return workerd.call("SCHEDULER", "v1", method, *arguments)


def next_event(workerd: Workerd, event: str, task: str, *, after: int = 0) -> dict[str, Any]:
    """The first such event of a task after this number, by the events' own long poll."""
    while True:
        found = scheduler(workerd, "events", after, 20_000)
        for one in found["events"]:
            if one["event"] == event and one.get("task") == task:
                return dict(one)
        assert found["events"], f"nothing happened for 20 s\n{workerd.output()}"
        after = found["next"]


@contextmanager
def sweep_held(workerd: Workerd) -> Iterator[None]:
    workerd.call("CONTRACT", "x", "kv_put", "hold", "yes")
    try:
        yield
    finally:
        workerd.call("CONTRACT", "x", "kv_delete", "hold")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Observe a deployment from its first trigger past a kill -9 in the middle of a run."""
    require_workerd()
    directory = tmp_path_factory.mktemp("story")
    seen: dict[str, Any] = {}
    with running_simulator() as settings, running(directory, settings) as workerd:
        _first_life(workerd, seen)
        workerd.start()
        _second_life(workerd, seen)
        yield seen


def _first_life(workerd: Workerd, seen: dict[str, Any]) -> None:
    workerd.migrate()
    seen["trigger"] = workerd.request("GET", "/cdn-cgi/handler/scheduled")[0]
    seen["prices"] = next_event(workerd, "run.ended", "tenero")
    seen["sweep"] = next_event(workerd, "run.ended", "sweep")
    seen["feed"] = next_event(workerd, "run.ended", "feed")
    seen["cached"] = workerd.call("CONTRACT", "x", "kv_get", "tenero:price:stx")
    seen["rows"] = workerd.call("CONTRACT", "x", "rows", "SELECT COUNT(*) AS n FROM marks")
    workerd.call("CONTRACT", "x", "put", "k", {"exact": 2**60})
    workerd.call("CONTRACT", "x", "kv_put", "hold", "yes")
    with ThreadPoolExecutor(1) as caller:
        cut_off = caller.submit(scheduler, workerd, "refresh_now", "sweep")
        seen["cut_off"] = next_event(workerd, "run.started", "sweep", after=seen["sweep"]["seq"])
        seen["before"] = scheduler(workerd, "status")
        seen["alarm_at"] = workerd.call("CONTRACT", "x", "script", 200)
        workerd.kill()
        assert isinstance(cut_off.exception(), OSError)


def _second_life(workerd: Workerd, seen: dict[str, Any]) -> None:
    workerd.call("CONTRACT", "x", "kv_delete", "hold")
    seen["rings"] = workerd.call("CONTRACT", "x", "rings", 1)
    seen["kept"] = workerd.call("CONTRACT", "x", "get", "k")
    seen["runs"] = scheduler(workerd, "runs")["runs"]
    seen["after"] = scheduler(workerd, "status")
    seen["again"] = next_event(workerd, "run.ended", "sweep")


def test_a_fresh_deployment_comes_to_life_by_the_cron_trigger_alone(story: dict[str, Any]) -> None:
    """Without any visitor, the alarm rings into Python, prices land in KV and the sweep's marks in D1."""
    assert story["trigger"] == 200
    for run in (story["prices"], story["feed"], story["sweep"]):
        assert (run["outcome"], run["trigger"]) == ("ok", "alarm"), run
    assert json.loads(story["cached"])["priceUsd"] > 0
    assert story["rows"] == [{"n": story["sweep"]["result"]["contractsScanned"]}]


def test_writes_and_the_alarm_survive_kill_9(story: dict[str, Any]) -> None:
    """Everything acknowledged is stored, and the alarm that became due in the meantime rings."""
    assert story["kept"] == {"exact": 2**60}
    assert story["rings"] == [["end", 0, False, story["alarm_at"], None]]


def test_a_run_cut_off_by_kill_9_is_on_record_and_is_run_again(story: dict[str, Any]) -> None:
    """It is recorded as interrupted; everything else is kept, and the alarm rings at once to run the task again."""
    [interrupted] = [run for run in story["runs"] if run["id"] == story["cut_off"]["run"]]
    assert interrupted["outcome"] == "interrupted"
    [prices] = [run for run in story["runs"] if run["id"] == story["prices"]["run"]]
    assert prices["result"] == story["prices"]["result"]
    assert story["after"]["nextAlarmAt"] is not None
    last_success = [story[when]["tasks"]["tenero"]["lastSuccessAt"] for when in ("before", "after")]
    assert last_success == sorted(last_success)
    assert (story["again"]["outcome"], story["again"]["trigger"]) == ("ok", "rerun")


def test_status_answers_while_a_sweep_runs_and_a_second_refresh_joins_it(workerd: Workerd) -> None:
    """Both callers get the result of one run."""
    scheduler(workerd, "arm")
    scheduler(workerd, "refresh_now", "all")
    with ThreadPoolExecutor(2) as callers:
        with sweep_held(workerd):
            first = callers.submit(scheduler, workerd, "refresh_now", "sweep")
            while (running_ := scheduler(workerd, "status")["tasks"]["sweep"]["running"]) is None:
                assert not first.done()
                time.sleep(0.02)
            second = callers.submit(scheduler, workerd, "refresh_now", "sweep")
            scheduler(workerd, "status")
        runs = [one.result()["run"] for one in (first, second)]
    assert [run["id"] for run in runs] == [running_["run"]] * 2
    assert sorted(run["joined"] for run in runs) == [False, True]


def test_status_has_the_shape_that_it_has_locally(workerd: Workerd, tmp_path: Path) -> None:
    """Every field, with the same type, and no others."""

    async def local_status() -> Any:
        async with LocalPlatform(tmp_path).scheduler() as world:
            await world.call("v1", "refresh_now", "all")
            return await world.call("v1", "status")

    scheduler(workerd, "refresh_now", "all")
    assert shape_differences(run_virtual(local_status()), scheduler(workerd, "status")) == []


def test_lines_reach_the_console_and_the_log_service(workerd: Workerd) -> None:
    """Every line of a run at both, with its fields, under the site's id at the service."""
    run = scheduler(workerd, "refresh_now", "sweep")["run"]["id"]
    while not (shipped := [one for one in workerd.log_service() if _ended(one["message"], one["context"], run)]):
        time.sleep(0.05)
    on_console = [one for one in workerd.console() if _ended(one["event"], one, run)]
    assert shipped[0]["appId"] == "aibtc-landing"
    assert shipped[0]["level"] == on_console[0]["level"] == "INFO"
    assert shipped[0]["context"]["result"] == on_console[0]["result"] != {}


def _ended(event: str, fields: dict[str, Any], run: int) -> bool:
    return event == "run.ended" and fields["run"] == run


@pytest.mark.slow
def test_wrong_and_missing_bindings_are_named_and_the_rest_works(tmp_path: Path) -> None:
    """No KV, and texts where DB and LOGS should be: each is named in the log and in the status."""
    require_workerd()
    with running(tmp_path, {}, "wrong") as workerd:
        status, body = workerd.request("GET", "/nothing")
        assert (status, json.loads(body)["code"]) == (404, "not_found")
        while (armed := scheduler(workerd, "status"))["nextAlarmAt"] is None and not armed["lastSweepRunAt"]:
            time.sleep(0.05)  # that request, of a visitor, has armed it in its background
        sweep = scheduler(workerd, "refresh_now", "sweep")["run"]
        reported = {(one["event"], one["binding"]): one["reason"] for one in workerd.console() if "binding" in one}
        last_error = scheduler(workerd, "status")["tasks"]["sweep"]["lastError"]
        prices = scheduler(workerd, "refresh_now", "tenero")["run"]

    no_kv = "The binding KV is missing: add a KV namespace named KV to the deployment."
    no_db = "The binding DB is text, not a D1 database: correct it in wrangler.jsonc."
    assert sweep["error"] == {"class": "BindingMissing", "message": no_kv}
    assert last_error["message"] == no_kv
    assert prices["error"] == {"class": "BindingMissing", "message": no_db}
    assert reported["binding.unusable", "DB"] == no_db
    assert reported["binding.missing", "KV"] == no_kv
    assert reported["binding.unusable", "LOGS"].startswith("The binding LOGS is text, not the log service")


@pytest.mark.slow
def test_settings_that_need_a_change_are_reported_to_every_caller(tmp_path: Path) -> None:
    """Each call and the deploy hook answer with the sentence, which contains no secret."""
    require_workerd()
    wrong = {"TOCSIN_SWEEP_CADENCE": "soon", "ADMIN_KEY": "hunter2"}
    with running(tmp_path, wrong) as workerd:
        status, body = workerd.request("POST", "/api/deployed")
        with pytest.raises(RemoteError, match="TOCSIN_SWEEP_CADENCE: 'soon' is not a duration") as refused:
            scheduler(workerd, "status")
    assert status == 503
    assert "TOCSIN_SWEEP_CADENCE: 'soon' is not a duration" in json.loads(body)["error"]
    assert "hunter2" not in str(refused.value) + workerd.output()


def test_the_deploy_hook_returns_the_next_ring(workerd: Workerd) -> None:
    """It is what a deployment calls last."""
    status, body = workerd.request("POST", "/api/deployed")
    assert status == 200
    assert json.loads(body)["name"] == "v1"
    assert json.loads(body)["nextAlarmAt"] > 0


@pytest.mark.slow
def test_any_request_arms_the_scheduler_at_most_once_a_minute(tmp_path: Path) -> None:
    """A visitor sets a lost alarm again; a thousand visitors do not make a thousand calls to the object."""
    require_workerd()
    off = {"TOCSIN_TENERO_ENABLED": "no", "TOCSIN_SWEEP_ENABLED": "no"}
    armed = []
    with running(tmp_path, off) as workerd:
        for at in (NOW, NOW + 1, NOW + 59_999, NOW + 60_000):
            workerd.set_clock(at)
            workerd.scheduler_calls()
            assert workerd.request("GET", "/healthz")[0] == 200
            scheduler(workerd, "status")
            armed.append(workerd.scheduler_calls().count("arm"))

    assert armed == [1, 0, 0, 1]
