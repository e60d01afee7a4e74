"""Digests of many histories, to show that a change of the code changed no behavior.

make digests OUT=before.json [SEEDS=200 JOBS=2]   writes the digests of the seeds from 1 on
make digests COMPARE="before.json after.json"                   compares two such files

The digest of the trace covers every call, log line and commit in their order. The digests of the ending, one for each
table and file, cover what is stored at the end of the calm: they stay equal if only the way there has changed.
The digests of the responses cover what the web application answers at that moment, to the byte.
"""

import argparse
import hashlib
import json
import sqlite3
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from starlette.types import ASGIApp

from simulation.history import run_history
from simulation.plan import draw_plan
from support.asgi import ask, unchecked
from tocsin.commands.files import DB_FILE, KV_FILE, OBJECTS_FILE

Digests: TypeAlias = dict[str, str]
TARGETS = (
    "/api/prices",
    "/api/competition/leaderboard",
    "/api/competition/leaderboard?period=7d&limit=3",
    "/api/competition/leaderboard.csv",
    "/api/competition/trades?limit=20",
    "/api/competition/status",
    "/api/competition/allowlist",
    "/api/competition/tracked-tokens",
    "/api/competition/curves",
    "/api/competition/rounds",
    "/api/competition/rounds/current",
    "/api/admin/scheduler",
    "/.well-known/agent.json",
    "/llms.txt",
    "/openapi.json",
    "/api/docs",
    "/healthz",
    "/readyz",
    "/metrics",
    "/nothing",
)

DAYS = 1.0
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"


def ending_digests(directory: Path) -> Digests:
    """Return a digest of the rows of each table of each file, in an order that does not depend on their history."""
    found: Digests = {}
    for name in (DB_FILE, KV_FILE, OBJECTS_FILE):
        with closing(sqlite3.connect(directory / name)) as file:
            for (table,) in file.execute(TABLES).fetchall():
                rows = sorted(map(repr, file.execute(f'SELECT * FROM "{table}"')))
                found[f"{name}: {table}"] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return found


async def response_digests(app: ASGIApp) -> Digests:
    """Return a digest of the status, headers and body of each response; of the metrics, the status alone."""
    found: Digests = {}
    for target in TARGETS:
        answer = await ask(unchecked(app), target)
        whole = repr(answer.status)
        if target != "/metrics":
            whole = repr((answer.status, sorted(answer.headers.items()), answer.body))
        found[f"GET {target}"] = hashlib.sha256(whole.encode()).hexdigest()
    return found


def digests_of(seed: int) -> tuple[int, Digests]:
    ending: Digests = {}

    async def ask_everything(app: ASGIApp) -> None:
        ending.update(await response_digests(app))

    report = run_history(
        draw_plan(seed, DAYS),
        at_the_end=lambda directory: ending.update(ending_digests(directory)),
        at_calm=ask_everything,
    )
    broken = {"broken": str(report.violations[0])} if report.violations else {}
    return seed, {"trace": report.digest, **broken, **ending}


def write(path: Path, seeds: int, jobs: int) -> int:
    with ProcessPoolExecutor(jobs) as pool:
        found = {}
        for seed, digests in pool.map(digests_of, range(1, seeds + 1)):
            found[seed] = digests
            if seed % 20 == 0:
                print(f"{seed} of {seeds}", flush=True)
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 0


def compare(before: Path, after: Path) -> int:
    old, new = (json.loads(path.read_text()) for path in (before, after))
    both, differing = sorted(old.keys() & new.keys(), key=int), 0
    for seed in both:
        names = sorted(name for name in old[seed] | new[seed] if old[seed].get(name) != new[seed].get(name))
        differing += bool(names)
        if names:
            print(f"seed {seed}: {', '.join(names)}")
    print(f"{differing} of {len(both)} seeds differ")
    return 1 if differing or not both else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make digests", description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--compare", type=Path, nargs=2)
    given = parser.parse_args()
    if given.compare:
        return compare(*given.compare)
    if given.out is None:
        parser.error("name a file: OUT=before.json, or two to compare: COMPARE='before.json after.json'")
    return write(given.out, given.seeds, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
