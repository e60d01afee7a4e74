"""An object that beats once a second and never forgets how often: kill -9 it and start it again."""

import asyncio
import sys
from pathlib import Path

from tocsin.bindings import AlarmInfo, DurableObject
from tocsin.errors import StartError
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.logs.logs import open_logger
from tocsin.platform.local.objects.open_objects import open_objects
from tocsin.platform.shared.redaction import Redactor


class Heart(DurableObject):
    async def start(self) -> None:
        if await self.ctx.storage.get_alarm() is None:
            await self.ctx.storage.set_alarm(SystemClock().now() + 1000)

    async def alarm(self, info: AlarmInfo) -> None:
        beats = (await self.ctx.storage.get("beats") or 0) + 1
        await self.ctx.storage.put("beats", beats)
        await self.ctx.storage.set_alarm(info.scheduled_time + 1000)
        await self.ctx.storage.sync()  # a terminal has no gate: say it when it is on disk
        print(f"beat {beats}", flush=True)  # noqa: T201 - what the example is for


async def main(directory: Path) -> None:
    logger = open_logger(sys.stderr, SystemClock(), Redactor([]))
    async with open_objects(directory, logger=logger, HEART=Heart) as env:
        await env.HEART.get_by_name("v1").start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1])))
    except StartError as error:
        sys.exit(str(error))
