"""The tasks, one file each. To add one, write its file and add a line to `tasks()`; see docs/tasks.md."""

from collections.abc import Mapping

from tocsin.bindings import JSON
from tocsin.competition.request_jobs import RECHECK, SUBMIT, VERIFY_QUEUED, competition_jobs
from tocsin.competition.rules import rules_of
from tocsin.rounds.round_jobs import round_jobs
from tocsin.scheduler.task import RequestJob, Task
from tocsin.settings import Settings
from tocsin.tasks.follow_network import follow_network_tasks
from tocsin.tasks.publish_board import publishing, publishing_job
from tocsin.tasks.refresh_prices import refresh_prices_task
from tocsin.tasks.run_rounds import feed_runs, rounds_task
from tocsin.tasks.snapshot_history import snapshot_task
from tocsin.tasks.sweep_competition import sweep_task
from tocsin.tasks.watch_chainhook import watch_chainhook_tasks


def tasks(settings: Settings) -> tuple[Task, ...]:
    """All tasks, configured by the settings."""
    rules = rules_of(settings)
    return (
        publishing(refresh_prices_task(settings), rules, always=True),
        *(publishing(task, rules, always=False) for task in follow_network_tasks(settings)),
        publishing(sweep_task(settings), rules, always=True),
        snapshot_task(settings),
        *watch_chainhook_tasks(settings),
        rounds_task(settings),
    )


def request_jobs(settings: Settings) -> Mapping[str, RequestJob]:
    """The request jobs, by name."""
    rules = rules_of(settings)
    jobs = dict(competition_jobs(rules))
    for name, changed in ((SUBMIT, _is_recorded), (RECHECK, _is_answered), (VERIFY_QUEUED, _is_verified)):
        jobs[name] = publishing_job(jobs[name], rules, changed)
    jobs |= round_jobs(rules, feed_runs=feed_runs(settings))
    return jobs


def _is_recorded(answer: JSON) -> bool:
    return isinstance(answer, dict) and answer.get("code") is None


def _is_answered(_answer: JSON) -> bool:
    return True


def _is_verified(answer: JSON) -> bool:
    return isinstance(answer, dict) and bool(answer.get("verified"))
