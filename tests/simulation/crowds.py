"""Many clients that need Hiro at once while it asks everybody to wait; some leave, and some are cut off."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from holdfast.errors import HoldfastError
from simulation.clients import ADMIN_PATH, OPERATOR
from simulation.followers import Followers
from simulation.plan import Event
from simulation.process import SimulatedProcess
from stacks_simulator.faults import SimulatedFault
from tocsin.scheduler.types import Status

LIMITED_MS = 20_000
RETRY_AFTER_S = (1, 2, 4)
LOOKS = 30
LOOK_S = (0.1, 0.6)
NO_TXID = "0x" + "0" * 64


class Crowds(Followers):
    """Sends the crowds. `then` is what happens as soon as somebody waits for a permit."""

    def _crowd(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        outside, then = self._outside, event.values["then"]
        now_ms = outside.clock.now()
        outside.simulator.faults.add(
            SimulatedFault(
                kind="limited",
                upstream="hiro",
                share=event.values["share"],
                from_ms=now_ms,
                until_ms=now_ms + LIMITED_MS,
                retry_after=rng.choice(RETRY_AFTER_S),
            )
        )
        if then != "probe":  # an operator's run goes through a closed limiter if none is under way
            for task in ("feed", "sweep"):
                path = f"{ADMIN_PATH}?action=refresh&task={task}"
                self.spawn(self._ignore(self._post(process, path, OPERATOR)))
        submitted = []
        for number, transaction in enumerate(outside.recent(event.values["count"], rng)):
            self.spawn(self._do_submit(process, transaction, f"198.51.100.{number + 1}"))
            submitted.append(list(self._tasks)[-1])
        self.spawn(self._follow_events(process, rng))
        self.spawn(self._wait_and_do(process, then, submitted, rng))

    def spoil(self, values: Mapping[str, Any]) -> None:
        spoilt = self._outside.spoilt
        spoilt.upstream, spoilt.share, spoilt.only = values["upstream"], values["share"], values.get("only")
        spoilt.until_s = self._history.time.now_s + values["for_s"]

    def _confused(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        """Make an upstream send odd answers for some minutes while an operator retries again and again."""
        self.spoil(event.values)
        self.spawn(self._try_again(process, event.values))

    async def _try_again(self, process: SimulatedProcess, values: Mapping[str, Any]) -> None:
        for _ in range(values["tries"]):
            await asyncio.sleep(values["for_s"] / (values["tries"] + 1))
            await self._post(process, f"{ADMIN_PATH}?action=refresh&task={values['task']}", OPERATOR)

    async def _wait_and_do(
        self, process: SimulatedProcess, then: str, submitted: "list[asyncio.Task[None]]", rng: Random
    ) -> None:
        for _ in range(LOOKS):
            await asyncio.sleep(rng.uniform(*LOOK_S))
            try:
                status = await process.scheduler().status()
            except HoldfastError:
                return  # it does not work now
            if _is_time(status, then):
                break
        else:
            return
        self._history.happened[f"crowd {then}"] += 1
        self._history.note("in the crowd", then=then)
        match then:
            case "reset":
                for live in list(process.runtime._live.values()):
                    live.time_out("the simulation", 0)
            case "leave":
                for task in submitted[::2]:
                    task.cancel()
            case "probe":
                path = f"{ADMIN_PATH}?action=refresh&task=feed"
                await self._post(process, path, OPERATOR)
            case "look":
                await self._look_around(process, status, rng)

    async def _look_around(self, process: SimulatedProcess, status: Status, rng: Random) -> None:
        """Read the runs under way, and transactions that are not known yet."""
        running = [task.running.run for task in status.tasks.values() if task.running is not None]
        paths = [f"{ADMIN_PATH}/runs/{number}" for number in running]
        paths += [f"/api/competition/trades/{each.tx_id}" for each in self._outside.recent(4, rng)]
        for path in (*paths, *(f"/api/competition/trades/{NO_TXID}",) * 2):
            await self._do_visit(process, path)


def _is_time(status: Status, then: str) -> bool:
    hiro = status.budgets["hiro"]
    if then == "probe":
        return hiro.closed_until is not None and hiro.in_flight == 0
    return hiro.waiting.task + hiro.waiting.request > 0


def left_over(status: Status) -> str | None:
    """Return a sentence if somebody waits for a permit, or a call is under way, while nothing runs."""
    if any(task.running is not None for task in status.tasks.values()):
        return None
    for name, budget in status.budgets.items():
        if budget.waiting.task or budget.waiting.request or budget.in_flight:
            return f"{name}: {budget.waiting} wait, {budget.in_flight} calls are under way, and nothing runs"
    return None
