"""Measure a thousand open event streams: memory, processor time, how soon a swap arrives, and missed slots.

    python bench/measure_streams.py [--streams 1000] [--seconds 130]

The service and the simulator are separate processes. Streams come from many loopback addresses, because one client may
open only a few. Halfway through, a swap is submitted: every stream must report it, and a leaderboard that is open in
Chromium must show it. Prices are refreshed once a minute.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from rich.console import Console

from support.browser import chromium
from support.processes import SERVE, ServiceProcess, ask, import_agents, root_of, running, running_simulator, until

PER_ADDRESS = 20
MEMORY_MAX_MB, TOLD_MAX_S, LATE_MAX_MS = 100.0, 2.0, 1_000
WATCH_STRIP = """() => {
  const list = document.querySelector("#strip-trades"), first = list.firstElementChild;
  window.shown = new Promise((resolve) => new MutationObserver(() => {
    if (list.firstElementChild !== first) resolve(Date.now());
  }).observe(list, { childList: true }));
}"""
console = Console(width=110)


@dataclass
class Streams:
    """Open streams, and when each reported a swap."""

    told: dict[int, float] = field(default_factory=dict)
    readers: list[asyncio.Task[None]] = field(default_factory=list)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self, host: str, port: int, count: int) -> None:
        for number in range(count):
            source = f"127.0.1.{number // PER_ADDRESS + 1}"
            stream = await asyncio.open_connection(host, port, local_addr=(source, 0))
            stream[1].write(b"GET /api/competition/events HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 " in await stream[0].readline()
            self.readers.append(asyncio.create_task(self._read(number, stream[0])))
            self._writers.append(stream[1])

    async def _read(self, number: int, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if line.startswith(b"event: counted"):
                self.told.setdefault(number, time.monotonic())

    async def close(self) -> None:
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)
        for writer in self._writers:
            writer.close()


def shown_at(url: str, is_open: threading.Event) -> float:
    """The time at which an open leaderboard shows a new trade, in Unix seconds."""
    with chromium(optimized=True) as browser:
        page = browser.new_page()
        page.goto(f"{url}/leaderboard")
        page.wait_for_selector("#strip-trades li")
        page.evaluate(WATCH_STRIP)
        is_open.set()
        at: float = page.evaluate("() => window.shown")
        return at / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=130)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, running_simulator(wallets=8, speed=0) as upstreams:
        data = Path(directory) / "data"
        with urlopen(f"{root_of(upstreams)}/_agents", timeout=30) as answer:
            import_agents(data, answer.read().decode())
        settings = {**upstreams, "TOCSIN_TENERO_CADENCE": "1m", "TOCSIN_TENERO_SLICE": "30s"}
        with running(ServiceProcess(data, command=SERVE, **settings)) as service:
            until(lambda: service.status()["lastTeneroResult"] and service.status()["lastSweepResult"])
            return asyncio.run(measure(service, root_of(upstreams), options.streams, options.seconds))


async def measure(service: ServiceProcess, simulator: str, count: int, seconds: int) -> int:
    address = urlsplit(service.url)
    assert address.hostname is not None
    assert address.port is not None
    idle_s, before_mb = await cpu_share(service.pid, 10), memory_mb(service.pid)
    begun_ms = time.time() * 1000
    streams = Streams()
    await streams.open(address.hostname, address.port, count - 1)  # the last one is a browser's
    busy_s = await cpu_share(service.pid, seconds / 2)
    is_open = threading.Event()
    shown = asyncio.create_task(asyncio.to_thread(shown_at, service.url, is_open))
    await asyncio.to_thread(is_open.wait, 60)
    submitted = await asyncio.to_thread(trade, service, simulator)
    shown_s = await shown - (time.time() - time.monotonic() + submitted)
    await asyncio.sleep(seconds / 2)
    after_mb = memory_mb(service.pid)
    runs = [run for run in await asyncio.to_thread(service.runs) if run["startedAt"] > begun_ms]
    await streams.close()
    delays = sorted(at - submitted for at in streams.told.values())
    late = [run["startedAt"] - run["slotAt"] for run in runs if run["slotAt"] is not None]
    missed = sum(run["missedSlots"] for run in runs)
    console.print(f"{count:,} streams: {after_mb - before_mb:.1f} MB (goal {MEMORY_MAX_MB:.0f})")
    console.print(f"processor: {idle_s:.1%} of one without streams, {busy_s:.1%} with them")
    if delays:
        median = statistics.median(delays)
        latest = f"last {delays[-1]:.2f} s (goal {TOLD_MAX_S})"
        console.print(f"{len(delays):,} streams reported the swap: median {median:.2f} s, {latest}")
    console.print(f"an open leaderboard showed it after {shown_s:.2f} s (goal {TOLD_MAX_S})")
    console.print(f"{len(late)} runs, {missed} slots missed, at most {max(late, default=0)} ms late")
    good = (
        after_mb - before_mb <= MEMORY_MAX_MB
        and len(delays) == count - 1
        and max(delays[-1], shown_s) <= TOLD_MAX_S
        and late
        and not missed
        and max(late) <= LATE_MAX_MS
    )
    return 0 if good else 1


def trade(service: ServiceProcess, simulator: str) -> float:
    """Submit a swap. Returns when it was settled."""
    wallet = json.loads(urlopen(f"{simulator}/_agents", timeout=30).read().splitlines()[0])
    swap: Any = ask(f"{simulator}/_control/swap", body={"wallet": wallet["stx_address"], "count": 1})[1]
    ask(f"{simulator}/_control/mine", body={})
    status, answer = ask(f"{service.url}/api/competition/trades", body={"txid": swap["txids"][0]})
    assert status == 200, answer
    return time.monotonic()


async def cpu_share(pid: int, seconds: float) -> float:
    begun = cpu_s(pid)
    await asyncio.sleep(seconds)
    return (cpu_s(pid) - begun) / seconds


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    raise SystemExit(main())
