"""`python -m stacks_simulator`: the simulator alone, until Ctrl-C or SIGTERM."""

import asyncio
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable, Sequence
from math import inf

from holdfast.errors import HoldfastError
from holdfast.local.clock import SystemClock
from stacks_simulator.serve import SimulatorOptions, run_simulator


def main(arguments: Sequence[str] | None = None, name: str = "python -m stacks_simulator") -> None:
    parser = ArgumentParser(name, formatter_class=ArgumentDefaultsHelpFormatter)
    known = SimulatorOptions()

    def add(option: str, help_text: str, parse: Callable[[str], object] = str) -> None:
        default = getattr(known, option.replace("-", "_"))
        parser.add_argument(f"--{option}", type=parse, default=default, help=help_text)

    add("host", "the address to listen on")
    add("port", "0 picks a free port", _number(int, high=65_535))
    add("seed", "the same seed gives the same chain", int)
    add("speed", "of the chain; 1 is real time", _number(float, high=10_000))
    add("wallets", "how many agents are registered", _number(int, 1))
    add("history-hours", "of traffic before the start", _number(float))
    add("campaign-start-s", "unix time; none: the real start", int)
    parser.add_argument("--limits", action=BooleanOptionalAction, default=known.limits, help="the real rate limits")
    parser.add_argument("--bad-times", action="store_true", help="faults on a seeded schedule")
    options = SimulatorOptions(**vars(parser.parse_args(arguments)))
    asyncio.run(run_simulator(options, SystemClock()))


def _number(kind: type[int] | type[float], low: float = 0, high: float = inf) -> Callable[[str], float]:
    def number(text: str) -> float:
        if not low <= kind(text) <= high:
            raise ArgumentTypeError(f"{text} is not a number from {low:g} to {high:g}")
        return kind(text)

    return number


if __name__ == "__main__":
    try:
        main()
    except HoldfastError as error:
        sys.exit(str(error))
