"""Turns, gates and critical sections: how an object's code runs on an asyncio loop.

A *turn* is the code between two real suspensions. `Turns` drives a coroutine step by step: when it suspends,
the turn has ended, and the object commits what it wrote. Before it resumes, the input gate must be open.

`block_concurrency_while` and `transaction` are critical sections: while one runs, the input gate is closed for
all code outside of it. Sections nest. Waiting code enters in order of arrival. A failure of the first resets
the object, a failure of the second is raised to its caller.

The output gate holds what leaves an object until its writes are durable: fetch, KV and DB await it before they act.
"""

import asyncio
import bisect
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

from holdfast.errors import ObjectReset

T = TypeVar("T")

SECTION_LIMIT_S = 30.0

# Set by the runtime in every task that runs an object's code.
GATE: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("output_gate", default=None)


async def output_gate() -> None:
    """Wait until the writes of the calling object are durable. Raises if it was reset. Elsewhere it is open."""
    gate = GATE.get()
    if gate is not None:
        await gate()


class ObjectUnwound(asyncio.CancelledError):
    """Ends the code of an object that was reset. Like any cancellation, do not catch it."""


class InputGate:
    """One level of exclusion: the object itself, or a critical section inside it."""

    __slots__ = ("_waiting", "ended", "holder", "parent")

    def __init__(self, parent: "InputGate | None" = None) -> None:
        self.parent = parent
        self.holder: InputGate | None = None  # the gate of the critical section that runs now
        self.ended = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def living(self) -> "InputGate":
        """The innermost gate that has not ended. A task that outlives its section joins the outer one."""
        gate = self
        while gate.ended and gate.parent is not None:
            gate = gate.parent
        return gate

    def wait(self, ticket: int) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()
        bisect.insort(self._waiting, (ticket, future), key=lambda entry: entry[0])
        return future

    def release(self) -> None:
        self.holder = None
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:  # each checks again when it wakes; the first may close the gate again
            if not future.done():
                future.set_result(None)


class HostObject(Protocol):
    """The live object, as its turns, its critical sections and its storage use it."""

    in_turn: bool

    @property
    def broken(self) -> bool: ...
    def check_alive(self) -> None: ...
    def now(self) -> int: ...
    def wrote(self) -> None: ...
    def end_turn(self) -> None: ...
    def settle(self) -> None: ...
    async def durable(self) -> None: ...
    def enter(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...
    def spawn(self, work: Coroutine[Any, Any, Any], activity: "Activity") -> "asyncio.Task[Any]": ...
    def adopt(self, task: "asyncio.Task[Any]") -> None: ...
    def reset(self, error: ObjectReset) -> None: ...
    def time_out(self, what: str, limit_s: float) -> None: ...


class Activity:
    """The object whose code a task runs, and the section it runs in. Child tasks inherit it."""

    __slots__ = ("gate", "object", "ticket")

    def __init__(self, host: HostObject, gate: InputGate, ticket: int) -> None:
        self.object = host
        self.gate = gate
        self.ticket = ticket


ACTIVITY: ContextVar[Activity | None] = ContextVar("activity", default=None)


class Turns(Generic[T]):
    """Awaiting it runs the work to its end, turn by turn."""

    __slots__ = ("_activity", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], activity: Activity) -> None:
        self._work = work
        self._activity = activity

    def __await__(self) -> Generator[Any, None, T]:
        work, activity, host = self._work, self._activity, self._activity.object
        error: BaseException | None = None
        while True:
            while activity.gate.living().holder is not None and not host.broken:
                try:
                    yield from activity.gate.living().wait(activity.ticket)
                except GeneratorExit:  # its task is gone, and nobody will open the gate for it
                    work.close()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - thrown into the work, which decides
                    error = thrown
            if host.broken and error is None:
                error = ObjectUnwound()
            host.in_turn = True
            try:
                suspended_on = work.send(None) if error is None else work.throw(error)
            except StopIteration as returned:
                host.end_turn()
                result: T = returned.value
                return result
            except BaseException:
                host.end_turn()  # writes before the exception are kept
                raise
            finally:
                host.in_turn = False
            error = None
            try:
                host.end_turn()
            except BaseException:
                work.close()
                raise
            try:
                yield suspended_on
            except BaseException as thrown:  # noqa: BLE001 - as above
                error = thrown


async def coroutine(work: Callable[[], Awaitable[T]]) -> T:
    """Any awaitable as a coroutine, which `Turns` can drive."""
    return await work()


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
            self._object.settle()
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
