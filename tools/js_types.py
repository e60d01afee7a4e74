"""Write the types of the pages' JavaScript from the service's shapes, as JSDoc that no page loads.

    python tools/js_types.py

An editor that understands JSDoc then knows the fields of the service's responses:
`@param {import("./types.js").Board} board`.
"""

import json
import sys
from pathlib import Path
from textwrap import wrap
from typing import Any

from tocsin.board.types import Board
from tocsin.prices.price import PriceHistory, PriceList
from tocsin.rounds.round import CurrentRounds, RoundList
from tocsin.scheduler.types import (
    AuditList,
    DayList,
    RefreshResult,
    RunDetail,
    RunList,
    SchedulerEvent,
    SchedulerOverview,
)
from tocsin.shape import SCHEMA_PREFIX, SnakeShape, schemas_of
from tocsin.swaps.types import RefusalPage, TradePage
from tocsin.web.response import ErrorBody

FILE = Path(__file__).parents[1] / "src" / "tocsin" / "web" / "static" / "js" / "types.js"
SHAPES: tuple[type[SnakeShape], ...] = (
    SchedulerOverview,
    RunList,
    RunDetail,
    DayList,
    RefusalPage,
    PriceHistory,
    SchedulerEvent,
    RefreshResult,
    AuditList,
    Board,
    TradePage,
    PriceList,
    CurrentRounds,
    RoundList,
    ErrorBody,
)
# Shapes with additional fields, which the schema cannot name.
OPEN = {shape.__name__ for shape in SHAPES if shape.MERGED}
HEAD = """\
/**
 * What the service sends, as types for editors. `make types` writes this file: do not edit it.
 * No page loads it. Use a type as `@param {import("./types.js").Board} board`.
 */
"""
TAIL = "export {}; // makes this a module: without it, no other module can import a type\n"
WIDTH = 110
NAMES = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


def types_js() -> str:
    """The text of the file."""
    schemas = schemas_of(SHAPES)
    return "\n".join([HEAD, *(typedef(name, schema) for name, schema in schemas.items()), TAIL])


def typedef(name: str, schema: Any) -> str:
    """One shape as a comment."""
    lines = [line for part in schema["description"].splitlines() for line in wrap(part, WIDTH) or [""]]
    lines += ["", "@typedef {{"]
    for field, value in schema["properties"].items():
        mark = "" if field in schema["required"] else "?"
        lines.append(f"  {field}{mark}: {js_type(value)},")
    if name in OPEN or "patternProperties" in schema:
        lines.append("  [name: string]: any,")
    lines.append(f"}}}} {name}")
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def js_type(schema: Any) -> str:
    """A JSON Schema as a JSDoc type."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(f"{SCHEMA_PREFIX}/")
    if "anyOf" in schema:
        return " | ".join(map(js_type, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if schema["type"] == "array":
        item = js_type(schema["items"])
        return f"({item})[]" if " " in item else f"{item}[]"
    if schema["type"] == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {js_type(values) if isinstance(values, dict) else 'any'}>"
    return NAMES[schema["type"]]


def main() -> int:
    FILE.write_text(types_js())
    print(f"{FILE.name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
