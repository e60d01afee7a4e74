"""200 clients ask for the board of 951 agents, each time with another query string, while an agent asks for its status.

    python bench/measure_flood.py [--seconds 10]

No query string may make the service compute the board again: the latency of both is measured. First every client
asks 20 times a second, then all ask as fast as they can, so that the service has no time left.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from http.client import HTTPConnection
from pathlib import Path

from rich.console import Console

HERE = Path(__file__).parent
CLIENTS, AGENTS = 200, 951
BOARD_P99_MAX_MS, STATUS_MEDIAN_MAX_MS = 100.0, 20.0
PAUSES_MS = (50, 0)
LUA = """
delay = function() return PAUSE end
request = function()
  return wrk.format("GET", "/api/competition/leaderboard?limit=200&x=" .. math.random(1, 1000000000))
end
done = function(summary, latency, requests)
  io.write(string.format("P99 %f\\n", latency:percentile(99.0) / 1000))
  io.write(string.format("P50 %f\\n", latency:percentile(50.0) / 1000))
  io.write(string.format("ERRORS %d\\n", summary.errors.status + summary.errors.connect + summary.errors.timeout))
end
"""
console = Console(width=110)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=10)
    seconds = parser.parse_args().seconds
    if shutil.which("wrk") is None:
        console.print("[red]wrk is missing: apt-get install wrk[/]")
        return 1
    command = [sys.executable, str(HERE / "prices_server.py"), "--app", "site", "--agents", str(AGENTS)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        measure(server.stdout.readline().strip(), seconds)
    finally:
        server.terminate()
        server.wait()
    return 0


def measure(url: str, seconds: int) -> None:
    address = json.loads(get(f"{url}/api/competition/leaderboard?limit=1"))["rows"][0]["stxAddress"]
    for pause_ms in PAUSES_MS:
        out, times = flood(url, f"/api/competition/status?address={address}", seconds, pause_ms)
        found = re.findall(r"^(P99|P50|ERRORS) (\S+)", out, re.MULTILINE)
        figures = {name: float(value) for name, value in found}
        rate = re.search(r"Requests/sec:\s+(\S+)", out)
        how = f"{pause_ms} ms between requests" if pause_ms else "at full speed"
        console.print(
            f"{CLIENTS} clients, {how}: {rate[1] if rate else '?'} requests/s, {figures['ERRORS']:.0f} errors"
        )
        console.print(
            f"  board    median {figures['P50']:.1f} ms, p99 {figures['P99']:.1f} ms (goal: <= {BOARD_P99_MAX_MS:g})"
        )
        console.print(
            f"  status   median {statistics.median(times):.1f} ms of {len(times)}"
            f" (goal: <= {STATUS_MEDIAN_MAX_MS:g})"
        )


def flood(url: str, asked: str, seconds: int, pause_ms: int) -> tuple[str, list[float]]:
    """What wrk says of the flood, and how many milliseconds another client waited for each answer meanwhile."""
    host = url.removeprefix("http://")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA.replace("PAUSE", str(pause_ms)))
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


def get(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:
        return bytes(response.read())


if __name__ == "__main__":
    sys.exit(main())
