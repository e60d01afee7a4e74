"""Cloudflare's names in Python: what a program for Workers imports from `workers`, `js` and `pyodide.ffi`.

`holdfast.cloudflare.install()` puts the modules into place; docs/cloudflare-programs.md lists what runs with them. Only
objects are complete. Values may be bytes and datetimes, too: they are stored and sent as marked JSON.
"""

import asyncio
import base64
import json
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.message import Message
from http import HTTPMethod
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.error import HTTPError

from holdfast import types
from holdfast.errors import HoldfastError, UsageError
from holdfast.local.object_id import LocalObjectId
from holdfast.local.runtime import LocalNamespace, Stub
from holdfast.local.turns import ACTIVITY, output_gate
from holdfast.rpc import completed, public_method, takes_argument
from holdfast.sql import SqlCursor, SqlRow
from holdfast.storage import Ready

FETCH_LIMIT_S = 100.0


def packed(value: Any) -> Any:
    """The value as JSON."""
    match value:
        case bytes():
            return {"$holdfast": base64.b64encode(value).decode()}
        case datetime():
            return {"$holdfast": value.timestamp()}
        case Mapping():
            return {str(key): packed(item) for key, item in value.items()}
        case list() | tuple():
            return [packed(item) for item in value]
    return value


def unpacked(value: Any) -> Any:
    match value:
        case {"$holdfast": str(text)}:
            return base64.b64decode(text)
        case {"$holdfast": float(seconds)}:
            return datetime.fromtimestamp(seconds, UTC)
        case dict():
            return SqlRow((key, unpacked(item)) for key, item in value.items())
    return [unpacked(item) for item in value] if isinstance(value, list) else value


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


class Renamed:
    """An object of ours under Cloudflare's names: `columnNames` is our `column_names`."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._ours, _snake(name))


class Cursor(Renamed):
    def __init__(self, cursor: SqlCursor, rows: Iterator[Any]) -> None:
        super().__init__(cursor)
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def next(self) -> SqlRow:
        row = next(self._rows, None)
        return SqlRow(done=row is None, value=row)

    def toArray(self) -> "Rows":
        return Rows(self._rows)

    def raw(self) -> "Cursor":
        return Cursor(self._ours, self._ours.raw())


class Rows(list[Any]):
    to_py = list.copy


class Sql(Renamed):
    def exec(self, query: str, *bindings: Any) -> Cursor:
        cursor = self._ours.exec(query, *bindings)
        return Cursor(cursor, cursor)


class Entries(Renamed):
    """The calls that `storage`, `storage.kv` and a transaction share; `wrap` makes the results awaitable."""

    wrap: Callable[[Any], Any] = Ready

    def get(self, key: Any, *_options: Any, **_keywords: Any) -> Any:
        return self._made("get", _keys(key))

    def put(self, key: Any, *value: Any, **_keywords: Any) -> Any:
        return self._made("put", packed(key if isinstance(key, Mapping) else {key: value[0]}))

    def delete(self, key: Any, *_options: Any, **_keywords: Any) -> Any:
        return self._made("delete", _keys(key))

    def list(self, options: Mapping[str, Any] | None = None, **keywords: Any) -> Any:
        given = {**(options or {}), **keywords}
        return self._made("list", **{_snake(name): value for name, value in given.items()})

    def _made(self, call: str, *arguments: Any, **options: Any) -> Any:
        return self.wrap(unpacked(getattr(self._ours, call)(*arguments, **options).value))  # it is there at once

    def setAlarm(self, at: Any, *_options: Any) -> Any:
        """A datetime without a zone is local time."""
        return self._ours.set_alarm(at.timestamp() * 1000 if isinstance(at, datetime) else float(at))


class Storage(Entries):
    @property
    def kv(self) -> Entries:
        kv = Entries(self._ours)
        kv.wrap = lambda value: value
        return kv

    @property
    def sql(self) -> Sql:
        return Sql(self._ours.sql)

    def transaction(self, work: Callable[[Entries], Awaitable[Any]]) -> Any:
        return self._ours.transaction(lambda ours: work(Entries(ours)))


class DurableObjectContext(Renamed):
    """`ctx`."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self._ctx = ctx
        self.storage = Storage(ctx.storage)


