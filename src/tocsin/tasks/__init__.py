"""The periodic jobs, one file each. To add one: its file, and its line in `tasks()`; see docs/tasks.md."""

from tocsin.scheduler.task import Task
from tocsin.tasks.refresh_prices import PriceOptions, refresh_prices

__all__ = ["TASKS", "tasks"]


def tasks(prices: PriceOptions) -> tuple[Task, ...]:
    """All jobs, as the settings want them."""
    return (refresh_prices(prices),)


TASKS = tasks(PriceOptions())
