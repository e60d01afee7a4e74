"""The Worker that `wrangler.jsonc` names: the site's requests, and the scheduler."""

from collections.abc import Sequence

from tocsin.platform.cloudflare.entry import Entry, SchedulerObject
from tocsin.platform.cloudflare.environment import SchedulerParts
from tocsin.scheduler.task import Task
from tocsin.settings import Settings
from tocsin.tasks import tasks
from tocsin.tasks.refresh_prices import PriceOptions

__all__ = ["Default", "SchedulerDO"]  # what Cloudflare takes for entry points


def tasks_of(settings: Settings) -> Sequence[Task]:
    return tasks(
        PriceOptions(
            enabled=settings.tenero_enabled,
            cadence_ms=settings.tenero_cadence,
            slice_ms=settings.tenero_slice,
            jump_factor=settings.price_jump_factor,
        )
    )


class Default(Entry):
    """Requests and the cron trigger."""


class SchedulerDO(SchedulerObject):
    """Binding `SCHEDULER`; the class's name is part of the stored state, so it must never change."""

    parts = SchedulerParts(tasks_of, {})
