"""Send a head of 100 MB, and open 1,100 silent sockets with 1,024 descriptors, while the scheduler runs.

    PYTHONPATH=tests:packages/holdfast/tests python bench/measure_front_door.py

It prints how much memory the head took, how long `/healthz` took during that, when the sockets were closed, and how the
runs ended. The scheduler runs every few seconds.
"""

import os
import resource
import select
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.processes import SERVE, ServiceProcess, ask, import_agents, root_of, running_simulator
from support.processes import running as running_service

HEAD_BYTES = 100 * 1024 * 1024
SOCKETS, DESCRIPTORS = 1_100, 1_024
SETTINGS = {
    "TOCSIN_FEED_CADENCE": "2s",
    "TOCSIN_TENERO_CADENCE": "5s",
    "TOCSIN_TENERO_SLICE": "4s",
    "TOCSIN_SWEEP_CADENCE": "10s",
    "TOCSIN_SWEEP_SLICE": "8s",
    "TOCSIN_HIRO_PLAN_MINUTE": "5000",
    "TOCSIN_HIRO_PLAN_MONTH": "100000000",
    "TOCSIN_TENERO_PLAN_MONTH": "100000000",
}


def main() -> int:
    with running_simulator(wallets=12, history_hours=0.5) as upstreams, tempfile.TemporaryDirectory() as scratch:
        with urllib.request.urlopen(f"{root_of(upstreams)}/_agents") as lines:
            import_agents(Path(scratch) / "data", lines.read().decode())
        own = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, own[1]))
        service = ServiceProcess(Path(scratch) / "data", command=SERVE, **upstreams, **SETTINGS)
        limit_of(service.pid, DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, own[1]), own[1]))
        with running_service(service):
            threading.Thread(target=drain, args=(service,), daemon=True).start()
            time.sleep(8)
            for shape in ("many headers", "one long header"):
                endless_head(service, shape)
            silent_sockets(service)
            time.sleep(5)
            report_runs(service)
    return 0


def limit_of(pid: int, descriptors: int) -> None:
    """Set also the hard limit, so that the service cannot raise it."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))


def drain(service: ServiceProcess) -> None:
    while service.line():
        pass


def resident_mb(service: ServiceProcess) -> float:
    pages = int(Path(f"/proc/{service.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def connect(service: ServiceProcess) -> socket.socket:
    url = urlsplit(service.url)
    return socket.create_connection((url.hostname or "", url.port or 0), timeout=10)


def endless_head(service: ServiceProcess, shape: str) -> None:
    before, highest, sent, answer = resident_mb(service), 0.0, 0, b""
    piece = b"X-A: %s\r\n" % (b"a" * 500) if shape == "many headers" else b"a" * 10_000
    with connect(service) as client:
        try:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + (b"" if shape == "many headers" else b"X-A: "))
            while sent < HEAD_BYTES:
                client.sendall(piece)
                sent += len(piece)
                highest = max(highest, resident_mb(service))
        except OSError:
            pass
        try:
            answer = client.recv(100).split(b"\r\n")[0]
        except OSError:
            answer = b"closed"
    print(
        f"head, {shape}: {sent / 1e6:.1f} of {HEAD_BYTES / 1e6:.0f} MB were taken, then {answer.decode()!r};"
        f" memory {before:.1f} -> {highest:.1f} MB"
    )


def silent_sockets(service: ServiceProcess) -> None:
    clients = [connect(service) for _ in range(SOCKETS)]
    began = time.perf_counter()
    with urllib.request.urlopen(f"{service.url}/healthz", timeout=30) as response:
        status = response.status
    took_ms = (time.perf_counter() - began) * 1000
    print(f"{SOCKETS} silent sockets at ulimit -n {DESCRIPTORS}: /healthz {status} in {took_ms:.0f} ms")
    poller = select.poll()
    for client in clients:
        poller.register(client.fileno(), select.POLLIN)
    open_ = {client.fileno() for client in clients}
    while open_ and time.perf_counter() - began < 60:
        for descriptor, _ in poller.poll(1_000):
            poller.unregister(descriptor)
            open_.discard(descriptor)
    print(f"  {len(open_)} of them are open after {time.perf_counter() - began:.1f} s")
    for client in clients:
        client.close()


def report_runs(service: ServiceProcess) -> None:
    runs: list[dict[str, Any]] = service.runs()
    outcomes = {(run["task"], run["outcome"]) for run in runs}
    late = max((run["startedAt"] - run["slotAt"] for run in runs if run["slotAt"]), default=0)
    missed = sum(run["missedSlots"] for run in runs)
    print(f"runs: {len(runs)}, {sorted(outcomes)}; {missed} slots missed, latest start {late} ms after its slot")
    assert ask(f"{service.url}/healthz")[0] == 200


if __name__ == "__main__":
    sys.exit(main())
