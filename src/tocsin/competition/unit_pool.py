"""Does many units of work a few at a time, and knows when to stop.

A unit that fails harms itself alone. What would befall every other unit, too (a 429, a refused key, an
upstream that no longer answers), ends the run: the ending says why. A pause or a broken store is raised
when all units under way have come to a halt.

Emits `sweep.unit_failed` when an upstream had no answer for a unit, `sweep.unit_threw` when our own code
failed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

from tocsin.bindings import JSON
from tocsin.competition.desk import Desk
from tocsin.errors import BindingMissing, NoAnswer, RunStopped, StoreError
from tocsin.upstream.answer import Gone, Limited, Malformed, Unauthorised

T = TypeVar("T")

# done · unanswered: nothing is known, ask again · broken: something about this very unit may be odd
UnitEnd: TypeAlias = Literal["done", "unanswered", "broken"]

IN_FLIGHT_MAX = 6  # Cloudflare lets six requests of an invocation wait for their headers
MARGIN_S = 15.0  # a run ends by itself before its slice does; a short one by a quarter of it


class SweepDesk(Desk, Protocol):
    """A desk that knows about time slices; a task's context is one."""

    @property
    def started_at(self) -> int: ...
    def time_left_s(self) -> float: ...
    def progress(self, done: int, total: int, /, **counters: JSON) -> None: ...
    def checkpoint(self) -> None: ...


@dataclass(slots=True)
class StopReason:
    """Why a run ended before its work was done; neither field: its time was up."""

    error: str | None = None
    limited_until: int | None = None
    error_class: str | None = None


class UnitPool:
    """The workers of one run. `counters` is what is shown while it goes on."""

    def __init__(self, desk: SweepDesk, counters: Callable[[], dict[str, JSON]]) -> None:
        self._desk = desk
        self._counters = counters
        self._margin_s = min(MARGIN_S, desk.time_left_s() / 4)
        self._done = 0
        self._total = 0
        self.ending: StopReason | None = None
        self.threw = 0

    async def each(self, units: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
        """Do all units, unless the run must end."""
        listed = list(units)
        self._total += len(listed)
        rest = iter(listed)
        stopped: list[BaseException] = []

        async def worker() -> None:
            try:
                for unit in rest:
                    if stopped or not self.may_go_on():
                        return
                    await work(unit)
                    self._done += 1
                    self._desk.progress(self._done, self._total, **self._counters())
            except BaseException as error:
                stopped.append(error)
                raise

        workers = [worker() for _ in range(min(IN_FLIGHT_MAX, len(listed)))]
        await asyncio.gather(*workers, return_exceptions=True)
        if stopped:
            raise stopped[0]

    def may_go_on(self) -> bool:
        """Asked between two units, or two pages of one."""
        self._desk.checkpoint()
        if self.ending is None and self._desk.time_left_s() < self._margin_s:
            self.ending = StopReason()
        return self.ending is None

    async def guarded(self, unit: str, work: Callable[[], Awaitable[None]]) -> UnitEnd:
        """Do a unit of work; how it ended."""
        try:
            await work()
        except NoAnswer as error:
            self._note(unit, error)
            return "broken" if isinstance(error.answer, Malformed) else "unanswered"
        except (StoreError, RunStopped, BindingMissing):
            raise
        except Exception as error:  # noqa: BLE001 - a transaction that trips our code must not stop the others
            self.threw += 1
            self._desk.logger.error("sweep.unit_threw", unit=unit, reason=repr(error)[:300])  # noqa: TRY400 - our Logger has no `exception`
            return "broken"
        return "done"

    def _note(self, unit: str, error: NoAnswer) -> None:
        answer = error.answer
        if isinstance(answer, Limited):
            until = max(answer.until, (self.ending and self.ending.limited_until) or 0)
            self.ending = StopReason(limited_until=until)
        elif isinstance(answer, Unauthorised | Gone) or self._desk.session.given_up:
            self.ending = self.ending or StopReason(str(error), error_class=type(answer).__name__)
        else:
            self._desk.logger.warn("sweep.unit_failed", unit=unit, reason=str(error))
