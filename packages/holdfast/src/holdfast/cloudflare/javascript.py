"""The interface to JavaScript. No other module imports `js` or `pyodide`.

Pyodide's mapping between the languages changes some values: tuples, 2.0, integers over 2**53, a missing key.
Therefore only text, numbers that JavaScript made itself, and JSON as one text pass through here.
"""

import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Generic, TypeVar

import js
from pyodide.ffi import JsException, create_once_callable, create_proxy, to_js

from holdfast.errors import ObjectReset
from holdfast.types import JSON

__all__ = ["JsException", "JsPromise", "PyWork", "create_once_callable", "create_proxy", "js"]

T = TypeVar("T")


def unwrap(wrapped: Any, field: str) -> Any:
    """The JavaScript object inside a wrapper of the SDK, which would convert every value by its own rules."""
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
    """A JavaScript object with these fields, except those that are None."""
    result = js.Object.new()
    for name, value in fields.items():
        if value is not None:
            setattr(result, name, value)
    return result


def buffer(content: bytes) -> Any:
    return to_js(content)


def number(value: Any) -> int | None:
    """A whole number, or None for null and undefined."""
    return int(value) if isinstance(value, int | float) else None


def cell(value: Any) -> Any:
    """A value of a row: text, a number, None or bytes."""
    if isinstance(value, str | int | float):
        return value
    return None if kind(value) == "missing" else value.to_bytes()


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def kind(value: Any) -> str:
    """The kind of a value, for an error message: "missing", "text", or its JavaScript class."""
    if value is None or str(type(value).__name__) == "JsNull":
        return "missing"
    if isinstance(value, str):
        return "text"
    constructor = getattr(value, "constructor", None)
    return str(getattr(constructor, "name", type(value).__name__))


def reset(error: Any) -> ObjectReset:
    """The error of storage, or of a call, after the object or its stub is broken."""
    return ObjectReset(
        str(error.message),
        overloaded=getattr(error, "overloaded", None) is True,
        durable_object_reset=getattr(error, "durableObjectReset", None) is True,
    )


class JsPromise(Generic[T]):
    """A JavaScript promise: `read` converts its result, `explain` its error. It runs even if nobody awaits it."""

    def __init__(self, promise: Any, read: Callable[[Any], T], explain: Callable[[Any], BaseException] = reset) -> None:
        self._promise = promise
        self._read = read
        self._explain = explain

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            value = yield from self._promise.__await__()
        except JsException as error:
            raise self._explain(error) from None
        return self._read(value)


class PyWork(Generic[T]):
    """Python work that JavaScript runs. Keeps the result or the exception, which JavaScript would convert."""

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

    def outcome(self, promise: Any) -> JsPromise[T]:
        """What the work returns or raises, when JavaScript's promise has ended."""
        return JsPromise(promise, lambda _value: self.result, self.error)


def rejection(message: str, **fields: str | bool) -> Any:
    """A result that the caller in JavaScript gets as a thrown `Error` with these fields.

    A Python exception would arrive as a `PythonError`, with a traceback as its message, and the SDK refuses to return
    a promise. It looks at the proxy, which was made before the object got its `then`.
    """
    error = js.Object.assign(js.Error.new(message), options(fields))
    thenable = js.Object.new()
    thenable.then = create_once_callable(lambda _resolve, reject: reject(error))
    return thenable
