"""Checks JSON values against JSON Schemas, for the features that the API's schemas use."""

import json
import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
KNOWN = {
    *("$ref", "anyOf", "const", "default", "description", "enum", "exclusiveMinimum", "items", "maximum", "minimum"),
    *("pattern", "title", "type"),
    *("properties", "patternProperties", "additionalProperties", "propertyNames", "required"),
}


def resolve(document: Any, reference: str) -> Any:
    """Return the target of a `$ref`; raises KeyError if it does not exist."""
    for step in reference.removeprefix("#/").split("/"):
        document = document[step]
    return document


def references(value: Any) -> Iterator[str]:
    """All `$ref`s in a document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def violation(document: Any, schema: Any, value: Any) -> str | None:
    """The first place where a value does not fit a schema of the document, and why; None if it fits."""
    wrong = next(_violations(document, schema, value), None)
    return None if wrong is None else f"${wrong}"


def _violations(document: Any, schema: Any, value: Any) -> Iterator[str]:
    """Each is a place in the value, and what is wrong there."""
    if "$ref" in schema:
        yield from _violations(document, resolve(document, schema["$ref"]), value)
        return
    assert schema.keys() <= KNOWN, f"this checker has no rule for {schema.keys() - KNOWN}"
    for why in _unlike(schema, value):
        yield f": {json.dumps(value)[:80]} is {why}"
    if "anyOf" in schema:
        tries = [next(_violations(document, one, value), None) for one in schema["anyOf"]]
        found = [wrong for wrong in tries if wrong is not None]
        if len(found) == len(tries):
            yield f": fits none of {len(tries)}: {min(found, key=len)}"
    if type(value) is dict:
        yield from _of_fields(document, schema, value)
    if type(value) is list and "items" in schema:
        for index, each in enumerate(value):
            yield from (f"[{index}]{wrong}" for wrong in _violations(document, schema["items"], each))


def _unlike(schema: Any, value: Any) -> Iterator[str]:
    """What the value is not, by the keywords about a single value."""
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not any(type(value) in TYPES[name] for name in names):  # a bool is not an int here
            yield f"not of type {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"not one of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"not {schema['const']}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"not {schema['pattern']}"
    if isinstance(value, int | float):
        if value < schema.get("minimum", value):
            yield f"below {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"above {schema['maximum']}"
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            yield f"not above {schema['exclusiveMinimum']}"


def _of_fields(document: Any, schema: Any, value: dict[str, Any]) -> Iterator[str]:
    yield from (f": {name} is missing" for name in schema.get("required", ()) if name not in value)
    others = schema.get("additionalProperties", True)
    for name, field in value.items():
        fitting = [one for text, one in schema.get("patternProperties", {}).items() if re.search(text, name)]
        if name in schema.get("properties", {}):
            fitting.append(schema["properties"][name])
        if not fitting and others is False:
            yield f".{name}: there is no such field"
        yield from (f".{name}{wrong}" for wrong in _violations(document, schema.get("propertyNames", {}), name))
        for one in fitting or ([others] if isinstance(others, dict) else []):
            yield from (f".{name}{wrong}" for wrong in _violations(document, one, field))
