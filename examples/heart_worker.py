"""`Heart` on Cloudflare, next to the scheduler: deploy/cloudflare/src/worker.py with the lines for `Heart`.

docs/objects.md explains where each file goes, and what wrangler.jsonc needs.
"""

from typing import Any

from heart import Heart  # when deployed, it is next to this file
from holdfast.cloudflare.objects import OwnObject, objects_of
from tocsin.worker import Entry, SchedulerObject

__all__ = ["Default", "HeartDO", "SchedulerDO"]


class Default(Entry):
    async def scheduled(self, *event: Any) -> None:  # noqa: ANN401 - JavaScript values have no static type
        """The cron trigger starts the object, and sets its alarm again if it was lost."""
        await super().scheduled(*event)
        await objects_of(self.env).HEART.get_by_name("v1").start()


class SchedulerDO(SchedulerObject):
    """Binding `SCHEDULER`."""


class HeartDO(OwnObject):
    """Binding `HEART`; the class's name is part of the stored state, so it must never change."""

    makes = Heart
