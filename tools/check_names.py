"""Check that each name stands for one thing in its room: no two classes of a directory share a name."""

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src", *sorted(ROOT.glob("packages/*/src")))


def definitions() -> dict[tuple[Path, str], list[Path]]:
    """Where each class of each directory is defined. The file system keeps module names apart."""
    found: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in sorted(path for source in SOURCES for path in source.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:  # a nested class is known by both names
            if isinstance(node, ast.ClassDef):
                found[path.parent, node.name].append(path)
    return found


def main() -> int:
    findings = [
        f"class {name} is defined more than once: {', '.join(str(path.relative_to(ROOT)) for path in paths)}"
        for (_, name), paths in definitions().items()
        if len(paths) > 1
    ]
    print("\n".join(findings) or "names: fine")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
