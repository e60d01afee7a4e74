"""The border to JavaScript. No other module imports `js` or `pyodide`.

Pyodide maps values between the languages by rules that lose something: tuples, 2.0, integers over 2**53, a
missing key. So nothing crosses here but texts, numbers that JavaScript made itself, and JSON as one text.
"""

import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Generic, TypeVar

import js
from pyodide.ffi import JsException, create_once_callable, create_proxy, to_js

from tocsin.bindings import JSON
from tocsin.errors import ObjectReset

__all__ = ["JsException", "JsPromise", "PyWork", "create_once_callable", "create_proxy", "js"]

T = TypeVar("T")


def unwrap(wrapped: Any, field: str) -> Any:
    """The JavaScript object under a wrapper of the SDK, which would convert every value by its own rules."""
    return getattr(wrapped, field, wrapped)


def parse(text: str) -> Any:
    return js.JSON.parse(text)


def from_json(value: JSON) -> Any:
    """A JavaScript value with the same JSON."""
    return js.JSON.parse(json.dumps(value))


def to_json(value: Any) -> Any:  # as dynamic as the JavaScript value
    """A Python value with the JSON of a JavaScript one."""
    text = js.JSON.stringify(value)
    return None if text is None else json.loads(text)


def options(fields: Mapping[str, Any]) -> Any:
    """An object with these fields, without those that are None: texts, numbers, or JavaScript's own."""
    made = js.Object.new()
    for name, value in fields.items():
        if value is not None:
            setattr(made, name, value)
    return made


def buffer(content: bytes) -> Any:
    return to_js(content)


def number(value: Any) -> int | None:
    """A whole number, or None for null and undefined."""
    return int(value) if isinstance(value, int | float) else None


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def kind(value: Any) -> str:
    """What a value is, in words for an error: "missing", "text", or its JavaScript class."""
    if value is None or str(type(value).__name__) == "JsNull":
        return "missing"
    if isinstance(value, str):
        return "text"
    constructor = getattr(value, "constructor", None)
    return str(getattr(constructor, "name", type(value).__name__))


class JsPromise(Generic[T]):
    """A promise that JavaScript has already made, with what to do with its result. Await it or leave it."""

    def __init__(self, made: Any, read: Callable[[Any], T]) -> None:
        self._made = made
        self._read = read

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            value = yield from self._made.__await__()
        except JsException as error:
            raise reset(error) from None
        return self._read(value)


class PyWork(Generic[T]):
    """The outcome of Python work that JavaScript runs, kept as it was: what JavaScript returns is a text."""

    def __init__(self) -> None:
        self._raised: BaseException | None = None
        self.result: T

    async def run(self, work: Callable[[], Awaitable[T]]) -> None:
        try:
            self.result = await work()
        except BaseException as error:
            self._raised = error
            raise

    def run_sync(self, work: Callable[[], T]) -> None:
        try:
            self.result = work()
        except BaseException as error:
            self._raised = error
            raise

    def error(self, thrown: Any) -> BaseException:
        return reset(thrown) if self._raised is None else self._raised

    def outcome(self, made: Any) -> "PyOutcome[T]":
        return PyOutcome(self, made)


class PyOutcome(Generic[T]):
    """Awaits the promise around carried work, and answers for the work."""

    def __init__(self, carried: PyWork[T], made: Any) -> None:
        self._carried = carried
        self._made = made

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            yield from self._made.__await__()
        except JsException as error:
            raise self._carried.error(error) from None
        return self._carried.result


def reset(error: Any) -> ObjectReset:
    """What storage or a call to an object throws once the object, or its stub, is broken."""
    return ObjectReset(
        str(error.message),
        overloaded=getattr(error, "overloaded", None) is True,
        durable_object_reset=getattr(error, "durableObjectReset", None) is True,
    )
