"""Report unused code of the packages, except what is listed here with its reason. An unneeded entry is an error."""

import ast
import functools
import sys
from collections import defaultdict
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[1]
PATHS = (
    "src",
    "packages/holdfast/src",
    "packages/stacks-simulator/src",
    "packages/holdfast/examples",
    "examples",
    "deploy/cloudflare/src/worker.py",
    "deploy/cloudflare/bundle.py",
)
CALLED = ["@app.command", "@app.callback", "@local", "@get", "@post"]  # by typer, and by the routes

CLOUDFLARE = "Cloudflare's storage and namespace have it, so objects may use it, and the contract tests do"
JAVASCRIPT = "Workers in JavaScript call it"
UVICORN = "uvicorn calls or reads it"
STARLETTE = "Starlette reads it"
PYTEST = "pytest calls it"
TYPER = "typer reads it"
WORKERS = "programs that were written for Cloudflare use it"
JOBS = "callers of an object with jobs use it"
METRIC = "web/metrics.py reads all counters of the runtime as fields"
EXCEPTIONS = {
    "delete_all": CLOUDFLARE,
    "transaction_sync": CLOUDFLARE,
    "new_unique_id": CLOUDFLARE,
    "last_row_id": CLOUDFLARE,
    "database_size": CLOUDFLARE,
    "once": "tasks of a deployment's own use it: docs/tasks.md",
    "refreshNow": JAVASCRIPT,
    "pauseUntil": JAVASCRIPT,
    "data_received": UVICORN,
    "should_exit": UVICORN,
    "capture_signals": UVICORN,
    "background": STARLETTE,
    "pytest_addoption": PYTEST,
    "pytest_configure": PYTEST,
    "pytest_pyfunc_call": PYTEST,
    "install": WORKERS,
    "_ctx": WORKERS,
    "getByName": WORKERS,
    "unschedule": JOBS,
    "history": JOBS,
    "collect": "the job of this name calls it",
    "_clock_resolution": "asyncio's loop reads it",
    "jump": "tests set the clock with it",
    "__signature__": TYPER,
    "alarms_rung": METRIC,
    "alarms_failed": METRIC,
    "alarms_exhausted": METRIC,
    "objects_reset": METRIC,
    "__getattr__": "Python calls it, for a module too",
    "mtime": "tarfile writes it",
    "get_cached_token_price": "the reference has it: one price, where get_cached_token_prices returns many",
}


@functools.cache
def shape_lines() -> dict[Path, set[int]]:
    """The lines of the classes that are shapes, in each file."""
    classes = [
        (file, node)
        for file in sorted(path for source in PATHS[:3] for path in (ROOT / source).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    shapes = {"DataClassDictMixin", "BaseConfig"}
    lines = defaultdict[Path, set[int]](set)
    for _ in range(4):  # the depth of the tree of shapes
        for file, node in classes:
            if shapes.intersection(map(ast.unparse, node.bases)):
                shapes.add(node.name)
                lines[file].update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def main() -> int:
    vulture = Vulture(ignore_decorators=CALLED)
    vulture.scavenge([str(ROOT / path) for path in PATHS])
    unused = [
        item
        for item in vulture.get_unused_code(min_confidence=60)
        # Fields of a shape are written to JSON, and mashumaro reads the options.
        if not (item.typ == "variable" and item.first_lineno in shape_lines()[Path(item.filename)])
    ]
    findings = [
        f"{Path(item.filename).relative_to(ROOT)}:{item.first_lineno}: the {item.typ} {item.name} is unused"
        for item in unused
        if item.name not in EXCEPTIONS
    ]
    names = {item.name for item in unused}
    findings += [f"tools/check_dead_code.py: {name} is used" for name in EXCEPTIONS if name not in names]
    print("\n".join(findings) or "dead code: none")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
