"""A separate process that opens a data directory, prints "open", and holds it until its input ends.

python -m support.hold_data_dir DIRECTORY [MIGRATIONS...]: each MIGRATIONS is `file.sqlite=directory`.
"""

import sys
from pathlib import Path

from holdfast.errors import StartError
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.migrations import load
from tocsin.local.logs import open_logger
from tocsin.logs import Redactor


def main() -> int:
    directory, *pairs = sys.argv[1:]
    schemas = {name: load(Path(where)) for name, _, where in (pair.partition("=") for pair in pairs)}
    clock = SystemClock()
    try:
        data = DataDir(Path(directory), schemas, now=clock.now(), logger=open_logger(sys.stderr, clock, Redactor()))
    except StartError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.read()
    data.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
