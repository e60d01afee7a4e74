"""`python -m tocsin.simulator`: only the simulator, on loopback."""

import argparse
import asyncio

from tocsin.errors import StartError
from tocsin.platform.local.clock import SystemClock
from tocsin.simulator.serve import Options, simulate


def main() -> None:
    default = Options()
    parser = argparse.ArgumentParser(prog="python -m tocsin.simulator", description=__doc__)
    parser.add_argument("--host", default=default.host)
    parser.add_argument("--port", type=int, default=default.port, help="0 picks a free one")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--speed", type=float, default=default.speed, help="chain time per real time")
    parser.add_argument("--wallets", type=int, default=default.wallets)
    parser.add_argument("--history-hours", type=float, default=default.history_hours)
    parser.add_argument("--campaign-start-s", type=int, default=default.campaign_start_s)
    parser.add_argument(
        "--no-limits", dest="limits", action="store_false", help="no rate limits, for benchmarks"
    )
    parser.add_argument("--bad-times", action="store_true", help="faults by a seeded schedule")
    options = Options(**vars(parser.parse_args()))
    try:
        asyncio.run(simulate(options, SystemClock()))
    except StartError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
