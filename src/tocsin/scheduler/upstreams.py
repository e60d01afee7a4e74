"""The limiters and clients of all upstreams, and the cadences that their budgets allow."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast.storage import Storage
from holdfast.types import JSON
from tocsin.scheduler.config import SchedulerEnv
from tocsin.scheduler.state import SchedulerState, budget_key
from tocsin.scheduler.task import Task
from tocsin.text import camel_case
from tocsin.upstream.budget import Budget, BudgetStatus, Cadence, Demand, cadences, overdraft, usual_calls
from tocsin.upstream.limiter import BudgetEvent, BudgetLimiter, restored_budget

NO_UPSTREAM = "as configured: it makes no calls"
SWITCHED_OFF = "switched off"

# Called with the upstream's name, what changed, and its fields.
OnBudgetChange = Callable[[str, str, dict[str, JSON]], None]


class UpstreamSet:
    """All upstreams of one scheduler."""

    def __init__(self, env: SchedulerEnv, storage: Storage, state: SchedulerState, on_change: OnBudgetChange) -> None:
        self._env = env
        self._state = state
        self._cadences: dict[str, Cadence] = {}
        self._cadences_key: tuple[object, ...] | None = None
        self._limiters = {name: self._limiter(name, storage, on_change) for name in env.upstreams}
        self.clients: dict[str, object] = {
            name: source.connect(env.fetch, self._limiters[name]) for name, source in env.upstreams.items()
        }

    def closed_until(self, upstream: str | None) -> int | None:
        """Until when an upstream is left alone after a 429 (unix ms)."""
        limiter = None if upstream is None else self._limiters.get(upstream)
        return None if limiter is None else limiter.status().closed_until

    def status(self) -> dict[str, BudgetStatus]:
        return {name: limiter.status() for name, limiter in self._limiters.items()}

    def cadences(self, tasks: Mapping[str, Task]) -> dict[str, Cadence]:
        """The cadence that each task can afford by the calls of its newest runs; calculated at most once a second."""
        now = self._env.clock.now()
        budgets = [limiter.budget for limiter in self._limiters.values()]
        key = (now // 1_000, self._state.ended_runs, *budgets, *tasks.values())
        if key != self._cadences_key:
            self._cadences_key = key
            self._cadences = self._calculate(tasks, now)
        return self._cadences

    def _calculate(self, tasks: Mapping[str, Task], now: int) -> dict[str, Cadence]:
        result = {
            name: Cadence(task.cadence_ms, NO_UPSTREAM if task.enabled else SWITCHED_OFF)
            for name, task in tasks.items()
        }
        for upstream, limiter in self._limiters.items():
            demands = {
                name: replace(demand, calls_per_run=self._usual_calls(tasks[name]))
                for name, demand in demands_on(upstream, tasks).items()
            }
            result |= cadences(limiter.budget, demands, now)
        return result

    def overdrafts(self, tasks: Mapping[str, Task]) -> dict[str, str]:
        """The upstreams whose plan cannot pay for the configured cadences, each with a sentence."""
        sentences = {
            name: overdraft(source.quota, demands_on(name, tasks)) for name, source in self._env.upstreams.items()
        }
        return {name: sentence for name, sentence in sentences.items() if sentence is not None}

    def _usual_calls(self, task: Task) -> float:
        recent = self._state.tasks[task.name].recent_calls
        return usual_calls(task.calls_per_run, task.calls_per_run_max, recent)

    def _limiter(self, upstream: str, storage: Storage, on_change: OnBudgetChange) -> BudgetLimiter:
        env = self._env

        def save(budget: Budget) -> None:
            storage.put(budget_key(upstream), budget.to_json())

        def on_event(event: BudgetEvent) -> None:
            fields = {camel_case(name): value for name, value in event.fields.items()}
            on_change(upstream, event.event.partition(".")[2], fields)

        budget = restored_budget(env.upstreams[upstream].quota, self._state.budgets.get(upstream), env.clock)
        return BudgetLimiter(upstream, budget, env.clock, env.random, env.logger, save, on_event)


def demands_on(upstream: str, tasks: Mapping[str, Task]) -> dict[str, Demand]:
    """The calls that the enabled tasks plan to make to an upstream. `tocsin check` uses this too."""
    return {
        name: Demand(task.cadence_ms, task.calls_per_run)
        for name, task in tasks.items()
        if task.upstream == upstream and task.enabled
    }
