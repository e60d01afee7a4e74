"""Measure a flood: 200 clients request the board of 951 agents with changing query strings, an agent its status.

    python bench/measure_flood.py [--seconds 10]

No query string may make the service compute the board again. The latency of both is measured, in three cases:

- Each client sends 20 requests a second, four times what the service allows in the long run, without a limit.
- All send requests as fast as they can, and each has the default limit.
- All send requests as fast as they can, without a limit, which saturates the service; in turns with an empty handler.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from rich.console import Console

from stacks_simulator.addresses import address_of

HERE = Path(__file__).parent
CLIENTS, AGENTS = 200, 951
BOARD_P99_MAX_MS, STATUS_MEDIAN_MAX_MS = 100.0, 20.0
ADDRESS = address_of("agent 0")
LIMIT = 300  # reads a minute: the default
LUA = """
delay = function() return PAUSE end
request = function()
  wrk.headers["X-Forwarded-For"] = "10.0.0." .. math.random(1, CLIENTS)
  return wrk.format("GET", "/api/competition/leaderboard?limit=200&x=" .. math.random(1, 1000000000))
end
done = function(summary, latency, requests)
  io.write(string.format("P99 %f\\n", latency:percentile(99.0) / 1000))
  io.write(string.format("P50 %f\\n", latency:percentile(50.0) / 1000))
  io.write(string.format("REFUSED %d\\n", summary.errors.status))
  io.write(string.format("ERRORS %d\\n", summary.errors.connect + summary.errors.timeout))
end
"""
console = Console(width=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10)
    seconds = parser.parse_args().seconds
    if shutil.which("wrk") is None:
        console.print("[red]wrk is missing: apt-get install wrk[/]")
        return 1
    with server("site") as url:
        report("20 requests a second from each", *flood(url, seconds, pause_ms=50), has_goal=True)
    with server("site", "--reads-per-minute", str(LIMIT)) as url:
        flood(url, seconds, pause_ms=0)  # uses up the burst that a client may read
        report(f"as fast as they can, {LIMIT} a minute", *flood(url, seconds, pause_ms=0), has_goal=True)
    with server("site") as url, server("empty") as empty_url:
        report("as fast as they can, no limit", *flood(url, seconds, pause_ms=0), has_goal=True)
        report("an empty handler, too", *flood(empty_url, seconds, pause_ms=0))
    return 0


@contextmanager
def server(app: str, *options: str) -> Iterator[str]:
    command = [sys.executable, str(HERE / "prices_server.py"), "--app", app, "--agents", str(AGENTS), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def report(how: str, out: str, times: list[float], *, has_goal: bool = False) -> None:
    found = re.findall(r"^(P99|P50|REFUSED|ERRORS) (\S+)", out, re.MULTILINE)
    figures = {name: float(value) for name, value in found}
    rate = re.search(r"Requests/sec:\s+(\S+)", out)
    goals = [f" (goal: <= {goal:g})" if has_goal else "" for goal in (BOARD_P99_MAX_MS, STATUS_MEDIAN_MAX_MS)]
    console.print(
        f"{CLIENTS} clients, {how}: {rate[1] if rate else '?'} requests/s,"
        f" {figures['REFUSED']:.0f} refused, {figures['ERRORS']:.0f} errors"
    )
    console.print(f"  board    median {figures['P50']:.1f} ms, p99 {figures['P99']:.1f} ms{goals[0]}")
    console.print(f"  status   median {statistics.median(times):.1f} ms of {len(times)}{goals[1]}")


def flood(url: str, seconds: int, *, pause_ms: int) -> tuple[str, list[float]]:
    """The report of wrk about the flood, and the milliseconds that another client waited for each answer during it."""
    asked = f"/api/competition/status?address={ADDRESS}"
    host = url.removeprefix("http://")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA.replace("PAUSE", str(pause_ms)).replace("CLIENTS", str(CLIENTS)))
        script.flush()
        command = ["wrk", "-c", str(CLIENTS), "-t", "1", "-d", str(seconds), "-s", script.name, url]
        command += ["-H", "Accept-Encoding: gzip", "--timeout", "10"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        times = []
        connection = HTTPConnection(host, timeout=30)
        while process.poll() is None:
            began = time.perf_counter()
            connection.request("GET", asked)
            connection.getresponse().read()
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(0.02)
        connection.close()
        assert process.stdout is not None
        return process.stdout.read(), times


if __name__ == "__main__":
    sys.exit(main())
