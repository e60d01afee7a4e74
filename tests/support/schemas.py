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
ABOUT_FIELDS = {"properties", "patternProperties", "additionalProperties", "propertyNames", "required"}
KNOWN = {
    *("$ref", "anyOf", "const", "default", "description", "enum", "exclusiveMinimum", "items", "maximum", "minimum"),
    *("pattern", "title", "type", *ABOUT_FIELDS),
}

Check: TypeAlias = Callable[[Any], str | None]  # the place in the value, and what is wrong there


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
    if id(document) not in _checkers:
        _checkers[id(document)] = _Checker(document)
    wrong = _checkers[id(document)].of(schema)(value)
    return None if wrong is None else f"${wrong}"


class _Checker:
    """Compiles each schema of a document into a function, once."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._made: dict[int, tuple[Any, Check]] = {}  # by the identity of the schema, which is kept

    def of(self, schema: Any) -> Check:
        number = id(schema)
        if number not in self._made:
            assert schema.keys() <= KNOWN, f"this checker has no rule for {schema.keys() - KNOWN}"

            def later(value: Any) -> str | None:  # for a schema that contains itself
                return self._made[number][1](value)

            self._made[number] = schema, later
            self._made[number] = schema, self._make(schema)
        return self._made[number][1]

    def _make(self, schema: Any) -> Check:
        if "$ref" in schema:
            return self.of(resolve(self._document, schema["$ref"]))
        checks = list(_value_checks(schema))
        if "anyOf" in schema:
            checks.append(_any_of([self.of(one) for one in schema["anyOf"]]))
        if not ABOUT_FIELDS.isdisjoint(schema):
            checks.append(self._fields(schema))
        if "items" in schema:
            checks.append(_items(self.of(schema["items"])))
        return checks[0] if len(checks) == 1 else _all_of(checks)

    def _fields(self, schema: Any) -> Check:
        properties = {name: self.of(one) for name, one in schema.get("properties", {}).items()}
        patterns = [(re.compile(text), self.of(one)) for text, one in schema.get("patternProperties", {}).items()]
        others, required = schema.get("additionalProperties", True), schema.get("required", ())
        of_others = self.of(others) if isinstance(others, dict) else _all_of([])
        of_names = self.of(schema.get("propertyNames", ANYTHING))

        def check_field(name: str, field: Any) -> str | None:
            fitting = [check for pattern, check in patterns if pattern.search(name)]
            if name in properties:
                fitting.append(properties[name])
            if not fitting and others is False:
                return ": there is no such field"
            return of_names(name) or next((wrong for each in fitting or [of_others] if (wrong := each(field))), None)

        def check(value: Any) -> str | None:
            if type(value) is not dict:
                return None
            missing = next((f": {name} is missing" for name in required if name not in value), None)
            wrong = (f".{name}{found}" for name, field in value.items() if (found := check_field(name, field)))
            return missing or next(wrong, None)

        return check


def _value_checks(schema: Any) -> Iterator[Check]:
    def refused_if(is_wrong: Callable[[Any], Any], why: str) -> Check:
        return lambda value: f": {json.dumps(value)[:80]} is {why}" if is_wrong(value) else None

    def number_refused_if(is_wrong: Callable[[Any], bool], why: str) -> Check:
        return refused_if(lambda value: isinstance(value, int | float) and is_wrong(value), why)

    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        types = {each for name in names for each in TYPES[name]}  # a bool is not an int here
        yield refused_if(lambda value: type(value) not in types, f"not of type {' or '.join(names)}")
    if "enum" in schema:
        yield refused_if(lambda value: value not in schema["enum"], f"not one of {schema['enum']}")
    if "const" in schema:
        yield refused_if(lambda value: value != schema["const"], f"not {schema['const']}")
    if "pattern" in schema:
        pattern = re.compile(schema["pattern"])
        yield refused_if(lambda value: isinstance(value, str) and not pattern.search(value), f"not {pattern.pattern}")
    if "minimum" in schema:
        yield number_refused_if(lambda value: value < schema["minimum"], f"below {schema['minimum']}")
    if "maximum" in schema:
        yield number_refused_if(lambda value: value > schema["maximum"], f"above {schema['maximum']}")
    if "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"]
        yield number_refused_if(lambda value: value <= least, f"not above {least}")


def _all_of(checks: list[Check]) -> Check:
    def check(value: Any) -> str | None:
        for each in checks:
            if (wrong := each(value)) is not None:
                return wrong
        return None

    return check


def _any_of(checks: list[Check]) -> Check:
    def check(value: Any) -> str | None:
        tries = []
        for each in checks:
            if (wrong := each(value)) is None:
                return None
            tries.append(wrong)
        return f": fits none of {len(tries)}: {min(tries, key=len)}"

    return check


def _items(item: Check) -> Check:
    def check(value: Any) -> str | None:
        if type(value) is not list:
            return None
        return next((f"[{index}]{wrong}" for index, each in enumerate(value) if (wrong := item(each))), None)

    return check


ANYTHING: dict[str, Any] = {}
_checkers: dict[int, _Checker] = {}
