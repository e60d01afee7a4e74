"""Replace the service repeatedly under load, with a socket held by the supervisor, and count failed requests.

    PYTHONPATH=tests:packages/holdfast/tests .venv/bin/python bench/measure_upgrade.py [REQUESTS [RESTARTS]]

Half of the clients open a connection for each request; the others keep theirs, and retry on a new one if an idle
connection turns out to be closed. A request fails when it is refused, reset, cut off, or not answered with 200.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path

from support.upgrade_load import Activator, UpgradeLoad

NOWHERE = {"HIRO_API_URL": "http://127.0.0.1:9", "TENERO_API_URL": "http://127.0.0.1:9"}
CLIENTS = 16


def main(wanted: int = 10_000, restarts: int = 5) -> int:
    with tempfile.TemporaryDirectory() as directory:
        activator = Activator(Path(directory) / "data", **NOWHERE)
        service = activator.start().ready()
        load = UpgradeLoad(activator.address, wanted=wanted, clients=CLIENTS)
        load.start()
        gaps_s = []
        for number in range(restarts):
            load.wait_for(wanted * (number + 1) // (restarts + 1))
            began = time.monotonic()
            service.signal(signal.SIGTERM)
            service.end()
            service = activator.start().ready()
            gaps_s.append(time.monotonic() - began)
        tally = load.finish()
        service.kill()
        activator.close()
    print(f"{restarts} restarts under {CLIENTS} clients, {max(gaps_s):.1f} s at most until the next one served")
    print(f"answered {tally.answered}, repeated on a new connection {tally.repeated}, failed {len(tally.failed)}")
    for problem in tally.failed[:10]:
        print(f"  {problem}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
