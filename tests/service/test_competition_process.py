"""The competition in real processes: import, sweep, submit and push, compared with the simulator's truth."""

import time
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

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
from support.tocsin_command import tocsin_here

SECRET = "pushed-by-chainhook"
KEY = {"X-Admin-Key": ADMIN_KEY}
FEED = "/api/admin/scheduler?action=refresh&task=feed"
SWEEP = "/api/admin/scheduler?action=refresh&task=sweep"
AMOUNTS = ("token_in", "amount_in", "token_out", "amount_out")


def read(url: str) -> str:
    with urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def trades(service: ServiceProcess, address: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        page = ask(f"{service.url}/api/competition/trades?address={address}&limit=200{after}")[1]
        rows += page["trades"]
        if page["next_cursor"] is None:
            return rows
        after = f"&cursor={page['next_cursor']}"


@pytest.mark.slow
def test_a_sweep_finds_what_the_truth_holds(tmp_path: Path) -> None:
    """Every swap of the truth is there with its amounts, and the board counts them."""
    with running_simulator(wallets=9) as upstreams:
        url = root_of(upstreams)
        import_agents(tmp_path / "data", read(f"{url}/_agents"))
        with running(ServiceProcess(tmp_path / "data", **upstreams)) as service:
            truth = ask(f"{url}/_truth")[1]["swaps"]
            ask(service.url + SWEEP, headers=KEY, body={})
            found = {row["txid"]: row for sender in {s["sender"] for s in truth} for row in trades(service, sender)}

            def counted() -> int:
                rows = ask(f"{service.url}/api/competition/leaderboard")[1]["rows"]
                return sum(row["tradeCount"] for row in rows)

            until(lambda: counted() >= len(truth))  # the board follows a sweep within a second
            assert truth
            for swap in truth:
                row = found[swap["txid"]]
                names = (*AMOUNTS, "burn_block_time")
                assert {name: row[name] for name in names} == {name: swap[name] for name in names}


def control(url: str, command: str, **body: Any) -> Any:
    """Tell the simulator to do something."""
    return ask(f"{url}/_control/{command}", body=body)[1]


def killed_during(action: str, service: ServiceProcess, within_s: float) -> None:
    """Start a run of a task, and kill the service a random while after its begin."""
    task = action.rpartition("=")[2]
    with running(service), calling(service.url + action):
        until(lambda: service.status()["tasks"][task]["running"])
        time.sleep(within_s)  # another process: its time is real
        service.kill()


def check_record(url: str, data: Path, service: ServiceProcess, action: str, truth_min: int) -> Any:
    """After five kills, the last run completes the record: the truth, each swap once. Returns that run's answer."""
    control(url, "calm")
    with running(service):
        truth = {swap["txid"]: swap for swap in ask(f"{url}/_truth")[1]["swaps"]}
        status, answer = ask(service.url + action, headers=KEY, body={})
        cut = sum(run["outcome"] == "interrupted" for run in service.runs(action.rpartition("=")[2]))
        rows = [row for sender in {s["sender"] for s in truth.values()} for row in trades(service, sender)]
    rebuild = tocsin_here("rebuild", "--data-dir", str(data), environment={})

    found = {row["txid"]: row for row in rows}
    assert (status, cut >= 3) == (200, True)
    assert len(found) == len(rows)
    assert len(truth) >= truth_min
    for txid, swap in truth.items():
        assert [found[txid][name] for name in AMOUNTS] == [swap[name] for name in AMOUNTS]
    assert rebuild.stdout == "All totals agree with the swaps.\n"
    return answer


@pytest.mark.slow
def test_killed_in_the_middle_of_sweeps(tmp_path: Path) -> None:
    """By SIGKILL, at random moments of a sweep over a slow upstream: nothing is missing or recorded twice."""
    chance = Random(5)
    with running_simulator(wallets=9) as upstreams:
        url, data = root_of(upstreams), tmp_path / "data"
        import_agents(data, read(f"{url}/_agents"))
        control(url, "swap", wallet=0, count=60)
        control(url, "mine")
        control(url, "fault", kind="delay", upstream="hiro", seconds=0.2)
        for _ in range(5):
            killed_during(SWEEP, ServiceProcess(data, **upstreams), chance.uniform(0, 0.5))
        check_record(url, data, ServiceProcess(data, **upstreams), SWEEP, 60)


@pytest.mark.slow
def test_killed_while_it_follows_the_network(tmp_path: Path) -> None:
    """By SIGKILL, while the feed reads pages and verifies over a slow upstream: the record becomes the truth."""
    chance = Random(11)
    with running_simulator(wallets=9) as upstreams:
        url, data = root_of(upstreams), tmp_path / "data"
        import_agents(data, read(f"{url}/_agents"))
        with running(ServiceProcess(data, **upstreams)) as service:
            until(lambda: service.runs("feed") and service.runs("feed")[0]["outcome"] == "ok")
            until(lambda: service.runs("sweep")[0]["outcome"] == "ok")
        for number in range(5):
            control(url, "calm")
            control(url, "swap", wallet=number, count=70)
            control(url, "mine")
            control(url, "fault", kind="delay", upstream="hiro", seconds=0.3)
            killed_during(FEED, ServiceProcess(data, **upstreams), chance.uniform(0, 0.6))
        answer = check_record(url, data, ServiceProcess(data, **upstreams), FEED, 300)

    assert (answer["result"]["way"], answer["result"]["blocksBehind"]) == ("network", 0)


@pytest.mark.slow
def test_a_trade_is_submitted_and_another_pushed(tmp_path: Path) -> None:
    """Both are recorded by the object itself, at once, and survive a restart."""
    with running_simulator() as upstreams:
        url = root_of(upstreams)
        import_agents(tmp_path / "data", read(f"{url}/_agents"))
        off = {"TOCSIN_SWEEP_ENABLED": "no", "TOCSIN_FEED_ENABLED": "no"}  # or they would be faster
        settings = {"CHAINHOOK_SECRET": SECRET, **off, **upstreams}
        txids = control(url, "swap", wallet=0, count=2)["txids"]
        control(url, "mine")
        push = {"event": {"apply": [_block(txids[1])], "rollback": []}}
        with running(ServiceProcess(tmp_path / "data", **settings)) as service:
            first, row = ask(f"{service.url}/api/competition/trades", body={"txid": txids[0]})
            again, _ = ask(f"{service.url}/api/competition/trades", body={"txid": txids[0]})
            pushed, counts = ask(
                f"{service.url}/api/chainhook", headers={"Authorization": f"Bearer {SECRET}"}, body=push
            )
            service.kill()

        assert (first, again, pushed, counts["queued"]) == (200, 409, 200, 1)
        with running(ServiceProcess(tmp_path / "data", **settings | {"TOCSIN_SWEEP_ENABLED": "yes"})) as service:
            ask(service.url + SWEEP, headers=KEY, body={})
            sources = {found["txid"]: found["source"] for found in trades(service, row["sender"])}
            assert (sources[txids[0]], sources[txids[1]]) == ("agent", "chainhook")


def _block(txid: str) -> Any:
    return {"transactions": [{"transaction_identifier": {"hash": txid}}]}
