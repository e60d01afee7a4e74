"""Critical sections: while one runs, no other code of the object does.

`block_concurrency_while` and `transaction` are both critical sections. A failure of the first resets the
object, a failure of the second is raised to its caller.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tocsin.errors import ObjectReset
from tocsin.platform.local.objects.turns import (
    ACTIVITY,
    Activity,
    HostObject,
    InputGate,
    ObjectUnwound,
    Turns,
    coroutine,
)

T = TypeVar("T")

SECTION_LIMIT_S = 30.0


class Sections:
    """All critical sections of one object. The outermost is the object itself."""

    def __init__(self, host: HostObject) -> None:
        self._object = host
        self._gate = InputGate()
        self._tickets = itertools.count()

    def activity(self) -> Activity:
        """The activity of an event that arrives now: outside of every section, behind earlier events."""
        return Activity(self._object, self._gate, next(self._tickets))

    def enter(self, work: Callable[[], Awaitable[T]], *, fatal: bool) -> "asyncio.Future[T]":
        current = ACTIVITY.get()
        around = current.gate if current is not None and current.object is self._object else self._gate
        parent = around.living()
        gate = InputGate(parent)
        if parent.holder is None:
            parent.holder = gate  # closed from now on, not only from the start of the section's task
        activity = Activity(self._object, gate, next(self._tickets))
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._object.spawn(self._run(parent, work, result, activity, fatal=fatal), activity)
        return result

    async def _run(
        self,
        parent: InputGate,
        work: Callable[[], Awaitable[T]],
        result: "asyncio.Future[T]",
        activity: Activity,
        *,
        fatal: bool,
    ) -> None:
        gate = activity.gate
        while parent.holder is not gate:
            if parent.holder is None:
                parent.holder = gate
            else:
                await parent.wait(activity.ticket)
        limit = asyncio.get_running_loop().call_later(
            SECTION_LIMIT_S, self._object.time_out, "A call to block_concurrency_while()", SECTION_LIMIT_S
        )
        try:
            value = await Turns(coroutine(work), activity)
        except Exception as error:
            if fatal:
                self._object.reset(ObjectReset(str(error)))
                result.cancel()
                raise ObjectUnwound from error
            _resolve(result, error=error)
        except BaseException:
            result.cancel()
            raise
        else:
            _resolve(result, value)
        finally:
            limit.cancel()
            gate.ended = True
            # The result wakes the caller first, then the gate opens for the others.
            parent.release()


def _resolve(result: "asyncio.Future[Any]", value: object = None, error: Exception | None = None) -> None:
    if result.done():
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)
