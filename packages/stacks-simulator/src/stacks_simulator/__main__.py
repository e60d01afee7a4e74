"""`python -m stacks_simulator`: the simulator alone, until Ctrl-C or SIGTERM."""

import asyncio
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, BooleanOptionalAction

from holdfast.errors import HoldfastError
from holdfast.local.clock import SystemClock
from stacks_simulator.serve import SimulatorOptions, run_simulator


def main() -> None:
    parser = ArgumentParser("python -m stacks_simulator", formatter_class=ArgumentDefaultsHelpFormatter)
    known = SimulatorOptions()
    parser.add_argument("--host", default=known.host, help="the address to listen on")
    parser.add_argument("--port", type=int, default=known.port, help="0 picks a free port")
    parser.add_argument("--seed", type=int, default=known.seed, help="the same seed gives the same chain")
    parser.add_argument("--speed", type=float, default=known.speed, help="of the chain; 1 is real time")
    parser.add_argument("--wallets", type=int, default=known.wallets, help="how many agents are registered")
    parser.add_argument("--history-hours", type=float, default=known.history_hours, help="of traffic before the start")
    parser.add_argument("--limits", action=BooleanOptionalAction, default=known.limits, help="the real rate limits")
    parser.add_argument("--bad-times", action="store_true", help="faults on a seeded schedule")
    options = SimulatorOptions(**vars(parser.parse_args()))
    try:
        asyncio.run(run_simulator(options, SystemClock()))
    except HoldfastError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
