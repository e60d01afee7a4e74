"""An object that beats once a second and never loses its count. It runs on one machine and on Cloudflare."""

from datetime import timedelta

from holdfast import AlarmInfo, DurableObject


class Heart(DurableObject):
    async def start(self) -> None:
        if await self.ctx.storage.get_alarm() is None:
            await self.ctx.storage.set_alarm(timedelta(seconds=1))

    async def beats(self) -> int:
        return await self.ctx.storage.get("beats") or 0

    async def alarm(self, info: AlarmInfo) -> None:
        beats = await self.beats() + 1
        await self.ctx.storage.put("beats", beats)
        await self.ctx.storage.set_alarm(info.scheduled_time + 1000)
        await self.ctx.storage.sync()  # the output gate does not hold prints: wait until the write is on disk
        print(f"beat {beats}", flush=True)  # noqa: T201 - the purpose of the example
