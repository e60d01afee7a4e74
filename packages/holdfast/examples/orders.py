"""An order that is paid at a bank, and reminds the customer every day until it is paid."""

from datetime import timedelta

from holdfast import DurableObject

DAY = timedelta(days=1)


class Order(DurableObject):
    async def place(self, amount: int) -> None:
        await self.ctx.storage.put({"amount": amount, "state": "placed"})
        await self.ctx.storage.set_alarm(timedelta(0))

    async def state(self) -> str:
        return str(await self.ctx.storage.get("state"))

    async def alarm(self) -> None:
        if await self.state() == "placed":
            # The bank takes each order once, however often it is asked: a run may be the second one.
            await self.env.bank.take(self.ctx.id.name, await self.ctx.storage.get("amount"))
            await self.ctx.storage.put("state", "paid")


class Reminder(DurableObject):
    async def begin(self) -> None:
        await self.ctx.storage.set_alarm(DAY)

    async def sent(self) -> int:
        return int(await self.ctx.storage.get("sent") or 0)

    async def alarm(self) -> None:
        await self.ctx.storage.put("sent", await self.sent() + 1)
        await self.ctx.storage.set_alarm(DAY)
