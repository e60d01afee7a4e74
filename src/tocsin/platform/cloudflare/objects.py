"""Objects on Cloudflare: any of our classes as a Durable Object, and the stubs that call them.

Every call goes through one method, `call(method, arguments)`, with one JSON text in each direction: values
stay exact, and an error keeps its class. Python callers use nothing else; `worker/entry.py` has the methods
for callers in JavaScript.
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
from tocsin.platform.shared.rpc import error_text, make_call, read_reply, takes_argument

RETRY_START_MS = 60_000


class CloudflareObject(WorkersObject):  # type: ignore[misc]  # the SDK has no types outside of the runtime
    """Base of the classes that `wrangler.jsonc` names. A subclass makes the object in `_make`.

    If the object cannot be made (the settings need a change), every call raises the reason, and the alarm
    rings again every minute: a deployment with correct settings needs no further action.
    """

    subrequests_max: ClassVar[int] = SUBREQUESTS_MAX

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._js_ctx = javascript.unwrap(ctx, "_ctx")
        self._object: DurableObject | None = None
        self._refusal: Exception | None = None
        try:
            self._object = self._make(self._js_ctx, javascript.unwrap(env, "_env"))
        except Exception as error:  # noqa: BLE001 - raised to every caller
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
            return await make_call(self._object, method, arguments)

    async def alarm(self, info: Any = None) -> None:
        if self._object is None:
            self._js_ctx.storage.setAlarm(int(javascript.js.Date.now()) + RETRY_START_MS)
            return
        handler: Any = self._object.alarm  # type: ignore[attr-defined]  # an object that sets an alarm has a handler
        at = javascript.number(getattr(info, "scheduledTime", None)) or int(javascript.js.Date.now())
        alarm_info = AlarmInfo(at, javascript.number(getattr(info, "retryCount", None)) or 0)
        with invocation(self.subrequests_max):
            result = handler(alarm_info) if takes_argument(handler) else handler()
            if inspect.isawaitable(result):
                await result


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
                reply = await self._js.call(method, text)
            except JsException as error:
                raise javascript.reset(error) from None
            return read_reply(reply)

        return call
