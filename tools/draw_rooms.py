"""Draw the rooms and the imports between them: `make rooms` writes docs/rooms.svg.

The arrows and dots come from the import statements, so `make check` fails while the picture is out of date. An arrow
that others imply is left out: the dots show every import.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "rooms.svg"
SERVICE = ROOT / "src" / "tocsin"
SOURCES = (SERVICE, ROOT / "packages/holdfast/src/holdfast", ROOT / "packages/stacks-simulator/src/stacks_simulator")
BASE = "settings"  # the box of the small modules that every room may use
# The place of each box: a row for each layer, and a column. A new room needs its place here.
PLACES = {
    "cli": (0, 1.0),
    "service": (0, 2.0),
    "worker": (0, 0.0),
    "commands": (1, 3.4),
    "app": (1, 1.5),
    "cloudflare": (1, 0.0),
    "local": (2, 3.0),
    "web": (2, 1.5),
    "board": (3, 1.0),
    "rounds": (3, 2.0),
    "swaps": (4, 2.0),
    "prices": (4, 1.0),
    "scheduler": (5, 1.0),
    "upstream": (5, 2.0),
    BASE: (6, 1.5),
    "stacks_simulator": (7, 4.0),
    "holdfast.testing": (6, 3.0),
    "holdfast.local": (7, 3.0),
    "holdfast.cloudflare": (7, 0.0),
    "holdfast": (8, 1.5),
}
# Sizes in pixels.
COLUMN, ROW, BOX, HEIGHT, CELL = 116, 62, 104, 30, 17
MATRIX = (728, 130)  # its upper left corner
SIZE = (MATRIX[0] + CELL * len(PLACES) + 20, 9 * ROW)
STYLE = """
text{font:12px system-ui,sans-serif;fill:#222;text-anchor:middle}.small{font-size:11px}.name{text-anchor:end}
.up{text-anchor:start}.back{fill:#fff}.box{fill:#eef2f7;stroke:#8a99ad}.package{fill:#e6f1ea;stroke:#6f9c80}
path{fill:none;stroke:#66758a;stroke-width:1.3}.head{fill:#66758a;stroke:none}.cell{fill:#f4f6f9}.dot{fill:#2f5d8c}
@media(prefers-color-scheme:dark){text{fill:#ddd}.back{fill:#16181d}.box{fill:#252b35;stroke:#66758a}
.package{fill:#1f3027;stroke:#5c8a6d}path{stroke:#8a99ad}.head{fill:#8a99ad}.cell{fill:#21252c}.dot{fill:#7fb2e5}}
"""

Imports = dict[str, set[str]]


def box_of(module: str) -> str | None:
    """The box of a module of ours, or None."""
    parts = module.split(".")
    if parts[0] == "tocsin" and len(parts) > 1 and not parts[1].startswith("__"):
        is_base = (SERVICE / f"{parts[1]}.py").exists() and parts[1] not in PLACES
        return BASE if is_base else parts[1] if _exists(SERVICE / parts[1]) else None
    if parts[0] == "holdfast":
        return ".".join(parts[:2]) if parts[1:2] in (["local"], ["cloudflare"], ["testing"]) else "holdfast"
    return parts[0] if parts[0] == "stacks_simulator" else None


def _exists(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").exists()


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def imports() -> Imports:
    """Which boxes each box imports from."""
    found: Imports = {}
    for source in SOURCES:
        for file in sorted(source.rglob("*.py")):
            if file == source / "__init__.py":
                continue  # the public names of a package: they need what is in it
            name = ".".join(file.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__")
            if box := box_of(name):
                found.setdefault(box, set()).update(filter(None, map(box_of, imported(file))))
    if missing := found.keys() - PLACES.keys():
        sys.exit(f"tools/draw_rooms.py: give a place to {', '.join(sorted(missing))}")
    return {box: others - {box} for box, others in found.items()}


def reduced(found: Imports) -> list[tuple[str, str]]:
    """The imports that no longer chain of imports implies."""

    def reached(box: str) -> set[str]:
        return found[box].union(*map(reached, found[box]))

    return [
        (box, other)
        for box in PLACES
        for other in sorted(found[box])
        if not any(other in reached(between) for between in found[box])
    ]


def centre(box: str) -> tuple[float, float]:
    row, column = PLACES[box]
    return 20 + BOX / 2 + column * COLUMN, 12 + HEIGHT / 2 + row * ROW


def drawn_box(box: str) -> str:
    x, y = centre(box)
    name = box
    if box == BASE:
        modules = {path.stem for path in SERVICE.glob("*.py") if not path.stem.startswith("__")}
        name = " · ".join(sorted({*(modules - PLACES.keys()), BASE}))
    width = BOX + (COLUMN * 1.6 if box == BASE else 10 if "." in box or "_" in box else 0)
    kind = "package" if box.startswith(("holdfast", "stacks")) else "box"
    left, top = x - width / 2, y - HEIGHT / 2
    return (
        f'<rect class="{kind}" rx="5" x="{left:g}" y="{top:g}" width="{width:g}" height="{HEIGHT}"/>'
        f'<text class="{"small" if width > BOX else ""}" x="{x:g}" y="{y + 4:g}">{name}</text>'
    )


def arrow(box: str, other: str) -> str:
    """From the lower edge of a box to the upper edge of a lower one, or between neighbors in a row."""
    (x, y), (to_x, to_y) = centre(box), centre(other)
    if y == to_y:
        side = 1 if to_x > x else -1
        x, to_x = x + side * BOX / 2, to_x - side * BOX / 2
        back = to_x - side * 7
        return _line(f"M{x:g},{y:g}L{back:g},{y:g}", f"{to_x:g},{y:g} {back:g},{y - 4:g} {back:g},{y + 4:g}")
    if other == BASE:  # it is wide
        to_x = min(max(x, to_x - COLUMN), to_x + COLUMN)
    y, to_y = y + HEIGHT / 2, to_y - HEIGHT / 2
    bend = min(40.0, (to_y - y) / 2)
    back = to_y - 7
    line = f"M{x:g},{y:g}C{x:g},{y + bend:g} {to_x:g},{to_y - bend:g} {to_x:g},{back:g}"
    return _line(line, f"{to_x:g},{to_y:g} {to_x - 4:g},{back:g} {to_x + 4:g},{back:g}")


def _line(path: str, head: str) -> str:
    return f'<path d="{path}"/><polygon class="head" points="{head}"/>'


def matrix(found: Imports) -> Iterator[str]:
    """A line for each box, a column for each box that it may import from."""
    left, top = MATRIX
    for number, box in enumerate(PLACES):
        at, name = CELL * number + CELL / 2 + 4, "settings …" if box == BASE else box
        yield f'<text class="name small" x="{left - 6}" y="{top + at:g}">{name}</text>'
        yield f'<text class="up small" transform="translate({left + at:g},{top - 6}) rotate(-90)">{name}</text>'
        for column, other in enumerate(PLACES):
            x, y = left + CELL * column, top + CELL * number
            yield f'<rect class="cell" x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}"/>'
            if other in found[box]:
                yield f'<circle class="dot" cx="{x + 8}" cy="{y + 8}" r="4"/>'
    yield (
        f'<text class="small" x="{left + CELL * len(PLACES) / 2:g}" y="{top + CELL * len(PLACES) + 22}">'
        "a dot: the row imports from the column</text>"
    )


def picture() -> str:
    found = imports()
    width, height = SIZE
    label = "The rooms of Tocsin and the imports between them"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        *(arrow(box, other) for box, other in reduced(found)),
        *map(drawn_box, PLACES),
        *matrix(found),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(picture())
    print(f"{FILE.relative_to(ROOT)}: written")
