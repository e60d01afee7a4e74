"""The simulator in its own process, for code that cannot share a test's event loop."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from support.warm_process import WarmProcess


def root_of(upstreams: dict[str, str]) -> str:
    """Return the base URL of the simulator's own routes: `/_control`, `/_truth`, `/_agents`."""
    return upstreams["HIRO_API_URL"].removesuffix("/hiro")


@contextmanager
def running_simulator(*, wallets: int = 3, history_hours: float = 0.1, speed: float = 1.0) -> Iterator[dict[str, str]]:
    """A small simulator without limits; yields the settings of its URLs. Speed 0 stops the chain."""
    arguments = ["simulate", "--port=0", "--no-limits"]
    arguments += [f"--wallets={wallets}", f"--history-hours={history_hours}", f"--speed={speed}"]
    with WarmProcess(*arguments, environment=os.environ) as process:
        try:
            lines = [process.stdout.readline().strip() for _ in range(2)]
            yield dict(line.split("=", 1) for line in lines)
        finally:
            process.kill()
