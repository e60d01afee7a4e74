"""The Worker that `wrangler.jsonc` names: the site's requests, and the scheduler."""

from tocsin.platform.cloudflare.environment import SchedulerParts
from tocsin.tasks import request_jobs, tasks
from tocsin.worker.entry import Entry, SchedulerObject

__all__ = ["Default", "SchedulerDO"]  # Cloudflare's entry points


class Default(Entry):
    """Requests and the cron trigger."""


class SchedulerDO(SchedulerObject):
    """Binding `SCHEDULER`; the class's name is part of the stored state, so it must never change."""

    parts = SchedulerParts(tasks, request_jobs)
