"""Measure the duration of `status()` over HTTP on one connection, while nothing runs and while sweeps run.

The simulator is in the same process, so the figure with sweeps includes both ends of their calls.
"""

import contextlib
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

KEY = "a-key-for-the-bench"
CALLS = 2_000
CHUNK = 65_536


def request(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> bytes:
    connection.request(method, path, body, {"X-Admin-Key": KEY, "Content-Type": "application/json"})
    return connection.getresponse().read()


def await_first_runs(connection: http.client.HTTPConnection) -> None:
    """Wait for the first sweep of the demo, which reads weeks of trades."""
    while True:
        status = json.loads(request(connection, "GET", "/api/admin/scheduler"))["status"]
        tasks = status["tasks"].values()
        if all(task["runCounts"] and task["running"] is None for task in tasks if task["enabled"]):
            return
        time.sleep(0.5)


def sweep_repeatedly(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):  # a sweep may run when the benchmark ends
        while True:
            request(connection, "POST", "/api/admin/scheduler?action=refresh&task=sweep")


def measure(address: str) -> list[float]:
    """Measure with a minimal client: http.client itself takes 0.1 to 0.2 ms."""
    host, port = address.split(":")
    asked = f"GET /api/admin/scheduler HTTP/1.1\r\nhost: {address}\r\nx-admin-key: {KEY}\r\n\r\n".encode()
    durations_ms = []
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        for _ in range(CALLS):
            started_at = time.perf_counter()
            connection.sendall(asked)
            answer = b""
            while not is_complete(answer):
                part = connection.recv(CHUNK)
                assert part, "the service closed the connection"
                answer += part
            durations_ms.append((time.perf_counter() - started_at) * 1000)
            assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]
    return durations_ms


def is_complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def main() -> int:
    directory = tempfile.TemporaryDirectory()
    process = subprocess.Popen(
        [sys.executable, "-m", "tocsin", "serve", "--demo", "--port=0", f"--data-dir={directory.name}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "ADMIN_KEY": KEY},
    )
    try:
        assert process.stdout is not None
        log_line = next(line for line in process.stdout if '"service.started"' in line)
        threading.Thread(target=lambda: [None for _ in process.stdout or ()], daemon=True).start()
        address = urlsplit(json.loads(log_line)["url"]).netloc
        connection = http.client.HTTPConnection(address, timeout=30)
        await_first_runs(connection)
        quiet = measure(address)
        latency = '{"kind": "delay", "upstream": "hiro", "seconds": 0.06}'  # like the real Hiro
        request(connection, "POST", "/simulator/_control/fault", latency)
        other = http.client.HTTPConnection(address, timeout=30)
        threading.Thread(target=sweep_repeatedly, args=(other,), daemon=True).start()
        time.sleep(0.5)
        busy = measure(address)
        runs = json.loads(request(connection, "GET", "/api/admin/scheduler/runs?task=sweep"))["runs"]
        sweeps = sum(run["trigger"] == "refresh" for run in runs)
    finally:
        process.kill()
        process.wait()
        directory.cleanup()
    table = Table("status() over HTTP, 1 connection", "p50 ms", "p99 ms", "goal")
    for name, durations_ms in (("while nothing runs", quiet), (f"while sweeps run ({sweeps} of them)", busy)):
        p50, p99 = statistics.median(durations_ms), sorted(durations_ms)[int(CALLS * 0.99)]
        table.add_row(name, f"{p50:.2f}", f"{p99:.2f}", "p50 ≤ 1")
    Console(width=100).print(table)
    return 0 if sweeps else 1


if __name__ == "__main__":
    sys.exit(main())
