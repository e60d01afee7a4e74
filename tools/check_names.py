"""Check that each name stands for one thing: no two classes or modules of the package share a name.

The two platforms implement the same bindings: a name may be in platform/local and in platform/cloudflare.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tocsin"
TWINS = (PACKAGE / "platform" / "local", PACKAGE / "platform" / "cloudflare")
EXEMPT = {"__init__", "__main__"}


def definitions() -> dict[str, list[Path]]:
    """Where each class and each module is defined."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.stem not in EXEMPT:
            found[f"module {path.stem}"].append(path)
        for node in ast.parse(path.read_text()).body:  # a nested class is known by both names
            if isinstance(node, ast.ClassDef):
                found[f"class {node.name}"].append(path)
    return found


def are_twins(paths: list[Path]) -> bool:
    """Whether there is one on each platform and none elsewhere."""
    return [sum(path.is_relative_to(twin) for path in paths) for twin in TWINS] == [1, 1] and len(paths) == 2


def main() -> int:
    findings = [
        f"{name} is defined more than once: {', '.join(str(path.relative_to(ROOT)) for path in paths)}"
        for name, paths in definitions().items()
        if len(paths) > 1 and not are_twins(paths)
    ]
    print("\n".join(findings) or "names: fine")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
