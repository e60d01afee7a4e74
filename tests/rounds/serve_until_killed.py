"""`tocsin serve`, killed with -9 at a commit of a step of a round, right before or right after it.

python tests/rounds/serve_until_killed.py before|after NUMBER    the NUMBER counts these commits, from 1
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Sequence

from holdfast.local import database
from holdfast.statements import PreparedStatement
from holdfast.types import DBResult
from tocsin.cli import main

STEPS = ("UPDATE competition_rounds", "INSERT INTO competition_round_files")

execute = database._execute


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(moment: str, number: int) -> None:
    passed = 0

    def counted(
        connection: sqlite3.Connection, begin: str | None, statements: Sequence[PreparedStatement]
    ) -> list[DBResult]:
        nonlocal passed
        if not any(step in statement.sql for step in STEPS for statement in statements):
            return execute(connection, begin, statements)
        passed += 1
        if passed == number and moment == "before":
            connection.set_trace_callback(lambda sql: die() if sql == "COMMIT" else None)
        results = execute(connection, begin, statements)
        if passed == number:
            die()
        return results

    database._execute = counted


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    sys.argv[1:] = ["serve"]
    main()
