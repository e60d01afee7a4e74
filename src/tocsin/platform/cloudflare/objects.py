"""Objects on Cloudflare: any of our classes as a Durable Object, and the stubs that reach them.

A call is one method, `call(method, arguments)`, with a JSON text each way: exact whatever the value, and an
error keeps its class. Nothing else is exposed to Python callers; see `worker/entry.py` for JavaScript's.
"""

import inspect
import json
from collections.abc import Callable
from typing import Any, ClassVar

from workers import DurableObject as WorkersObject

from tocsin.bindings import JSON, AlarmInfo, DurableObject
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.javascript import JsException
from tocsin.platform.cloudflare.subrequests import SUBREQUESTS_MAX, invocation
from tocsin.platform.shared.json_values import encode
from tocsin.platform.shared.rpc import answer, error_text, read_answer

RETRY_START_MS = 60_000


class CloudflareObject(WorkersObject):  # type: ignore[misc]  # the SDK has no types outside of the runtime
    """Base of the classes that `wrangler.jsonc` names. A subclass says how its object is made.

    An object that cannot be made (settings that need a change) answers every call with the reason, and rings
    again in a minute, for ever: a deployment that corrects them needs nobody to start it.
    """

    subrequests_max: ClassVar[int] = SUBREQUESTS_MAX

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._js_ctx = javascript.unwrap(ctx, "_ctx")
        self._object: DurableObject | None = None
        self._refusal: Exception | None = None
        try:
            self._object = self._make(self._js_ctx, javascript.unwrap(env, "_env"))
        except Exception as error:  # noqa: BLE001 - told to every caller
            self._refusal = error
            line = {"level": "ERROR", "event": "object.refused", "error": str(error)}
            javascript.js.console.error(json.dumps(line))

    def _make(self, ctx: Any, env: Any) -> DurableObject:
        raise NotImplementedError

    async def call(self, method: str, arguments: str) -> str:
        if self._object is None:
            assert self._refusal is not None
            return error_text(self._refusal)
        with invocation(self.subrequests_max):
            return await answer(self._object, method, arguments)

    async def alarm(self, info: Any = None) -> None:
        if self._object is None:
            self._js_ctx.storage.setAlarm(int(javascript.js.Date.now()) + RETRY_START_MS)
            return
        handler: Any = self._object.alarm  # type: ignore[attr-defined]  # who sets an alarm has a handler
        at = javascript.number(getattr(info, "scheduledTime", None)) or int(javascript.js.Date.now())
        told = AlarmInfo(at, javascript.number(getattr(info, "retryCount", None)) or 0)
        with invocation(self.subrequests_max):
            result = handler(told) if inspect.signature(handler).parameters else handler()
            if inspect.isawaitable(result):
                await result

    async def _for_javascript(self, method: str, *arguments: JSON) -> Any:
        """A call with JavaScript's own values, for callers without our stubs."""
        result = read_answer(await self.call(method, encode(list(arguments), "the arguments")))
        return javascript.from_json(result)


class CloudflareNamespace:
    """A binding such as `env.SCHEDULER`."""

    def __init__(self, binding: Any) -> None:
        self._js = binding

    def id_from_name(self, name: str) -> Any:
        return self._js.idFromName(name)

    def get(self, id: Any) -> "CloudflareStub":  # noqa: A002 - Cloudflare's word
        return CloudflareStub(self._js.get(id))

    def get_by_name(self, name: str) -> "CloudflareStub":
        return self.get(self.id_from_name(name))


class CloudflareStub:
    """Carries calls to an object: `await stub.status()`."""

    def __init__(self, stub: Any) -> None:
        self._js = stub

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*arguments: JSON) -> Any:  # whatever the method returns
            text = encode(list(arguments), f"the arguments of {method}()")
            try:
                answer = await self._js.call(method, text)
            except JsException as error:
                raise javascript.reset(error) from None
            return read_answer(answer)

        return call
