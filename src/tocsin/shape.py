"""What all shapes share: JSON in both directions, and JSON Schema.

A shape is a frozen dataclass with slots. Its JSON has camelCase names (`Shape`) or the field names unchanged
(`SnakeShape`, for the parts of the API that the site published that way). mashumaro generates the conversion code on
first use.
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mashumaro import DataClassDictMixin
from mashumaro.config import BaseConfig
from mashumaro.exceptions import InvalidFieldValue, MissingField

from holdfast.types import JSON
from tocsin.errors import MalformedShape
from tocsin.text import camel_case

if TYPE_CHECKING:
    FreeForm = dict[str, JSON]
else:
    FreeForm = dict[str, Any]  # mashumaro cannot resolve a recursive alias

SCHEMA_PREFIX = "#/components/schemas"
UNITS = {"_ms": "milliseconds", "_s": "seconds", "_usd": "USD", "_sats": "sats", "block_time": "unix seconds"}


class SnakeShape(DataClassDictMixin):
    """A shape whose JSON names are the field names.

    `ALIASES` gives single fields another name. `MERGED` names fields whose content is merged into the object in JSON,
    and `PATTERNS` describes that content for the JSON Schema. `CONSTRAINTS` adds keywords to the schemas of single
    fields.
    """

    ALIASES: ClassVar[Mapping[str, str]] = {}
    MERGED: ClassVar[tuple[str, ...]] = ()
    PATTERNS: ClassVar[Mapping[str, JSON]] = {}
    CONSTRAINTS: ClassVar[Mapping[str, Mapping[str, JSON]]] = {}

    class Config(BaseConfig):
        serialize_by_alias = True
        lazy_compilation = True

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - mashumaro's own keywords
        aliased = {**cls._names(), **cls.ALIASES}

        class Config(SnakeShape.Config):
            aliases = aliased

        cls.Config = Config  # type: ignore[misc]  # one per class: the names differ
        if "__dataclass_fields__" in vars(cls):  # slots: a class is created twice, first without fields
            super().__init_subclass__(**kwargs)

    @classmethod
    def _names(cls) -> dict[str, str]:
        return {}

    def to_json(self) -> dict[str, JSON]:
        return self.to_dict()

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Read a shape; raises `MalformedShape`, which names the invalid field."""
        if not isinstance(value, dict):
            raise MalformedShape(f"{cls.__name__}: expected an object, found {type(value).__name__}")
        try:
            return cls.from_dict(value)
        except MissingField as error:
            raise MalformedShape(f"{cls.__name__}: {_json_name(cls, error.field_name)} is missing") from None
        except InvalidFieldValue as error:
            name = _json_name(cls, error.field_name)
            raise MalformedShape(f"{cls.__name__}: {name} is {error.field_value!r:.60}") from None
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise MalformedShape(f"{cls.__name__}: {error!r:.120}") from None


class Shape(SnakeShape):
    """A shape whose JSON names are camelCase."""

    @classmethod
    def _names(cls) -> dict[str, str]:
        own = {name: camel_case(name) for name in inspect.get_annotations(cls) if not name.isupper()}
        return {**getattr(cls.Config, "aliases", {}), **own}


def without_nulls(json: dict[Any, Any]) -> dict[Any, Any]:
    """Remove nulls, for shapes whose optional fields are omitted instead of being null."""
    return {name: value for name, value in json.items() if value is not None}


def schemas_of(shapes: Iterable[type[SnakeShape]]) -> dict[str, JSON]:
    """The JSON Schemas of these shapes and of all shapes that they refer to, by class name."""
    # Not at import time: it generates random numbers, which Cloudflare forbids there.
    from mashumaro.jsonschema import OPEN_API_3_1, JSONSchemaBuilder

    builder = JSONSchemaBuilder(OPEN_API_3_1, ref_prefix=SCHEMA_PREFIX)
    for shape in shapes:
        if shape.__name__ not in builder.context.definitions:  # already added by a shape that refers to it
            builder.build(shape)
    schemas: dict[str, dict[str, Any]] = builder.get_definitions().to_dict()
    classes = {cls.__name__: cls for cls in _all_shapes(SnakeShape)}
    return {name: _finished(schemas[name], classes[name]) for name in sorted(schemas)}


def _finished(schema: dict[str, Any], cls: type[SnakeShape]) -> dict[str, JSON]:
    """The schema with the docstring, and with the actual names of the JSON."""
    merged = {_json_name(cls, name) for name in cls.MERGED}
    schema.pop("additionalProperties", None)  # a client must accept fields that a later version adds
    schema["description"] = _with_json_names(cls, inspect.getdoc(cls) or "")
    schema["properties"] = {name: value for name, value in schema["properties"].items() if name not in merged}
    schema["required"] = [name for name in schema.get("required", ()) if name not in merged]
    for name in (field.name for field in fields(cls) if field.name not in cls.MERGED):  # type: ignore[arg-type]
        described = schema["properties"][_json_name(cls, name)]
        if (text := _description(cls, name, described)) is not None:
            described["description"] = text
    for name, keywords in cls.CONSTRAINTS.items():
        constrained = schema["properties"][_json_name(cls, name)]
        constrained.get("anyOf", [constrained])[0].update(keywords)
    if cls.PATTERNS:
        schema["patternProperties"] = dict(cls.PATTERNS)
    return schema


def _with_json_names(cls: type[SnakeShape], text: str) -> str:
    return re.sub(r"`(\w+)`", lambda name: f"`{_json_name(cls, name[1])}`", text)


def _description(cls: type[SnakeShape], name: str, schema: Mapping[str, Any]) -> str | None:
    """What a field means, with its unit: the sentences of its shape that name it, else what it means in every shape."""
    sentences = re.split(r"(?<=\.)\s+", " ".join((inspect.getdoc(cls) or "").split()))
    own = " ".join(each for each in sentences if f"`{name}`" in each)
    text = _with_json_names(cls, own) or _meanings().get(name)
    unit = _unit(cls, name, schema)
    if text is None or unit is None or unit in text or "unix" in text:
        return text
    return f"{text} ({unit})" if text == _meanings().get(name) else f"{text} Unit: {unit}."


def _unit(cls: type[SnakeShape], name: str, schema: Mapping[str, Any]) -> str | None:
    """By the end of its name. Times are numbers in our own shapes, and seconds or text in those of the site."""
    if re.search(r"(^|_)(at|until|now|since|as_of|run_after)$", name):
        kinds = [option.get("type") for option in schema.get("anyOf", [schema])]
        if "string" in kinds:
            return "ISO 8601, UTC"
        return "unix milliseconds" if issubclass(cls, Shape) else "unix seconds"
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), None)


@cache
def _meanings() -> Mapping[str, str]:
    """What fields mean that mean the same in every shape."""
    meanings: dict[str, str] = json.loads(Path(__file__).with_name("fields.json").read_text(encoding="utf-8"))
    return meanings


def _all_shapes(cls: type[SnakeShape]) -> Iterator[type[SnakeShape]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _all_shapes(subclass)


def schema_ref(shape: type[SnakeShape]) -> dict[str, JSON]:
    return {"$ref": f"{SCHEMA_PREFIX}/{shape.__name__}"}


def _json_name(cls: type[SnakeShape], field: str) -> str:
    aliases: Mapping[str, str] = getattr(cls.Config, "aliases", {})
    return aliases.get(field, field)
