"""Checks JSON values against JSON Schemas, for the features that the API's schemas use."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

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
ABOUT_VALUES = {"enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum"}
ABOUT_FIELDS = {"properties", "patternProperties", "additionalProperties", "propertyNames", "required"}

Fits: TypeAlias = Callable[[Any], bool]


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
    is_bool = isinstance(value, bool)  # in Python a bool is also an int
    if not any(isinstance(value, TYPES[name]) and is_bool == (name == "boolean") for name in names):
        yield f"{at}: {json.dumps(value)[:80]} is not of type {' or '.join(names)}"


class _Shown:
    """A value in a message, formatted lazily: most are never shown."""

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


class _FittingValues:
    """Compiles each schema of a document into a function, once: most values fit and need no explanation."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._made: dict[int, tuple[Any, Fits]] = {}  # by the identity of the schema, which is kept

    def of(self, schema: Any) -> Fits:
        number = id(schema)
        if number not in self._made:
            assert schema.keys() <= KNOWN, f"this checker has no rule for {schema.keys() - KNOWN}"

            def later(value: Any) -> bool:  # for a schema that contains itself
                return self._made[number][1](value)

            self._made[number] = schema, later
            self._made[number] = schema, self._make(schema)
        return self._made[number][1]

    def _make(self, schema: Any) -> Fits:
        if "$ref" in schema:
            return self.of(resolve(self._document, schema["$ref"]))
        rules: list[Fits] = []
        if "type" in schema:
            names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
            types = frozenset(each for name in names for each in TYPES[name])
            rules.append(lambda value: type(value) in types)  # a bool is not an int here
        if not ABOUT_VALUES.isdisjoint(schema):
            rules.append(lambda value: next(_wrong_value(schema, value, ""), None) is None)
        if "anyOf" in schema:
            choices = [self.of(one) for one in schema["anyOf"]]
            rules.append(lambda value: any(fits(value) for fits in choices))
        if not ABOUT_FIELDS.isdisjoint(schema):
            rules.append(self._fields(schema))
        if "items" in schema:
            item = self.of(schema["items"])
            rules.append(lambda value: type(value) is not list or all(map(item, value)))
        return rules[0] if len(rules) == 1 else lambda value: all(rule(value) for rule in rules)

    def _fields(self, schema: Any) -> Fits:
        properties = {name: self.of(one) for name, one in schema.get("properties", {}).items()}
        patterns = [(re.compile(text), self.of(one)) for text, one in schema.get("patternProperties", {}).items()]
        others, required = schema.get("additionalProperties", True), schema.get("required", ())
        of_others = self.of(others) if isinstance(others, dict) else lambda _: others is not False
        name_fits = self.of(schema.get("propertyNames", ANYTHING))

        def field_fits(name: str, field: Any) -> bool:
            fitting = [fits for pattern, fits in patterns if pattern.search(name)]
            if name in properties:
                fitting.append(properties[name])
            return name_fits(name) and all(fits(field) for fits in fitting or (of_others,))

        def fits(value: Any) -> bool:
            if type(value) is not dict:
                return True
            return all(name in value for name in required) and all(
                field_fits(name, field) for name, field in value.items()
            )

        return fits


ANYTHING: dict[str, Any] = {}
_documents: dict[int, _FittingValues] = {}


def fits(document: Any, schema: Any, value: Any) -> bool:
    """Return whether `violations` finds nothing; ten times as fast."""
    known = _documents.get(id(document))
    if known is None:
        known = _documents[id(document)] = _FittingValues(document)
    return known.of(schema)(value)
