"""How long `status()` takes over HTTP, on one connection: while nothing runs, and while a task does."""

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


def refresh(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):  # it is still running when the bench ends
        asked(connection, "POST", "/api/admin/scheduler?action=refresh&task=tenero")


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
        asked(connection, "POST", "/simulator/_control/fault", '{"kind": "hang", "upstream": "tenero"}')
        other = http.client.HTTPConnection(where, timeout=30)
        threading.Thread(target=refresh, args=(other,), daemon=True).start()
        time.sleep(0.5)
        busy = measure(connection)
        running = json.loads(asked(connection, "GET", "/api/admin/scheduler"))["status"]["tasks"]["tenero"][
            "running"
        ]
    finally:
        process.kill()
        process.wait()
    table = Table("status() over HTTP, 1 connection", "p50 ms", "p99 ms", "goal")
    for name, took in (("while nothing runs", quiet), ("while a task runs", busy)):
        table.add_row(
            name, f"{statistics.median(took):.2f}", f"{sorted(took)[int(CALLS * 0.99)]:.2f}", "p50 ≤ 1"
        )
    Console(width=100).print(table)
    return 0 if running else 1


if __name__ == "__main__":
    sys.exit(main())
