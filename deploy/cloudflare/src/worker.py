"""The Worker that `wrangler.jsonc` names: the site's requests, and the scheduler."""

from tocsin.worker import Entry, SchedulerObject

__all__ = ["Default", "SchedulerDO"]  # Cloudflare's entry points


class Default(Entry):
    """Requests and the cron trigger."""


class SchedulerDO(SchedulerObject):
    """Binding `SCHEDULER`; the class's name is part of the stored state, so it must never change."""
