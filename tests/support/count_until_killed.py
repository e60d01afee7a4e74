"""Writes a counter to one SQLite file after another, again and again, until it is killed."""

import sys
from itertools import count
from pathlib import Path

from holdfast.local.sqlite_file import connect


def main() -> None:
    connections = [connect(Path(path)) for path in sys.argv[1:]]
    for connection in connections:
        connection.execute("PRAGMA synchronous = OFF")  # the process is killed here, not the machine
    for number in count(1):
        for connection in connections:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE counter SET number = ?", (number,))
            connection.execute("UPDATE pages SET number = ? WHERE rowid = 400", (number,))  # at the file's other end
            connection.execute("COMMIT")
        if number == 1:
            print("writing", flush=True)


if __name__ == "__main__":
    main()
