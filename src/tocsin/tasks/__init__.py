"""The periodic jobs, one file each. To add one: its file, and its line in `tasks()`; see docs/tasks.md."""

from collections.abc import Mapping

from tocsin.competition.request_jobs import competition_jobs
from tocsin.competition.rules import rules_of
from tocsin.prices.refresh import PriceOptions, refresh_prices
from tocsin.scheduler.task import RequestJob, Task
from tocsin.settings import Settings
from tocsin.tasks.sweep_competition import sweep_task


def tasks(settings: Settings) -> tuple[Task, ...]:
    """All jobs, as the settings want them."""
    return (refresh_prices(_prices(settings)), _sweep(settings))


def request_jobs(settings: Settings) -> Mapping[str, RequestJob]:
    """What the object does for requests, by name."""
    return competition_jobs(rules_of(settings))


def _prices(settings: Settings) -> PriceOptions:
    return PriceOptions(
        enabled=settings.tenero_enabled,
        cadence_ms=settings.tenero_cadence,
        slice_ms=settings.tenero_slice,
        jump_factor=settings.price_jump_factor,
    )


def _sweep(settings: Settings) -> Task:
    return sweep_task(
        rules_of(settings),
        cadence_ms=settings.sweep_cadence,
        slice_ms=settings.sweep_slice,
        enabled=settings.sweep_enabled,
    )


TASKS = tasks(Settings())
