"""Check that functions have at most 70 lines. A file above 600 is a warning, unless it has a reason here."""

import ast
import subprocess
import sys
from pathlib import Path

FILE_LINES_WARN = 600
FUNCTION_LINES_MAX = 70
# Files that are one concept, as long as the concept is. Each entry has its reason.
LONG_FILES = {
    "src/tocsin/scheduler/scheduler_do.py": "the object: a class has one file",
    "src/tocsin/settings.py": "one entry for each of the settings, and the parsers of their values",
    "tests/local/test_logs.py": "one log, from the line to the writer and the service",
    "tests/local/test_server.py": "one server, with each limit of a connection",
    "tests/scheduler/test_scheduler_do.py": "one object",
    "tests/swaps/test_feed.py": "one task, with each way in which a list can mislead it",
    "tests/swaps/test_position.py": "one position, compared with models of lists",
    "tests/swaps/test_sweep.py": "one task, with each way in which a list can mislead it",
    "tests/swaps/test_verify.py": "one verification, with each kind of answer",
    "tests/upstream/test_client.py": "one client, with each kind of answer",
    "tests/web/test_admin.py": "one room of routes",
    "tests/web/test_competition.py": "one room of routes",
}


def findings(path: Path) -> list[str]:
    text = path.read_text()
    found = []
    lines = text.count("\n")
    if lines > FILE_LINES_WARN and str(path) not in LONG_FILES:
        print(f"warning: {path} has {lines} lines: is it one concept? If so, add its reason to LONG_FILES")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                found.append(f"{path}:{node.lineno}: {node.name}() has {length} lines (at most {FUNCTION_LINES_MAX})")
    return found


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line for name in listed.stdout.split() if Path(name).exists() for line in findings(Path(name))]
    print("\n".join(found) or "sizes: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
