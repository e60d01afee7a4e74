"""How long `status()` takes over HTTP, on one connection: while nothing runs, and while sweeps do.

The simulator is in the same process, so a sweep's figure pays for both ends of its calls.
"""

import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

KEY = "a-key-for-the-bench"
CALLS = 2_000


def asked(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> bytes:
    connection.request(method, path, body, {"X-Admin-Key": KEY, "Content-Type": "application/json"})
    return connection.getresponse().read()


def sweep_again_and_again(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):  # one is running when the bench ends
        while True:
            asked(connection, "POST", "/api/admin/scheduler?action=refresh&task=sweep")


def measure(connection: http.client.HTTPConnection) -> list[float]:
    took = []
    for _ in range(CALLS):
        began_at = time.perf_counter()
        asked(connection, "GET", "/api/admin/scheduler")
        took.append((time.perf_counter() - began_at) * 1000)
    return took


def main() -> int:
    process = subprocess.Popen(
        [sys.executable, "-m", "tocsin", "serve", "--demo", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "ADMIN_KEY": KEY},
    )
    try:
        assert process.stdout is not None
        started = next(line for line in process.stdout if '"service.started"' in line)
        threading.Thread(target=lambda: [None for _ in process.stdout or ()], daemon=True).start()
        where = urlsplit(json.loads(started)["url"]).netloc
        connection = http.client.HTTPConnection(where, timeout=30)
        time.sleep(2)
        quiet = measure(connection)
        slow = '{"kind": "delay", "upstream": "hiro", "seconds": 0.06}'  # as far away as Hiro is
        asked(connection, "POST", "/simulator/_control/fault", slow)
        other = http.client.HTTPConnection(where, timeout=30)
        threading.Thread(target=sweep_again_and_again, args=(other,), daemon=True).start()
        time.sleep(0.5)
        busy = measure(connection)
        runs = json.loads(asked(connection, "GET", "/api/admin/scheduler/runs?task=sweep"))["runs"]
        swept = sum(run["trigger"] == "refresh" for run in runs)
    finally:
        process.kill()
        process.wait()
    table = Table("status() over HTTP, 1 connection", "p50 ms", "p99 ms", "goal")
    for name, took in (("while nothing runs", quiet), (f"while sweeps run ({swept} of them)", busy)):
        table.add_row(
            name, f"{statistics.median(took):.2f}", f"{sorted(took)[int(CALLS * 0.99)]:.2f}", "p50 ≤ 1"
        )
    Console(width=100).print(table)
    return 0 if swept else 1


if __name__ == "__main__":
    sys.exit(main())
