"""Compare prices, the board and a kept look-up with an empty ASGI handler and with bare ones that send the same bytes.

All are measured in turns. The board is a page of 50 of 1,000 agents, compressed as for browsers, and uncompressed.

    python bench/measure_prices.py [--tokens N]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROUNDS, ROUND_S, CONNECTIONS = 9, 2, 32
PRICES, BOARD = "/api/prices", "/api/competition/leaderboard"
LOOKUP_KEY = "a-key-of-the-benchmark"
LOOKUP = "/api/upstream/hiro/v1/addresses/stacks/SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
RATIO_MIN = 0.8  # of a look-up: 0.7
# The reference's route costs 0.165 ms where its empty handler costs 0.10 ms.
CPU_RATIO_MAX = 1.65
console = Console(width=110)


class Server:
    """A process that serves one of the three handlers."""

    def __init__(self, process: "subprocess.Popen[str]", path: str) -> None:
        assert process.stdout is not None
        self.process = process
        self.url = process.stdout.readline().strip() + path

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, *, zipped: bool = False) -> tuple[float, float]:
        """Requests per second, and CPU microseconds per request."""
        before = self.cpu_s()
        command = ["wrk", "-c", str(CONNECTIONS), "-t", "1", "-d", str(ROUND_S), self.url]
        command += ["-H", f"X-Api-Key: {LOOKUP_KEY}"]
        command += ["-H", "Accept-Encoding: gzip"] if zipped else []
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "Non-2xx" not in out, out
        requests = int(next(line.split()[0] for line in out.splitlines() if "requests in" in line))
        return requests / ROUND_S, (self.cpu_s() - before) / requests * 1e6


@contextmanager
def server(app: str, path: str, tokens: int) -> Iterator[Server]:
    """A separate server; the bare one sends the same bytes whatever the path."""
    command = [sys.executable, str(HERE / "prices_server.py"), "--app", app, "--tokens", str(tokens)]
    command += ["--path", path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Server(process, path)
    finally:
        process.terminate()
        process.wait()


def size_of(url: str, *, zipped: bool) -> int:
    headers = {"X-Api-Key": LOOKUP_KEY, **({"Accept-Encoding": "gzip"} if zipped else {})}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
        return len(response.read())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=13)
    tokens = parser.parse_args().tokens
    if shutil.which("wrk") is None:
        console.print("[red]wrk is missing: apt-get install wrk[/]")
        return 1
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(server(app, path, tokens))
            for name, app, path in (
                ("prices", "site", PRICES),
                ("prices, bare handler", "bare", PRICES),
                ("board", "site", BOARD),
                ("board, bare handler", "bare", BOARD),
                ("look-up", "site", LOOKUP),
                ("look-up, bare handler", "bare", LOOKUP),
                ("empty handler", "empty", "/"),
            )
        }
        measured = [(name, False) for name in servers]
        measured.insert(3, ("board", True))
        sizes = {each: size_of(servers[each[0]].url, zipped=each[1]) for each in measured}
        rounds = [{each: servers[each[0]].load(zipped=each[1]) for each in measured} for _ in range(ROUNDS)]
    table = Table(
        f"{CONNECTIONS} connections, {ROUNDS} x {ROUND_S} s", "bytes", "req/s", "of empty", "CPU us/request", "of empty"
    )
    empty = ("empty handler", False)
    for each in measured:
        rate, cost = (statistics.median(figures[each][column] for figures in rounds) for column in range(2))
        rate_ratio, cost_ratio = (
            statistics.median(figures[each][column] / figures[empty][column] for figures in rounds)
            for column in range(2)
        )
        name = each[0] + (", gzip" if each[1] else "")
        table.add_row(name, f"{sizes[each]:,}", f"{rate:,.0f}", f"{rate_ratio:.2f}", f"{cost:.1f}", f"{cost_ratio:.2f}")
    table.add_row("goal", "", "", f">= {RATIO_MIN}", "", f"<= {CPU_RATIO_MAX}")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