class _EnvWrapper:
    """`env`: bindings of objects, and whatever else was given."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._env, name)
        return Namespace(value) if isinstance(value, LocalNamespace) else value


class Namespace(Renamed):
    def get(self, id: LocalObjectId, *_options: Any) -> "ObjectStub":  # noqa: A002 - Cloudflare's word
        return ObjectStub(self._ours.get(id))

    def getByName(self, name: str, *_options: Any) -> "ObjectStub":
        return ObjectStub(self._ours.get_by_name(name))


class ObjectStub:
    """Calls an object through two methods of ours, which know the values that are not JSON."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self.id = stub.id
        self.name = stub.name

    async def fetch(self, resource: Any, *options: Mapping[str, Any], **keywords: Any) -> "Response":
        request = Request(resource, **(options[0] if options else {}), **keywords)
        reply = await self._stub.cloudflare_fetch(request.parts(url=request.url, method=request.method.value))
        return Response(**unpacked(reply))

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*arguments: Any, **keywords: Any) -> Awaitable[Any]:
            if keywords:
                raise UsageError(f"{method}(): Cloudflare does not pass arguments by keyword; give them by position")
            return unpacked_later(self._stub.cloudflare_call(method, packed(arguments)))

        async def unpacked_later(reply: Awaitable[Any]) -> Any:
            return unpacked(await reply)

        return call


