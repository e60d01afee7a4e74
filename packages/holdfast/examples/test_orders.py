"""What docs/testing.md shows: a retry, a crash at every commit, a year of alarms."""

from itertools import count

from holdfast.testing import VirtualObjects
from orders import Order, Reminder


class Bank:
    """Refuses the first payments, and then takes each order once."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.taken: dict[str, int] = {}

    async def take(self, order: str, amount: int) -> None:
        if self.refuses:
            self.refuses -= 1
            raise ConnectionError("the bank is closed")
        self.taken.setdefault(order, amount)


async def test_a_payment_is_retried(objects: VirtualObjects) -> None:
    """The bank refuses twice; after two and four seconds, each up to a quarter longer, it is asked again."""
    bank = Bank(refuses=2)
    objects.bind(bank=bank)
    order = objects.get(Order, "1001")
    await order.place(30)

    await objects.advance(seconds=1)
    assert [(alarm.name, alarm.retry_count) for alarm in objects.alarms()] == [("1001", 1)]
    assert await order.state() == "placed"

    await objects.advance(seconds=10)
    assert await order.state() == "paid"
    assert bank.taken == {"1001": 30}
    assert objects.alarms() == []


async def test_a_crash_at_any_commit_takes_no_money_twice(objects: VirtualObjects) -> None:
    """Kill the process at the first commit, then at the second, until none is left to be killed at."""
    for commit in count(1):
        await objects.reset()
        bank = Bank()
        objects.bind(bank=bank)
        async with objects.crash_at(commit=commit) as crash:
            await objects.get(Order, "1001").place(30)
            await objects.advance(minutes=1)

        # The process has started again.
        await objects.advance(minutes=1)
        placed = commit > 1
        assert await objects.get(Order, "1001").state() == ("paid" if placed else "None")
        assert bank.taken == ({"1001": 30} if placed else {})
        if not crash:
            break
    assert commit == 3  # place(), and the ring of the alarm


async def test_a_year_of_reminders(objects: VirtualObjects) -> None:
    """365 alarms, in well under a second."""
    await objects.get(Reminder, "ann").begin()
    await objects.advance(days=365)
    assert await objects.get(Reminder, "ann").sent() == 365
