"""Checks JSON values against JSON Schemas, as far as the API's schemas go."""

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
    "$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum", "exclusiveMinimum",
    "items", "maximum", "minimum", "pattern", "patternProperties", "properties", "propertyNames", "required",
    "title", "type",
}  # fmt: skip


def resolve(document: Any, reference: str) -> Any:
    """What a `$ref` leads to; raises KeyError when it leads nowhere."""
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


def violations(document: Any, schema: Any, value: Any, at: str = "$") -> list[str]:
    """Every place where a value does not fit a schema of the document; empty when it fits."""
    assert schema.keys() <= KNOWN, f"{at}: this checker has no rule for {schema.keys() - KNOWN}"
    if "$ref" in schema:
        return violations(document, resolve(document, schema["$ref"]), value, at)
    wrong = [*_wrong_type(schema, value, at), *_wrong_value(schema, value, at)]
    if "anyOf" in schema:
        tries = [violations(document, one, value, at) for one in schema["anyOf"]]
        if all(tries):
            wrong.append(f"{at}: fits none of {len(tries)}: {min(tries, key=len)}")
    if isinstance(value, dict) and not wrong:
        wrong += _wrong_fields(document, schema, value, at)
    if isinstance(value, list) and not wrong:
        for index, item in enumerate(value):
            wrong += violations(document, schema.get("items", {}), item, f"{at}[{index}]")
    return wrong


def _wrong_type(schema: Any, value: Any, at: str) -> Iterator[str]:
    names = schema.get("type", list(TYPES))
    names = [names] if isinstance(names, str) else names
    is_bool = isinstance(value, bool)  # in Python it is an int too
    if not any(isinstance(value, TYPES[name]) and is_bool == (name == "boolean") for name in names):
        yield f"{at}: {json.dumps(value)[:80]} is not of type {' or '.join(names)}"


class _Shown:
    """A value in a sentence; most are never shown."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return json.dumps(self._value)[:80]


def _wrong_value(schema: Any, value: Any, at: str) -> Iterator[str]:
    shown = _Shown(value)
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {shown} is not one of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {shown} is not {schema['const']}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{at}: {shown} does not match {schema['pattern']}"
    if isinstance(value, int | float):
        if "minimum" in schema and value < schema["minimum"]:
            yield f"{at}: {shown} is below {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            yield f"{at}: {shown} is above {schema['maximum']}"
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            yield f"{at}: {shown} is not above {schema['exclusiveMinimum']}"


def _wrong_fields(document: Any, schema: Any, value: dict[str, Any], at: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    others = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: {name} is missing"
    for name, field in value.items():
        place = f"{at}.{name}"
        yield from violations(document, schema.get("propertyNames", {}), name, place)
        fitting = [one for pattern, one in patterns.items() if re.search(pattern, name)]
        if name in properties:
            fitting.append(properties[name])
        if not fitting and others is False:
            yield f"{place}: there is no such field"
        elif not fitting and isinstance(others, dict):
            fitting.append(others)
        for one in fitting:
            yield from violations(document, one, field, place)
