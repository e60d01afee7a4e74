"""The restore drill: a backup of a busy service, a kill, a restore, and the same record as the truth."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support.processes import (
    ADMIN_KEY,
    Process,
    ServiceProcess,
    ask,
    import_agents,
    root_of,
    running,
    running_simulator,
    until,
)
from support.tocsin_command import tocsin_here

KEY = {"X-Admin-Key": ADMIN_KEY}
FEED = "/api/admin/scheduler?action=refresh&task=feed"
COLUMNS = ("txid", "sender", "token_in", "amount_in", "token_out", "amount_out", "burn_block_time")


def rows_of(data: Path) -> dict[str, tuple[Any, ...]]:
    """Every swap that is committed now, by its transaction."""
    with closing(sqlite3.connect(f"{(data / 'db.sqlite').as_uri()}?mode=ro", uri=True)) as db:
        return {row[0]: row for row in db.execute(f"SELECT {', '.join(COLUMNS)} FROM swaps")}


def complete_until_block(data: Path) -> int:
    """Return the block up to which the scheduler has stored, in its own file, that the record is complete."""
    with closing(sqlite3.connect(f"{(data / 'objects.sqlite').as_uri()}?mode=ro", uri=True)) as objects:
        (value,) = objects.execute("SELECT value FROM entries WHERE key = 'task:feed'").fetchone()
    return int(json.loads(value)["lastResult"]["completeUntilBlock"])


@contextmanager
def trading(upstreams: str, service: ServiceProcess) -> Iterator[None]:
    """Swaps are mined and the feed records them, without a pause."""
    stopped = threading.Event()

    def trade() -> None:
        wallet = 0
        while not stopped.is_set():
            wallet = (wallet + 1) % 9
            try:
                ask(f"{upstreams}/_control/swap", body={"wallet": wallet, "count": 5})
                ask(f"{upstreams}/_control/mine", body={})
                ask(service.url + FEED, headers=KEY, body={})
            except (OSError, ValueError):  # the service was killed
                return

    thread = threading.Thread(target=trade)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@pytest.mark.slow
def test_a_backup_under_load_restores_to_the_truth_of_its_time(tmp_path: Path) -> None:
    """All that was committed before it began, nothing from after it ended, and the files agree with each other."""
    data, new = tmp_path / "data", tmp_path / "new"
    with running_simulator(wallets=9, speed=0) as upstreams:
        url = root_of(upstreams)
        with urlopen(f"{url}/_agents", timeout=30) as answer:
            import_agents(data, answer.read().decode())
        service = ServiceProcess(data, **upstreams).ready()
        try:
            until(lambda: service.runs("sweep")[0]["outcome"] == "ok")
            with trading(url, service):
                began_with = len(rows_of(data))
                until(lambda: len(rows_of(data)) > began_with + 20)
                before = rows_of(data)
                saved = Process("backup", str(tmp_path / "saved.tar"), "--data-dir", str(data)).end()
                after = rows_of(data)
                until(lambda: len(rows_of(data)) > len(after))  # it goes on
                service.kill()
        finally:
            service.kill()
        restored = Process("restore", str(tmp_path / "saved.tar"), "--data-dir", str(new)).end()
        rows, complete = rows_of(new), complete_until_block(new)
        truth = {swap["txid"]: swap for swap in ask(f"{url}/_truth")[1]["swaps"]}
        restored_at = time.time() * 1000
        with running(ServiceProcess(new, **upstreams)) as service:
            status, caught_up = ask(service.url + FEED, headers=KEY, body={})
            until(lambda: service.runs("sweep")[0]["outcome"] == "ok")
            left = [run for run in service.runs() if run["startedAt"] < restored_at and run["outcome"] == "running"]
        in_the_end = rows_of(new)
        rebuild = tocsin_here("rebuild", "--data-dir", str(new), environment={})

    assert (saved[0], restored[0]) == (0, 0), (saved, restored)
    assert "Next: start the service" in restored[1]
    assert before.items() <= rows.items() <= after.items()
    due = {txid for txid, swap in truth.items() if swap["block_height"] <= complete}
    assert len(due) > 20
    assert due <= rows.keys()
    for txid, row in rows.items():
        assert [str(value) for value in row] == [str(truth[txid][name]) for name in COLUMNS]
    assert (status, caught_up["result"]["run"]["outcome"]) == (200, "ok")
    assert left == []
    assert in_the_end.keys() == truth.keys()
    assert rebuild.stdout == "All totals agree with the swaps.\n"
