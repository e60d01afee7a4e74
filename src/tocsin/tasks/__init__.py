"""The periodic jobs, one file each. To add one: its file, and its line in `tasks()`; see docs/tasks.md."""

from collections.abc import Mapping

from tocsin.competition.request_jobs import competition_jobs
from tocsin.competition.rules import rules_of
from tocsin.scheduler.task import RequestJob, Task
from tocsin.settings import Settings
from tocsin.tasks.follow_network import follow_network_tasks
from tocsin.tasks.refresh_prices import refresh_prices_task
from tocsin.tasks.sweep_competition import sweep_task
from tocsin.tasks.watch_chainhook import watch_chainhook_tasks


def tasks(settings: Settings) -> tuple[Task, ...]:
    """All jobs, as the settings want them."""
    return (
        refresh_prices_task(settings),
        *follow_network_tasks(settings),
        sweep_task(settings),
        *watch_chainhook_tasks(settings),
    )


def request_jobs(settings: Settings) -> Mapping[str, RequestJob]:
    """What the object does for requests, by name."""
    return competition_jobs(rules_of(settings))
