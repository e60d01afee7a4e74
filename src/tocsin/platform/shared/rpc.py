"""Calls to an object: which methods they reach, and how what they raise reaches the caller."""

import builtins
import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from tocsin import errors
from tocsin.bindings import DurableObject
from tocsin.errors import BindingMissing, RemoteError, UsageError, ValueRefused
from tocsin.platform.shared.json_values import decode, encode

RESERVED = frozenset({"alarm", "fetch", "connect", "webSocketMessage", "webSocketClose", "webSocketError"})


def public_method(instance: DurableObject, name: str) -> Callable[..., Any]:
    """The method that a call by this name reaches; fields, statics and private names are not callable."""
    if name in RESERVED:
        raise ValueRefused(f"'{name}' is a reserved method and cannot be called over RPC.")
    for cls in type(instance).__mro__:
        if name in cls.__dict__ and cls not in {DurableObject, object}:
            if inspect.isfunction(cls.__dict__[name]) and not name.startswith("_"):
                return cls.__dict__[name].__get__(instance)  # type: ignore[no-any-return]
            break
    raise ValueRefused(f'The RPC receiver does not implement the method "{name}".')


def as_remote(error: Exception) -> Exception:
    """The error as the caller gets it: built-in classes and refusals stay, others become RemoteError."""
    if type(error).__module__ == "builtins" or isinstance(error, UsageError | BindingMissing):
        with contextlib.suppress(TypeError):  # a class that cannot be made from its arguments
            copy = type(error)(*error.args)
            copy.remote = True  # type: ignore[attr-defined]  # Cloudflare's flag
            return copy
    return RemoteError(f"{type(error).__name__}: {error}")


async def answer(instance: DurableObject, method: str, arguments: str) -> str:
    """Do a call whose arguments are one JSON list; the answer is one JSON text, also when it is an error."""
    try:
        result = public_method(instance, method)(*decode(arguments))
        if inspect.isawaitable(result):
            result = await result
        return encode({"result": result}, f"the result of {method}()")
    except Exception as error:  # noqa: BLE001 - the caller gets it, whatever it is
        return error_text(error)


def error_text(error: Exception) -> str:
    remote = as_remote(error)
    return encode({"error": type(remote).__name__, "message": str(remote)}, "the error")


def read_answer(text: str) -> Any:
    """The result of a call, or its error raised as the local platform raises it."""
    found = decode(text)
    if "error" not in found:
        return found["result"]
    name = found["error"]
    cls = getattr(errors if hasattr(errors, name) else builtins, name, RemoteError)
    raised = cls(found["message"])
    raised.remote = True
    raise raised
