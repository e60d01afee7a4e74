"""An object with three jobs on its one alarm."""

from datetime import timedelta

from holdfast import Schedules


class Reports(Schedules):
    async def begin(self) -> None:
        await self.schedule("send", cron="0 8 * * mon-fri", zone="Europe/Berlin")
        await self.schedule("collect", every=timedelta(minutes=5))
        await self.schedule("midnight", cron="0 0 * * *", zone="Europe/Berlin", calls="clear")

    async def collect(self) -> int:
        count = await self.collected() + 1
        await self.ctx.storage.put("collected", count)
        return count

    async def send(self) -> None:
        await self.env.post(f"{await self.collected()} collected since midnight")

    async def clear(self) -> None:
        await self.ctx.storage.put("collected", 0)

    async def collected(self) -> int:
        return int(await self.ctx.storage.get("collected") or 0)
