"""Check that no regular expression has an atomic group or a possessive quantifier: Python 3.11.2 gets them wrong."""

import ast
import re
import sys
from pathlib import Path

SOURCES = (Path("src"), Path("packages"))
NOT_SYNTAX = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)  # escapes and character classes
REFUSED = re.compile(r"[*+?}]\+|\(\?>")


def findings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not any(isinstance(node, ast.Import) and node.names[0].name == "re" for node in ast.walk(tree)):
        return []
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        f"{path}:{node.lineno}: {found[0]} is not for early Pythons 3.11; write a pattern that matches in one way only"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in docstrings
        if (found := REFUSED.search(NOT_SYNTAX.sub("_", _text(node.value))))
    ]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def main() -> int:
    found = [line for source in SOURCES for path in sorted(source.rglob("*.py")) for line in findings(path)]
    print("\n".join(found) or "patterns: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
