"""The periodic jobs, one file each. To add one: its file, and its line in `tasks()`; see docs/tasks.md."""

from tocsin.scheduler.task import Task
from tocsin.settings import Settings
from tocsin.tasks.refresh_prices import PriceOptions, refresh_prices


def tasks(settings: Settings) -> tuple[Task, ...]:
    """All jobs, as the settings want them."""
    return (refresh_prices(_prices(settings)),)


def _prices(settings: Settings) -> PriceOptions:
    return PriceOptions(
        enabled=settings.tenero_enabled,
        cadence_ms=settings.tenero_cadence,
        slice_ms=settings.tenero_slice,
        jump_factor=settings.price_jump_factor,
    )


TASKS = tasks(Settings())
