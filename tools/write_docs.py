"""Write the lists of the documentation that follow from the code: settings, commands, routes, metrics, events.

python tools/write_docs.py [--check]

A list stands between `<!-- made by make docs: NAME -->` and `<!-- end -->`. The meaning of an event stands on its page
only: events that are gone lose their line, new ones get one without a meaning, which a test refuses.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import typer

from tocsin import web
from tocsin.cli import app
from tocsin.settings import LOOKUP_PATHS, Settings, cadence, lookup_paths, time_slice
from tocsin.web.openapi import TAGS
from tocsin.web.route import operation_of

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src" / "tocsin", ROOT / "packages" / "holdfast" / "src")
SHARED = {"--url", "--host", "--port", "--help", "--json", "--reason", "--dry-run"}  # explained below the table
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
# Texts of the same form that are not events: ASGI messages, a name in an example, files.
NOT_EVENTS = {"http.request", "http.disconnect", "websocket.close", "slyfox.btc"}
MODULES = ("tocsin.", "holdfast.", "local.", "pyodide.", "workers.")
SUFFIXES = {"json", "sqlite", "py", "sql", "html", "svg", "css", "js", "lock", "sock", "txt", "md"}


def settings_list() -> list[str]:
    lines = []
    for field in fields(Settings):
        known = field.metadata["setting"]
        default = None if field.default in {None, ()} else shown(known.parse, field.default)
        example = "" if known.example == default else f"; such as `{known.example}`"
        facts = [f"`{default}`" if default else "none", *(["secret"] if known.secret else [])]
        facts.append("reload" if known.reload else "restart")
        lines.append(f"- `{known.name}` ({', '.join(facts)}): {known.text}{example}")
    return lines


def shown(parse: object, default: Any) -> str:
    if parse is lookup_paths:
        return LOOKUP_PATHS
    if parse in {cadence, time_slice}:
        return f"{default // 60_000}m"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def commands_list() -> list[str]:
    found = commands(typer.main.get_command(app), "tocsin")
    return [f"- `{usage}`: {text}" for usage, text in found]


def commands(group: Any, prefix: str) -> Iterator[tuple[str, str]]:  # typer has its own click
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        elif not command.hidden:
            parts = [part for each in command.params if (part := shown_parameter(each))]
            yield " ".join([prefix, name, *parts]), " ".join((command.help or "").split())


def shown_parameter(parameter: Any) -> str | None:
    if parameter.param_type_name == "option":
        return None if SHARED & set(parameter.opts) else f"[{parameter.opts[0]}]"
    name = (parameter.metavar or parameter.name).upper().strip("[].")
    shown = f"{name}…" if parameter.nargs < 0 else name
    return shown if parameter.required else f"[{shown}]"


def routes_list() -> list[str]:
    """The operations that the classes of `tocsin.web` declare, in the order of their chapters and paths."""
    modules = [import_module(f"tocsin.web.{module.name}") for module in iter_modules(web.__path__)]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    members = [member for each in classes for member in vars(each).values() if hasattr(member, "operation")]
    chapters = list(TAGS)
    operations = {operation_of(member).operation_id: operation_of(member) for member in members}.values()
    lines = []
    for each in sorted(operations, key=lambda each: (chapters.index(each.tag), each.path, each.method)):
        names = "&".join(f"{part.name}=" for part in each.parameters if part.place == "query")
        lines.append(f"- `{each.method} {each.path}{names and f'?{names}'}`: {each.summary}")
    return lines


def metrics_list() -> list[str]:
    """The families that `web/metrics.py` writes: its calls of `…Family`, and the pairs of a dict."""
    pairs: list[list[ast.expr]] = []
    for node in ast.walk(ast.parse((SOURCES[0] / "web" / "metrics.py").read_text())):
        if isinstance(node, ast.Dict):
            pairs += [value.elts for value in node.values if isinstance(value, ast.Tuple)]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Family"):
            pairs.append(node.args[:2])
    texts = [[part.value for part in pair if isinstance(part, ast.Constant)] for pair in pairs]
    found = {str(pair[0]): str(pair[1]) for pair in texts if len(pair) == 2}
    return [f"- `tocsin_{name}`: {text}" for name, text in sorted(found.items())]


def events_in_code() -> dict[str, set[str]]:
    """Every text of the form of an event, with the levels at which a logger writes it."""
    events: dict[str, set[str]] = {}
    for path in (path for source in SOURCES for path in source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for name in texts_of(node) if isinstance(node, ast.Constant) else ():
                events.setdefault(name, set())
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                level = "error" if node.func.attr == "exception" else node.func.attr
                for name in (name for part in ast.walk(node.args[0]) for name in texts_of(part)) if node.args else ():
                    events.setdefault(name, set()).add(level)
    return events


def texts_of(node: ast.AST) -> list[str]:
    return (
        [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_event(node.value) else []
    )


def is_event(value: str) -> bool:
    if not EVENT.fullmatch(value) or value in NOT_EVENTS:
        return False
    return value.split(".")[1] not in SUFFIXES and not value.startswith(MODULES)


def written_events(text: str) -> dict[str, str]:
    """The events of the page, and what it says of their levels."""
    found = re.findall(r"(?m)^- (`[^(]*) \(([^)]*)\):", text)
    return {name: level for names, level in found for name in names_in(names)}


def names_in(text: str) -> list[str]:
    return re.findall(r"`([a-z_]+\.[a-z_]+)`", text)


def events_page(text: str) -> str:
    """The page without events that are gone, and with a line for each new one."""
    known = events_in_code()
    kept = [
        line
        for line in text.splitlines()
        if not line.startswith("- `") or set(names_in(line.partition("(")[0])) & set(known)
    ]
    added = [
        f"- `{name}` ({', '.join(sorted(known[name])) or 'stream only'}):"
        for name in sorted(set(known) - set(written_events(text)))
    ]
    return "\n".join(kept + added) + "\n"


def filled(text: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- made by make docs: {name} -->\n", "\n<!-- end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + "\n" + "\n".join(lines) + "\n" + end + after


def pages() -> dict[Path, str]:
    """Each page with lists, as it should be."""
    docs = ROOT / "docs"
    lists = [
        ("settings.md", "settings", settings_list()),
        ("commands.md", "commands", commands_list()),
        ("api.md", "routes", routes_list()),
        ("api.md", "metrics", metrics_list()),
    ]
    made: dict[Path, str] = {}
    for page, name, lines in lists:
        made[docs / page] = filled(made.get(docs / page) or (docs / page).read_text(), name, lines)
    return made | {docs / "events.md": events_page((docs / "events.md").read_text())}


def main() -> int:
    """Write what is out of date; with --check, only say so, and fail."""
    made = {page: text for page, text in pages().items() if page.read_text() != text}
    for page, text in made.items():
        print(f"{page.relative_to(ROOT)} was out of date")
        if "--check" not in sys.argv:
            page.write_text(text)
    return 1 if made and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
