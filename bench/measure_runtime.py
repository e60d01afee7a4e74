"""Compare the object runtime with the real workerd, in one run.

The machine is shared, so only ratios are meaningful. Throughput is measured in alternating rounds.
"""

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROUNDS, ROUND_S, CONNECTIONS = 5, 4, 32
console = Console(width=110)


class Server:
    """A process with objects behind HTTP."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self._command = command
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the process and return the time of its start, in seconds."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [part.format(port=self.port, dir=self.directory) for part in self._command]
        started_at = time.time()
        self.process = subprocess.Popen(command, cwd=HERE / "workerd", stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                self.get("/results")
            except OSError:
                time.sleep(0.01)
            else:
                return started_at
        raise RuntimeError(f"{self.name} did not reply within 20 s of its start")

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=120) as response:
            body = response.read()
        return json.loads(body) if path.startswith("/results") else body

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def cpu_s(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def servers(directory: Path) -> Iterator[list[Server]]:
    tocsin = Server(
        "tocsin",
        [sys.executable, str(HERE / "objects_server.py"), "--port", "{port}", "--dir", "{dir}"],
        directory / "tocsin",
    )
    runtimes = [tocsin]
    workerd = HERE / "workerd" / "node_modules" / ".bin" / "workerd"
    if workerd.exists():
        arguments = ["serve", "config.capnp", "--socket-addr", "http=127.0.0.1:{port}"]
        runtimes.append(
            Server("workerd", [str(workerd), *arguments, "--directory-path", "disk={dir}"], directory / "workerd")
        )
    else:
        console.print("[yellow]workerd is not installed (npm is missing): only tocsin is measured[/]")
    for server in runtimes:
        server.directory.mkdir()
    try:
        yield runtimes
    finally:
        for server in runtimes:
            if server.process is not None and server.process.poll() is None:
                server.kill()


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return {"min": ordered[0], "p50": p50, "p99": p99, "max": ordered[-1]}


def load(server: Server, path: str) -> tuple[float, float]:
    """Requests per second, and CPU microseconds per request."""
    server.get(path)
    cpu = server.cpu_s()
    command = ["wrk", "-c", str(CONNECTIONS), "-t", "1", "-d", str(ROUND_S), f"http://127.0.0.1:{server.port}{path}"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    requests = int(next(line.split()[0] for line in out.splitlines() if "requests in" in line))
    return requests / ROUND_S, (server.cpu_s() - cpu) / requests * 1e6


def throughput(runtimes: list[Server]) -> None:
    table = Table("HTTP → object", *[f"{s.name} req/s (CPU µs)" for s in runtimes], "ratio", "goal")
    for method, label, goal in (
        ("read_one", "one get", "≥ 2.0"),
        ("write_one", "one durable put", "≥ 1.6"),
        ("read_row", "one row by SQL", "≥ 1.0"),
        ("write_row", "one durable row by SQL", "≥ 1.2"),
    ):
        rounds = [[load(server, f"/b/{method}/x") for server in runtimes] for _ in range(ROUNDS)]
        rates = [statistics.median(r[i][0] for r in rounds) for i in range(len(runtimes))]
        cpus = [statistics.median(r[i][1] for r in rounds) for i in range(len(runtimes))]
        ratio = f"{rates[0] / rates[1]:.2f}" if len(runtimes) > 1 else "-"
        cells = [f"{rate:,.0f} ({cpu:.0f})" for rate, cpu in zip(rates, cpus, strict=True)]
        table.add_row(label, *cells, ratio, goal)
    console.print(table)


def lateness(server: Server, n: int, within_ms: int, *, settle_ms: int) -> dict[str, float]:
    at = int(time.time() * 1000) + settle_ms
    server.get(f"/arm?n={n}&at={at}&within={within_ms}")
    time.sleep(max(0, (at + within_ms) / 1000 + 1.5 - time.time()))
    lateness_ms = server.get("/results")["lateness"]
    assert len(lateness_ms) == n, f"{server.name}: {len(lateness_ms)} of {n} alarms rang"
    return quantiles(lateness_ms)


def alarms(runtimes: list[Server]) -> None:
    table = Table("alarms, ms late", "min", "p50", "p99", "max", "goal")
    for server in runtimes:
        q = lateness(server, 200, 5000, settle_ms=1500)
        goal = "p99 ≤ workerd's" if server.name == "tocsin" else ""
        table.add_row(f"200 objects in 5 s, {server.name}", *[f"{v:.2f}" for v in q.values()], goal)
    q = lateness(runtimes[0], 10_000, 10_000, settle_ms=9000)
    table.add_row("10,000 objects in 10 s, tocsin", *[f"{v:.2f}" for v in q.values()], "p50 ≤ 20")
    console.print(table)


def starts(runtimes: list[Server]) -> None:
    table = Table("start → overdue alarm, ms", "median of 5", "goal")
    for server in runtimes:
        durations_ms = []
        for _ in range(5):
            server.get(f"/arm?n=1&at={int(time.time() * 1000) + 300}")
            server.kill()
            time.sleep(0.6)
            started_at = server.start()
            time.sleep(0.3)
            durations_ms.append(server.get("/results")["firstAlarm"][0] - started_at * 1000)
        goal = "≤ 500" if server.name == "tocsin" else ""
        table.add_row(server.name, f"{statistics.median(durations_ms):.0f}", goal)
    console.print(table)


def idle(directory: Path) -> None:
    (directory / "idle").mkdir()
    command = [sys.executable, str(HERE / "idle_object.py"), str(directory / "idle")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()

    def switches() -> int:
        total = 0
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            status = (task / "status").read_text()
            total += sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)
        return total

    before = switches()
    time.sleep(10)
    wake_ups = switches() - before
    status = Path(f"/proc/{process.pid}/status").read_text()
    rss_mb = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
    process.kill()
    process.wait()
    table = Table("idle for 10 s, alarm in an hour", "measured", "goal")
    table.add_row("resident memory", f"{rss_mb:.0f} MB", "≤ 60 MB")
    table.add_row("wake-ups", str(wake_ups), "≤ 1")
    console.print(table)


def main() -> int:
    if shutil.which("wrk") is None:
        console.print("[red]wrk is missing: apt-get install wrk[/]")
        return 1
    with tempfile.TemporaryDirectory(dir=HERE) as name, servers(Path(name)) as runtimes:
        for server in runtimes:
            server.start()
        throughput(runtimes)
        alarms(runtimes)
        starts(runtimes)
        idle(Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
