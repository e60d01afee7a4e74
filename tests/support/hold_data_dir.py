"""A separate process that opens a data directory, prints "open", and holds it until its input ends.

python -m support.hold_data_dir DIRECTORY [MIGRATIONS...]: each MIGRATIONS is `file.sqlite=directory`.
"""

import sys
from pathlib import Path

from tocsin.errors import StartError
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.logs.logs import open_logger
from tocsin.platform.local.sqlite.data_dir import DataDir
from tocsin.platform.local.sqlite.migrations import load
from tocsin.platform.shared.redaction import Redactor


def main() -> int:
    directory, *pairs = sys.argv[1:]
    schemas = {name: load(Path(where)) for name, _, where in (pair.partition("=") for pair in pairs)}
    clock = SystemClock()
    try:
        data = DataDir(
            Path(directory), schemas, now=clock.now(), logger=open_logger(sys.stderr, clock, Redactor())
        )
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
