"""Soak the service with traffic, abuse and upstream faults while the scheduler runs: `make soak`.

    python bench/soak.py [--minutes 10] [--seed 1]

It exits with 1 if a valid request got an error, if a slot was missed or late, if memory, descriptors or files grew, or
if a swap is missing at the end. Cadences are seconds instead of minutes, so ten minutes have hundreds of slots.
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from soak_traffic import Tally, Target, Traffic

from support.processes import ADMIN_KEY, SERVE, ServiceProcess, ask, import_agents, root_of, running_simulator
from support.processes import running as running_service

CADENCES_S = {"feed": 5, "tenero": 10, "sweep": 20}
SETTINGS = {
    "TOCSIN_FEED_CADENCE": "5s",
    "TOCSIN_TENERO_CADENCE": "10s",
    "TOCSIN_TENERO_SLICE": "8s",
    "TOCSIN_SWEEP_CADENCE": "20s",
    "TOCSIN_SWEEP_SLICE": "15s",
    "TOCSIN_TRUSTED_PROXIES": "127.0.0.1",
    "TOCSIN_READS_PER_MINUTE": "300",
    "TOCSIN_HIRO_PLAN_MINUTE": "5000",
    "TOCSIN_HIRO_PLAN_MONTH": "100000000",
    "TOCSIN_TENERO_PLAN_MINUTE": "5000",
    "TOCSIN_TENERO_PLAN_MONTH": "100000000",
}
LATE_S = 3.0
GROWTH_BYTES = 16 * 1024 * 1024
WAL_BYTES = 16 * 1024 * 1024
KINDS = ["limited", "status", "delay", "cut", "cut_body", "truncated", "wrong_json", "wrong_types"]


@dataclass(slots=True)
class Samples:
    """The resource use of the process, once a second."""

    resident: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    files: list[frozenset[str]] = field(default_factory=list)
    wal: list[int] = field(default_factory=list)

    def take(self, pid: int, data_dir: Path) -> None:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        self.resident.append(pages * os.sysconf("SC_PAGE_SIZE"))
        self.descriptors.append(_open_descriptors(pid))
        found = {file.name: file.stat().st_size for file in data_dir.iterdir()}
        self.files.append(frozenset(found))
        self.wal.append(max((size for name, size in found.items() if name.endswith("-wal")), default=0))


def _open_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@dataclass(slots=True)
class Findings:
    """The problems that make the soak fail."""

    lines: list[str] = field(default_factory=list)

    def expect(self, fits: bool, sentence: str) -> None:
        if not fits:
            self.lines.append(sentence)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("asyncio").setLevel(
        logging.ERROR
    )  # without a log line for each connection that the service closes
    with (
        running_simulator(wallets=40, history_hours=2, speed=30) as upstreams,
        tempfile.TemporaryDirectory() as scratch,
    ):
        data_dir = Path(scratch) / "data"
        with urlopen(f"{root_of(upstreams)}/_agents") as lines:
            import_agents(data_dir, lines.read().decode())
        with running_service(ServiceProcess(data_dir, command=SERVE, **upstreams, **SETTINGS)) as service:
            return asyncio.run(_soak(service, root_of(upstreams), data_dir, options.minutes * 60, options.seed))


async def _soak(service: ServiceProcess, simulator: str, data_dir: Path, seconds: float, seed: int) -> int:
    drain = asyncio.create_task(asyncio.to_thread(_drain, service))
    await asyncio.to_thread(_act, service, "refresh&task=all")
    idle = _open_descriptors(service.pid)
    senders = [swap["sender"] for swap in ask(f"{simulator}/_truth")[1]["swaps"]]
    host, _, port = service.url.removeprefix("http://").partition(":")
    traffic = Traffic(Target(host, int(port), ADMIN_KEY, senders), seed)
    faults = asyncio.create_task(_break_upstreams(simulator, seed))
    started, samples = time.time(), Samples()
    sampling = asyncio.create_task(_sample(samples, service.pid, data_dir, seconds))
    tally = await traffic.run(seconds)
    await sampling
    faults.cancel()
    ended = time.time()
    ask(f"{simulator}/_control/calm", body={})
    await asyncio.sleep(12)  # the service closes silent sockets in this time
    after = _open_descriptors(service.pid)
    runs = _runs(service, started, ended)
    truth = len(ask(f"{simulator}/_truth")[1]["swaps"])  # the chain continues: at least these must be counted
    await asyncio.to_thread(_act, service, "refresh&task=feed")
    await asyncio.to_thread(_act, service, "refresh&task=sweep")
    await asyncio.to_thread(_act, service, "refresh&task=board")
    counted = _counted(service)
    service.signal(signal.SIGTERM)
    code = await asyncio.to_thread(service.end_unread)
    failed_calls = await drain
    findings = Findings()
    _report_traffic(tally, seconds, findings)
    _report_slots(runs, findings)
    _report_use(samples, idle, after, findings)
    print(f"faults             {failed_calls} calls to upstreams failed")
    print(f"swaps              {counted} on the board, {truth} on the chain")
    findings.expect(counted >= truth, f"{truth - counted} swaps are missing")
    findings.expect(failed_calls > 0, "the upstreams had no fault")
    findings.expect(code == 0, f"the service ended with {code}")
    print("\n" + ("all well" if not findings.lines else "\n".join(f"WRONG: {line}" for line in findings.lines)))
    return 1 if findings.lines else 0


async def _break_upstreams(simulator: str, seed: int) -> None:
    """Make the next calls to an upstream fail, every two seconds and each time in another way."""
    draw = random.Random(seed)
    while True:
        upstream, times = draw.choice([("hiro", 2), ("hiro", 2), ("tenero", 1)])
        fault = {"kind": draw.choice(KINDS), "upstream": upstream, "times": times}
        status, answer = await asyncio.to_thread(
            ask, f"{simulator}/_control/fault", body={**fault, "retry_after": 1, "seconds": 0.5}
        )
        assert status == 200, answer
        await asyncio.sleep(2)


async def _sample(samples: Samples, pid: int, data_dir: Path, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        samples.take(pid, data_dir)
        if sys.stderr.isatty():
            print(f"\r{left:4.0f} s left, {samples.resident[-1] / 1e6:.0f} MB ", end="", file=sys.stderr)
        await asyncio.sleep(1)


def _drain(service: ServiceProcess) -> int:
    """Read the log to its end. Returns how many calls to an upstream failed."""
    failed = 0
    while line := service.line():
        failed += '"upstream.attempt_failed"' in line
    return failed


def _act(service: ServiceProcess, action: str) -> None:
    ask(f"{service.url}/api/admin/scheduler?action={action}", headers=_admin(), body={})


def _admin() -> dict[str, str]:
    return {"X-Admin-Key": ADMIN_KEY}


def _runs(service: ServiceProcess, started: float, ended: float) -> list[dict[str, Any]]:
    """The runs of the soak that the alarm started, oldest first."""
    found = ask(f"{service.url}/api/admin/scheduler/runs?limit=2000", headers=_admin())[1]["runs"]
    own = [
        run
        for run in found
        if run["slotAt"] is not None and started * 1000 <= run["slotAt"] <= ended * 1000 and run["endedAt"]
    ]
    return sorted(own, key=lambda run: run["startedAt"])


def _counted(service: ServiceProcess) -> int:
    counted = 0
    cursor: str | None = ""
    while cursor is not None:
        query = f"limit=200{f'&cursor={cursor}' if cursor else ''}"
        board = ask(f"{service.url}/api/competition/leaderboard?{query}", headers=_admin())[1]
        counted += sum(row["tradeCount"] for row in board["rows"])
        cursor = board["next"]
    return counted


def _report_traffic(tally: Tally, seconds: float, findings: Findings) -> None:
    total = sum(tally.requests.values())
    print(f"valid requests     {total} ({total / seconds:.0f}/s), {sum(tally.errors.values())} with an error")
    for name, count in tally.requests.most_common():
        print(f"  {name:36} {count:8}")
    print("abuse              " + ", ".join(f"{kind} {count}" for kind, count in tally.abuse.most_common()))
    print(f"                   {tally.limited} requests of one greedy client were answered 429")
    findings.expect(not tally.errors, f"valid requests failed: {dict(tally.errors)}")
    findings.expect(not tally.wrong_abuse, f"abuse was answered wrongly: {dict(tally.wrong_abuse)}")
    findings.expect(tally.limited > 0, "the greedy client was never limited")


def _report_slots(runs: list[dict[str, Any]], findings: Findings) -> None:
    for task, cadence_s in CADENCES_S.items():
        own = [run for run in runs if run["task"] == task]
        late = _lateness(own)
        outcomes = {name: sum(run["outcome"] == name for run in own) for name in {run["outcome"] for run in own}}
        missed = _unexplained(own, cadence_s * 1000)
        print(
            f"{task:8} every {cadence_s:2} s  {len(own)} runs {outcomes}, late by "
            f"{statistics.median(late):.2f} s (median), {max(late):.2f} s (longest); {missed} slots missed"
        )
        findings.expect(missed == 0, f"{task} missed {missed} slots for no reason")
        findings.expect(max(late) <= LATE_S, f"{task} was late by {max(late):.1f} s")


def _lateness(runs: list[dict[str, Any]]) -> list[float]:
    """The lateness of runs in seconds, except those that waited for the previous run or backed off after it failed."""
    free = [
        run
        for before, run in pairwise(runs)
        if before["outcome"] in ("ok", "partial") and before["endedAt"] <= run["slotAt"]
    ]
    return [(run["startedAt"] - run["slotAt"]) / 1000 for run in free]


def _unexplained(runs: list[dict[str, Any]], cadence_ms: int) -> int:
    """Slots without a run, although no run was under way and the previous one had not failed."""
    missed = 0
    for before, run in pairwise(runs):
        skipped = range(before["slotAt"] + cadence_ms, run["slotAt"], cadence_ms)
        free = [slot for slot in skipped if slot > before["endedAt"]]
        missed += len(free) if before["outcome"] in ("ok", "partial") else 0
    return missed


def _report_use(samples: Samples, idle: int, after: int, findings: Findings) -> None:
    quarter = max(1, len(samples.resident) // 4)
    early = statistics.median(samples.resident[quarter : 2 * quarter])
    late = statistics.median(samples.resident[-quarter:])
    print(f"memory             {early / 1e6:.1f} MB in the second quarter, {late / 1e6:.1f} MB in the last")
    print(f"descriptors        {idle} before, {max(samples.descriptors)} at most, {after} after")
    print(f"files              {len(samples.files[-1])}, the largest log {max(samples.wal) / 1e6:.1f} MB")
    findings.expect(late - early < GROWTH_BYTES, f"memory grew by {(late - early) / 1e6:.1f} MB")
    findings.expect(after <= idle + 10, f"{after - idle} descriptors are still open")
    findings.expect(samples.files[-1] <= samples.files[0], f"new files: {samples.files[-1] - samples.files[0]}")
    findings.expect(max(samples.wal) < WAL_BYTES, "a log was not checkpointed")


if __name__ == "__main__":
    sys.exit(main())