class DurableObject(types.DurableObject):
    """The base class of objects. `ctx` and `env` are wrapped, even if a subclass never calls this constructor."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(*_wrapped(ctx, env))

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        make, ring = vars(cls).get("__init__"), vars(cls).get("alarm")
        if make is not None:
            cls.__init__ = lambda self, ctx, env: make(self, *_wrapped(ctx, env))  # type: ignore[method-assign]
        if ring is not None:
            cls.alarm = _with_info(ring)  # type: ignore[method-assign]

    async def alarm(self, info: Any = None) -> None:
        """Without a handler, an alarm may be set; nothing happens when it rings."""

    async def cloudflare_call(self, method: str, arguments: list[Any]) -> Any:
        return packed(await completed(public_method(self, method)(*unpacked(arguments))))

    async def cloudflare_fetch(self, parts: Any) -> Any:
        this: Any = self
        request = Request(**unpacked(parts))
        reply = this.fetch(request) if hasattr(self, "fetch") else this.on_fetch(request, self.env, self.ctx)
        response = await completed(reply) or Response()
        return response.parts(status=response.status, status_text=response.status_text)


def _keys(key: Any) -> Any:
    return [str(each) for each in key] if isinstance(key, list | tuple) else str(key)


def _wrapped(ctx: Any, given: Any) -> tuple[Any, Any]:
    return (
        ctx if isinstance(ctx, DurableObjectContext) else DurableObjectContext(ctx),
        given if isinstance(given, _EnvWrapper) else _EnvWrapper(given),
    )


def _with_info(handler: Callable[..., Any]) -> Callable[..., Any]:
    takes_info = takes_argument(handler.__get__(object()))  # bound to anything, because `self` does not count

    async def alarm(self: Any, info: Any = None) -> None:
        if isinstance(info, types.AlarmInfo):
            fields = {"scheduledTime": info.scheduled_time, "retryCount": info.retry_count, "isRetry": info.is_retry}
            info = SqlRow(fields)
        await completed(handler(self, info) if takes_info else handler(self))

    return alarm


class WorkerEntrypoint:
    def __init__(self, ctx: Any, env: Any) -> None:
        self.ctx = ctx
        self.env = env


class Body:
    """What a request and a response have in common."""

    def __init__(self, body: Any, headers: Any) -> None:
        if body is not None and not isinstance(body, str | bytes):
            raise TypeError(f"a body is str or bytes, not {type(body).__name__}")
        self.body = body.encode() if isinstance(body, str) else body or b""
        self.body_used = False
        self.headers = Message()
        for name, value in headers.items() if hasattr(headers, "items") else headers or ():
            self.headers[name] = str(value)
        if isinstance(body, str) and "content-type" not in self.headers:
            self.headers["content-type"] = "text/plain;charset=UTF-8"

    async def bytes(self) -> bytes:
        if self.body_used:
            raise OSError("Body already used")
        self.body_used = True
        return self.body

    async def text(self) -> str:
        return (await self.bytes()).decode()

    async def json(self) -> Any:
        return json.loads(await self.text())

    def parts(self, **others: Any) -> Any:
        """The arguments that make it again."""
        return packed({"body": self.body, "headers": self.headers.items(), **others})


class Request(Body):
    def __init__(self, url: Any, *, method: Any = None, headers: Any = None, body: Any = None, **_others: Any) -> None:
        super().__init__(getattr(url, "body", None) if body is None else body, headers or getattr(url, "headers", None))
        self.url: str = getattr(url, "url", url)
        self.method = HTTPMethod(str(method or getattr(url, "method", "GET")).upper())


class Response(Body):
    def __init__(self, body: Any = None, status: Any = None, status_text: str = "", headers: Any = None) -> None:
        super().__init__(body, headers)
        self.status = int(status or 200)
        self.status_text = status_text
        self.ok = 200 <= self.status < 300

    def json(self: Any, *arguments: Any, **options: Any) -> Any:
        """The body; or, called on the class, a response with these data."""
        return Body.json(self) if isinstance(self, Body) else Response.from_json(self, *arguments, **options)

    @staticmethod
    def from_json(data: Any, status: Any = None, status_text: str = "", headers: Any = None) -> "Response":
        return Response(json.dumps(data), status, status_text, {"content-type": "application/json", **(headers or {})})


async def fetch(resource: Any, **options: Any) -> Response:
    """Make a request over HTTP, in a thread, when everything that the object wrote before is durable."""
    request = Request(resource, **options)
    if not request.url.startswith(("http://", "https://")):
        raise UsageError(f"fetch({request.url!r}): use a URL that begins with http:// or https://")
    asked: Any = (request.url, request.body or None, dict(request.headers.items()), None, False, request.method.value)

    def fetched() -> Response:
        try:
            reply = urllib.request.urlopen(urllib.request.Request(*asked), timeout=FETCH_LIMIT_S)  # noqa: S310 - checked
        except HTTPError as refusal:
            reply = refusal
        with reply:
            return Response(reply.read(), reply.status, str(reply.reason), reply.headers)

    await output_gate()
    return await asyncio.to_thread(fetched)


def _now() -> float:
    """The time by the clock of the runtime, if an object asks."""
    activity = ACTIVITY.get()
    return time.time() * 1000 if activity is None else activity.object.now()


env = _EnvWrapper(None)


def modules() -> dict[str, ModuleType]:
    """The modules by their names."""
    ours = (DurableObject, WorkerEntrypoint, Request, Response, fetch)
    same = {name: lambda value, *_others, **_options: value for name in ("handler", "python_from_rpc", "python_to_rpc")}
    made: dict[str, dict[str, Any]] = {
        "workers": {"env": env, "FetchResponse": Response, **{each.__name__: each for each in ours}, **same},
        "workers._workers": {"DurableObjectContext": DurableObjectContext, "_EnvWrapper": _EnvWrapper},
        "js": {"Date": SimpleNamespace(now=_now), "Object": SimpleNamespace(fromEntries=dict)},
        "pyodide": {"__version__": "0.26.0a2"},
        "pyodide.ffi": {"JsException": HoldfastError, "to_js": same["handler"]},
    }
    found = {name: ModuleType(name) for name in made}
    for name, module in found.items():
        vars(module).update(made[name], __path__=[])
    return found
