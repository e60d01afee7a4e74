"""Calls to an object: which methods can be called, and how an exception reaches the caller."""

import builtins
import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from holdfast.errors import BindingMissing, HoldfastError, RemoteError, UsageError, ValueRefused
from holdfast.types import JSON, DurableObject
from holdfast.values import decode, encode

NO_ARGUMENTS = "[]"
RESERVED = frozenset({"alarm", "fetch", "connect", "webSocketMessage", "webSocketClose", "webSocketError"})


def public_method(instance: DurableObject, name: str) -> Callable[..., Any]:
    """The method that a call may reach. Fields, static methods and private names are not callable."""
    if name in RESERVED:
        raise ValueRefused(f"'{name}' is a reserved method and cannot be called over RPC.")
    for cls in type(instance).__mro__:
        if name in cls.__dict__ and cls not in {DurableObject, object}:
            if inspect.isfunction(cls.__dict__[name]) and not name.startswith("_"):
                return cls.__dict__[name].__get__(instance)  # type: ignore[no-any-return]
            break
    raise ValueRefused(f'The RPC receiver does not implement the method "{name}".')


def takes_argument(handler: Callable[..., Any]) -> bool:
    """Whether the handler takes an argument: information about the alarm."""
    if inspect.ismethod(handler):
        return _parameters(handler.__func__) > 1  # `self` is one
    return _parameters(handler) > 0


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> int:
    """Cached: each ring needs it, and finding out is slow."""
    return len(inspect.signature(function).parameters)


def as_remote(error: Exception) -> Exception:
    """The error for the caller: built-in classes and refusals keep their class, others become RemoteError."""
    if type(error).__module__ == "builtins" or isinstance(error, UsageError | BindingMissing):
        with contextlib.suppress(TypeError):  # a class that cannot be constructed from its `args`
            copy = type(error)(*error.args)
            copy.remote = True  # type: ignore[attr-defined]  # Cloudflare's flag
            return copy
    return RemoteError(f"{type(error).__name__}: {error}")


def arguments_text(method: str, arguments: Sequence[JSON], keywords: Mapping[str, JSON]) -> str:
    """The arguments of a call as one JSON text: a list or, if some are given by keyword, both in an object."""
    if not arguments and not keywords:
        return NO_ARGUMENTS
    values = list(arguments)
    where = f"the arguments of {method}()"
    return encode({"arguments": values, "keywords": dict(keywords)} if keywords else values, where)


def invoke(instance: DurableObject, method: str, arguments: str) -> Any:  # noqa: ANN401 - whatever the method returns
    """Call a public method with arguments from `arguments_text`."""
    function = public_method(instance, method)
    if arguments == NO_ARGUMENTS:
        return function()
    values = decode(arguments)
    if type(values) is list:
        return function(*values)
    return function(*values["arguments"], **values["keywords"])


async def completed(result: Any) -> Any:  # noqa: ANN401 - whatever was returned
    """The result of a method, which need not be a coroutine."""
    return await result if inspect.isawaitable(result) else result


async def make_call(instance: DurableObject, method: str, arguments: str) -> str:
    """Make a call whose arguments are one JSON text. Returns one JSON text, for a result or an error."""
    try:
        result = await completed(invoke(instance, method, arguments))
        return encode({"result": result}, f"the result of {method}()")
    except Exception as error:  # noqa: BLE001 - any error goes to the caller
        return error_text(error)


def error_text(error: Exception) -> str:
    remote = as_remote(error)
    return encode({"error": type(remote).__name__, "message": str(remote)}, "the error")


def read_reply(text: str) -> Any:  # noqa: ANN401 - whatever the method returned
    """The result of a call. Raises its error as the local platform does."""
    reply = decode(text)
    if "error" not in reply:
        return reply["result"]
    name = reply["error"]
    cls: Any = HoldfastError.by_name.get(name) or getattr(builtins, name, RemoteError)
    error = cls(reply["message"])
    error.remote = True
    raise error
