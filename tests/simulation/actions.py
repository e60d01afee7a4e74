"""Does what each event of a plan says, and remembers which client got which answer."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.errors import DataDirInUse, HoldfastError
from holdfast.local.data_dir import DataDir
from holdfast.types import JSON
from holdfast_testing.captured_log import CapturedLog
from simulation.operators import CommandUsers
from simulation.plan import Event, drawn_settings, upstream_fault
from simulation.process import MIGRATIONS, SimulatedProcess
from simulation.users import ADMIN_PATH, OPERATOR

if TYPE_CHECKING:
    from simulation.history import History

Action: TypeAlias = Callable[[Event, SimulatedProcess, Random], None]

BEFORE_START_S = 5_400
LOOK_S = 5.0  # between two checks while the disk has a fault


class Actions(CommandUsers):
    """The actions of everything around the service: chain, upstreams, disk, machine, operators, agents, Chainhook."""

    def __init__(self, history: "History") -> None:
        super().__init__(history)
        self._is_registered = False

    # Events

    def do(self, event: Event, process: SimulatedProcess) -> None:
        """Do an event while the process runs: with the method that has its name, if it concerns the process."""
        action: Action | None = getattr(self, f"_{event.kind}", None)
        if action is None:
            self.do_outside(event)
        else:
            action(event, process, Random(event.draw))

    def do_outside(self, event: Event) -> None:
        """Do the part of an event that does not need the process."""
        outside, values, rng = self._outside, event.values, Random(event.draw)
        match event.kind:
            case "upstream" | "strange_answer":
                faults = outside.simulator.faults
                now_ms = outside.time.now()
                faults.active = [fault for fault in faults.active if (fault.until_ms or 0) > now_ms]
                faults.add(upstream_fault(values, now_ms))
            case "reorg":
                outside.reorg(values["depth"], rng)
            case "burst":
                outside.simulator.advance()
                outside.chain.burst(rng.choice(outside.chain.wallets), values["count"])
            case "dust":
                outside.simulator.advance()
                outside.chain.dust(rng.choice(outside.chain.wallets), values["count"])
            case "lag":
                hiro = outside.simulator.hiro
                hiro.index_lag_ms, hiro.list_lag_ms = values["index_s"] * 1000, values["list_s"] * 1000
            case "omit":
                outside.omit(values["share"])
            case "market":
                outside.move_market(values["what"], rng)
            case "network_list":
                outside.simulator.hiro.network_list = values["mode"]
            case "stuck_etag" | "stopped_list" | "wrong_page":
                outside.break_list(event.kind, values, rng)
            case kind:
                self._do_beside(kind, values)

    def _do_beside(self, kind: str, values: Mapping[str, Any]) -> None:
        """Do events that concern neither the chain nor the market."""
        outside = self._outside
        match kind:
            case "spoilt":
                self.spoil(values)
            case "receiver":
                outside.receiver.mode = values["mode"]
            case "hook":
                outside.set_hook(values["state"])
            case "hook_fault":
                now_ms = outside.time.now()
                outside.simulator.faults.add(upstream_fault(values, now_ms))
            case "site":
                self._history.site.mode = values["mode"]
            case "account":
                outside.accounts.change(values, outside.time.now())

    # The process

    def process_opened(self, process: SimulatedProcess) -> None:
        """Check that everything acknowledged before is stored, however the last process ended."""
        self._register_all()
        recorded = self._recorded()
        for txid, (transaction, block) in self._acknowledged.items():
            may_leave = transaction.sender in self._outside.demoted
            is_there = transaction.state == "mined" and transaction.block is block
            if txid not in recorded and is_there and not may_leave:
                self._history.broken("acknowledged", f"{txid} was counted, and is gone after a restart")
        self.spawn(self._history.damage.check(process))
        self.spawn(self._history.site.look(process))
        if self._history.is_calm:
            self.spawn(self._history.site.calm(process))
            self.spawn(self.care_for_rounds(process))
            if self._history.checks.paused_until_ms is not None:
                self.spawn(self._do_resume(process))

    def process_ended(self) -> None:
        self._tasks.clear()
        self._is_ending = False

    def run_ended(self, fields: Mapping[str, JSON]) -> None:
        """Check that a complete run has all prices, or has read all lists."""
        result, task = fields.get("result"), fields["task"]
        if fields["outcome"] != "ok" or not isinstance(result, dict):
            return
        # What feed and sweep count as `failed` may be transactions that can never be verified.
        counted = ("failed",) if task == "tenero" else ("failedContracts", "failedWallets")
        failed = [name for name in counted if result.get(name)]
        if failed:
            self._history.broken("outcomes", f"{task} is ok, and has {failed}: {result}")
        if task == "chainhook" and self._outside.hook_is_broken():
            self._history.broken("outcomes", f"the hook does not stream, and its run is ok: {result}")
        if task == "tenero" and self._history.time.now_s and self._outside.last_prices_ms is None:
            self._history.broken("outcomes", "prices are ok, and Tenero never answered")

    def _register_all(self) -> None:
        for wallet in () if self._is_registered else self._outside.agents:
            self._import(wallet, Random(f"{self._history.plan.seed}:{wallet.address}"))
        self._is_registered = True

    # Machine and disk

    def _kill(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self._history.restart_after_s = event.values["down_s"]
        process.loop.kill_in = event.values["callbacks"]

    def _kill_at_commit(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self._history.restart_after_s = event.values["down_s"]
        number = process.disk.calls + event.values["storage_calls"]
        process.disk.faults[number] = "killed after" if event.values["after"] else "killed before"

    def _stop(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self._history.restart_after_s = event.values["down_s"]
        process.stopped.set()

    def _damage(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        """Change stored values while the service is down."""
        self._history.restart_after_s = event.values["down_s"]
        self._history.damage.when_down(event)
        process.stopped.set()

    def _reboot(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self._history.restart_after_s = event.values["down_s"]
        self._history.reboots = True
        process.loop.kill_in = 0

    def _jump(self, event: Event, _process: SimulatedProcess, _rng: Random) -> None:
        self._history.clock.jump(int(event.values["by_s"] * 1000))
        self.clock_was_set()

    def clock_was_set(self) -> None:
        """Allow missed or repeated slots for a while, and compare no time in a response with an older one."""
        history = self._history
        history.rounds.clock_wrong_s = history.time.now_s
        checks = history.checks
        checks.clock_set_s = history.time.now_s
        checks.pause_is_known = False  # setting the clock may have ended it
        if checks.paused_until_ms is not None:
            self._excuse_pause(checks.paused_until_ms - history.clock.now())
        longest_s = max(task.cadence_s for task in history.checks.tasks.values())
        history.checks.excuses.add(history.time.now_s, history.time.now_s + 2 * longest_s + 3_600, "the clock was set")
        self._prices.clear()
        self._outside.clock_was_set()
        history.site.clock_was_set()
        for month in history.months.values():
            month.forget()

    def state_was_lost(self) -> None:
        """Allow pauses, slots, ages and budgets to start over: an entry of the scheduler's state may be lost."""
        history, checks = self._history, self._history.checks
        begins_s = history.time.now_s + history.restart_after_s  # the start of the process that does not find it
        checks.pause_is_known = False
        history.site.forget()
        checks.ages_are_unknown(begins_s)
        longest_s = max(history.cadences().values())
        checks.excuses.add(history.time.now_s, begins_s + 2 * longest_s + 3_600, "an entry was lost")
        for month in history.months.values():
            month.forget()

    def prices_were_lost(self, token_ids: list[str]) -> None:
        for token_id in token_ids:
            self._prices.pop(token_id, None)

    def _disk_full(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        disk, history = process.disk, self._history
        disk.full_until_s = history.time.now_s + event.values["for_s"]
        disk.full_share = event.values["share"]
        history.checks.excuses.add(history.time.now_s, disk.full_until_s + 2 * LOOK_S + 130.0, "the disk was full")
        self.spawn(self._look_until(process, disk.full_until_s + 2 * LOOK_S))

    def _disk_slow(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        disk, history = process.disk, self._history
        disk.slow_until_s = history.time.now_s + event.values["for_s"]
        history.checks.excuses.add(history.time.now_s, disk.slow_until_s + 130.0, "the disk was slow")

    def _sync_fails(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self._history.restart_after_s = event.values["down_s"]
        process.disk.sync_fails = True

    async def _look_until(self, process: SimulatedProcess, until_s: float) -> None:
        """Check the service. The real one checks itself every second; here it happens only while it matters."""
        while (left_s := until_s - self._history.time.now_s) > 0:
            await asyncio.sleep(LOOK_S if left_s < 10 * LOOK_S else 10 * LOOK_S)
            await self._history.look(process)

    def _reset(self, _event: Event, process: SimulatedProcess, rng: Random) -> None:
        """Make the object lose its instance, as on Cloudflare when its code or its machine changes."""
        for live in list(process.runtime._live.values()):
            if rng.random() < 0.9:
                live.time_out("the simulation", 0)

    def _second_process(self, _event: Event, process: SimulatedProcess, _rng: Random) -> None:
        """Check that another process with the same data directory is refused and changes nothing."""
        try:
            DataDir(self._history.directory, MIGRATIONS, now=process.clock.now(), logger=CapturedLog())
        except DataDirInUse:
            return
        self._history.broken("one-process", "a second process opened the data directory")

    # Operators

    def _job(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self.spawn(self._history.site.change(process, event.values))

    def _pause(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self.spawn(self._do_pause(process, process.clock.now() + event.values["for_s"] * 1000))

    async def _do_pause(self, process: SimulatedProcess, until_ms: int) -> None:
        checks = self._history.checks
        checks.pause_is_known = False
        self._excuse_pause(until_ms - process.clock.now())  # it may be in force even without an answer
        answer = await self._post(process, f"{ADMIN_PATH}?action=pause&until={until_ms}", OPERATOR)
        if answer.status == 200:
            checks.paused_until_ms, checks.pause_is_known = until_ms, True

    def _excuse_pause(self, for_ms: int) -> None:
        history = self._history
        longest_s = max(task.cadence_s for task in history.checks.tasks.values())
        history.checks.excuses.add(history.time.now_s - 1, history.time.now_s + for_ms / 1000 + longest_s, "paused")

    def _resume(self, _event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self.spawn(self._do_resume(process))

    async def _do_resume(self, process: SimulatedProcess) -> None:
        checks = self._history.checks
        checks.pause_is_known = False
        answer = await self._post(process, f"{ADMIN_PATH}?action=resume", OPERATOR)
        if answer.status == 200:
            checks.paused_until_ms, checks.pause_is_known = None, True

    def _refresh(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        for _ in range(event.values["times"]):
            self._operate(process, f"action=refresh&task={event.values['task']}")

    def _settings(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        """Change settings: by a restart, or by a reload of those that need no restart."""
        history, outside, now = self._history, self._outside, process.settings
        if event.values["earlier_start"]:
            outside.campaign_start_s -= BEFORE_START_S
            outside.rules_changed_s = history.time.now_s
        if event.values["longer_list"]:
            outside.has_longer_list = True
            outside.rules_changed_s = history.time.now_s
        new = outside.settings(drawn_settings(rng, now, slow=history.plan.world.slow))
        if event.values["restart"]:
            history.settings = new
            process.stopped.set()
            return
        kept = (*("hiro_api_key", "hiro_plan_minute", "breaker_failures"), *("chainhook_id", "chainhook_reenable"))
        history.settings = replace(new, **{name: getattr(now, name) for name in kept})
        self.spawn(self._reload(process))

    async def _reload(self, process: SimulatedProcess) -> None:
        history = self._history
        cadences = history.cadences()
        history.checks.excuses.add(history.time.now_s, history.time.now_s + 2 * max(cadences.values()) + 130, "reload")
        for name, cadence_s in cadences.items():
            history.checks.follow(
                {**{n: t.cadence_s for n, t in history.checks.tasks.items()}, name: cadence_s}, history.time.now_s
            )
        try:
            await process.reload(history.settings)
        except HoldfastError as error:
            history.note("not reloaded", error=str(error))
            process.stopped.set()  # an operator restarts it
            return
        history.checks.follow(cadences, history.time.now_s)
