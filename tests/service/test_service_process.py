"""The real service as a real process, against the simulator: killed, stopped, started twice."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from support.processes import (
    ADMIN_KEY,
    ServiceProcess,
    ask,
    calling,
    import_agents,
    root_of,
    running,
    running_simulator,
    until,
)


@pytest.fixture(scope="module")
def simulator() -> Iterator[dict[str, str]]:
    with running_simulator() as settings:
        yield settings


@pytest.fixture
def upstreams(simulator: dict[str, str]) -> Iterator[dict[str, str]]:
    """One simulator for all; each test finds it without faults."""
    yield simulator
    ask(f"{root_of(simulator)}/_control/calm", body={})


@pytest.mark.slow
def test_the_settings_of_the_site_reach_its_pages(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """The public address in a preview, and the sites that may read the API in a browser."""
    with urlopen(f"{root_of(upstreams)}/_agents") as lines:
        agents = lines.read().decode()
    import_agents(tmp_path, agents)
    sites = {"TOCSIN_PUBLIC_URL": "https://board.example/", "TOCSIN_CORS_ORIGINS": "https://aibtc.com"}
    address = json.loads(agents.splitlines()[0])["stx_address"]
    with running(ServiceProcess(tmp_path, **upstreams, **sites)) as service:
        with urlopen(f"{service.url}/agents/{address}") as answer:
            page = answer.read().decode()
        origins = []
        for origin in ("https://aibtc.com", "https://evil.example"):
            with urlopen(Request(f"{service.url}/api/prices", headers={"Origin": origin})) as answer:
                origins.append(answer.headers["Access-Control-Allow-Origin"])

    assert f'<meta property="og:url" content="https://board.example/agents/{address}">' in page
    assert origins == ["https://aibtc.com", None]


@pytest.mark.slow
def test_killed_in_the_middle_of_a_refresh(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """After the restart the alarm is set, the run is recorded as interrupted, and it is run again at once."""
    url = root_of(upstreams)
    slow = {"kind": "hang", "upstream": "tenero", "path": "tokens"}
    with running(ServiceProcess(tmp_path, **upstreams)) as service:
        until(lambda: service.status()["lastTeneroResult"])
        prices = ask(f"{service.url}/api/prices")[1]["prices"]
        ask(f"{url}/_control/fault", body=slow)
        admin = f"{service.url}/api/admin/scheduler?action=refresh&task=tenero"
        with calling(admin):
            until(lambda: service.status()["tasks"]["tenero"]["running"])
            service.signal(signal.SIGKILL)
    ask(f"{url}/_control/calm", body={})
    with running(ServiceProcess(tmp_path, **upstreams)) as service:
        until(lambda: service.runs("tenero")[0]["outcome"] == "ok")
        runs = service.runs("tenero")

        assert ask(f"{service.url}/api/prices")[1]["prices"].keys() >= prices.keys()
        assert [(run["outcome"], run["trigger"]) for run in runs[:2]] == [("ok", "rerun"), ("interrupted", "refresh")]
        assert service.status()["nextAlarmAt"] is not None


@pytest.mark.slow
def test_stopped_for_a_while_it_catches_up_once_and_keeps_the_grid(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """SIGSTOP over several slots of a 1 s task: one run for all of them, then the next second."""
    quick = {"TOCSIN_TENERO_CADENCE": "1s", "TOCSIN_TENERO_SLICE": "900ms", "TOCSIN_TENERO_PLAN_MINUTE": "none"}
    quick |= {"TOCSIN_TENERO_PLAN_MONTH": "none"}
    with running(ServiceProcess(tmp_path, **quick, **upstreams)) as service:
        until(lambda: len(service.runs("tenero")) > 2)
        service.signal(signal.SIGSTOP)
        stopped_at = time.time() * 1000
        time.sleep(5)  # the wall clock must really pass
        resumed_at = time.time() * 1000
        service.signal(signal.SIGCONT)
        until(lambda: service.runs("tenero")[0]["slotAt"] > resumed_at + 1000)
        runs = service.runs("tenero")

    slots = sorted(run["slotAt"] for run in runs)
    first = min((run for run in runs if run["slotAt"] > stopped_at), key=lambda run: run["slotAt"])
    before = max(slot for slot in slots if slot <= stopped_at)
    assert first["startedAt"] >= resumed_at
    assert first["missedSlots"] == (first["slotAt"] - before) / 1000 - 1 >= 3
    assert len(slots) == len(set(slots))
    assert all(slot % 1000 == 0 for slot in slots[1:])  # the first one is the time of the start


@pytest.mark.slow
def test_a_wrong_setting_stops_the_start_with_its_fix(tmp_path: Path) -> None:
    """Exit code 1, the name, the problem, an example; no stack trace."""
    code, _out, error = ServiceProcess(tmp_path, TOCSIN_TENERO_CADENCE="often").end()

    assert code == 1
    assert "TOCSIN_TENERO_CADENCE: 'often' is not a duration" in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_it_works_without_a_request_and_stops_on_sigterm(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """The alarm rings by itself; at the end everything is closed, and the next start finds its state."""
    service = ServiceProcess(tmp_path, **upstreams).ready()
    price = until(lambda: ask(f"{service.url}/api/prices?tokens=stx")[1]["prices"])["stx"]
    ready, next_alarm_at = ask(f"{service.url}/readyz")[1]["ready"], service.status()["nextAlarmAt"]
    service.signal(signal.SIGTERM)
    code, _out, error = service.end()

    assert (price["priceUsd"] > 0, price["source"]) == (True, "tenero")
    assert (ready, next_alarm_at > time.time() * 1000) == (True, True)
    assert (code, "Traceback" in error) == (0, False)
    with running(ServiceProcess(tmp_path, **upstreams)) as again:
        assert again.status()["lastTeneroRunAt"] is not None


@pytest.mark.slow
def test_a_log_that_nobody_reads_stops_nothing(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """Requests are answered and SIGTERM ends the process, while its stdout is a full pipe."""
    with running(ServiceProcess(tmp_path, **upstreams)) as service:
        for _ in range(1_000):  # each is a line of some 200 bytes, and a pipe takes 64 KiB
            assert ask(f"{service.url}/api/chainhook", body={})[0] == 503
        alive = ask(f"{service.url}/healthz")[0]
        run = until(lambda: service.status()["lastTeneroRunAt"])
        service.signal(signal.SIGTERM)

        assert (alive, run is not None) == (200, True)
        assert service.end_unread() == 0


@pytest.mark.slow
def test_requests_under_way_at_sigterm_are_refused_in_the_usual_shape(
    tmp_path: Path, upstreams: dict[str, str]
) -> None:
    """A refresh that hangs gets 503, the exit code is 0, and every line of the log is JSON without a traceback."""
    answers: list[tuple[int, Any]] = []

    def refresh(url: str) -> None:
        answers.append(ask(url, headers={"X-Admin-Key": ADMIN_KEY}, body={}))

    with running(ServiceProcess(tmp_path, **upstreams)) as service:
        until(lambda: service.status()["lastTeneroResult"])
        simulator = root_of(upstreams)
        ask(f"{simulator}/_control/fault", body={"kind": "hang", "upstream": "tenero", "path": "tokens"})
        admin = f"{service.url}/api/admin/scheduler?action=refresh&task=tenero"
        clients = [threading.Thread(target=refresh, args=(admin,)) for _ in range(3)]
        for client in clients:
            client.start()
        until(lambda: service.status()["tasks"]["tenero"]["running"])
        service.signal(signal.SIGTERM)
        code, out, error = service.end()
        for client in clients:
            client.join()

    assert [(status, body["code"]) for status, body in answers] == [(503, "scheduler_unavailable")] * 3
    assert code == 0
    assert "Traceback" not in out + error
    assert all(json.loads(line)["level"] != "ERROR" for line in out.splitlines())
