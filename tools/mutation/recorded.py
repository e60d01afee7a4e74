"""Record which tests run which lines, and how long they take, in `.mutation/` per test file until it changes."""

import ast
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "src" / "tocsin"
RUNTIME = ROOT / "packages" / "holdfast" / "src" / "holdfast"
KEPT = ROOT / ".mutation"


def sources() -> list[Path]:
    """The modules that may be mutated."""
    return sorted(path for source in (SERVICE, RUNTIME) for path in source.rglob("*.py"))


def name_of(path: Path) -> str:
    """The path of a module in the tree. It stands for the module in what is kept."""
    return str(path.relative_to(ROOT))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@dataclass(slots=True)
class Recording:
    """What a run of the tests has shown."""

    tests: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)  # without a mutant: they show nothing about one

    def add(self, kept: Path) -> None:
        stored = json.loads(kept.read_text())
        self.seconds.update(stored["seconds"])
        self.failed.update(stored.get("failed", ()))
        for name, (_, lines) in stored["lines"].items():
            for line, tests in lines.items():
                self.tests[name][int(line)].update(tests)


def place_of(test_file: Path) -> Path:
    return KEPT / "recorded" / (str(test_file.relative_to(ROOT)).replace("/", "__") + ".json")


def is_current(test_file: Path, tests: Iterable[str]) -> bool:
    """Whether the test file and all modules that it runs are unchanged, and all of these tests were run."""
    place = place_of(test_file)
    if not place.exists():
        return False
    stored = json.loads(place.read_text())
    return (
        stored["digest"] == digest(test_file)
        and stored["seconds"].keys() >= set(tests)
        and all((ROOT / name).exists() and digest(ROOT / name) == known for name, (known, _) in stored["lines"].items())
    )


class Uses:
    """Where the functions of all modules use a name: a changed constant requires a run of these lines."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self._derived: dict[str, set[str]] = defaultdict(set)
        for path in paths:
            self._read(name_of(path), ast.parse(path.read_text()))

    def _read(self, name: str, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for each in ast.walk(node):
                    if used := _name(each):
                        self._places[used].add((name, getattr(each, "lineno", node.lineno)))
                for each in ast.walk(node.args):  # a default is used by the whole function
                    if used := _name(each):
                        self._places[used] |= {(name, line) for line in _lines(node)}
        for statement in _outer_statements(tree):
            made = _assigned(statement)
            for each in ast.walk(statement):
                used = _name(each)
                if used and made and used != made:
                    self._derived[used].add(made)

    def of(self, path: Path, line: int) -> set[tuple[str, int]]:
        """The lines that use what this line of a module or class assigns, directly or through another constant."""
        tree = ast.parse(path.read_text())
        name = name_of(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= node.body[0].lineno:
                return {(name, each) for each in _lines(node)}
        names = self.names_at(path, line)
        names |= {  # creating an object uses the defaults of its fields
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
        }
        for _ in range(3):
            names |= {other for each in names for other in self._derived[each]}
        return {place for each in names for place in self._places[each]}

    @staticmethod
    def names_at(path: Path, line: int) -> set[str]:
        """The constants and fields that are assigned on this line of a module or a class."""
        made = [
            _assigned(each)
            for each in _outer_statements(ast.parse(path.read_text()))
            if each.lineno <= line <= (each.end_lineno or each.lineno)
        ]
        return {each for each in made if each}


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def statement_lines(path: Path, line: int) -> range:
    """All lines of the statement at this line, because a line in its middle may have no code of its own."""
    tree = ast.parse(path.read_text())
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not around:
        return range(line, line + 1)
    smallest = max(around, key=lambda node: node.lineno)
    body = getattr(smallest, "body", None)
    return range(smallest.lineno, body[0].lineno if body else (smallest.end_lineno or smallest.lineno) + 1)


def _outer_statements(tree: ast.Module) -> list[ast.stmt]:
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    return [each for body in bodies for each in body if isinstance(each, ast.Assign | ast.AnnAssign)]


def _assigned(statement: ast.stmt) -> str | None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return _name(target) if target else None


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None
