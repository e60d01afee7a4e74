"""Data of a real service with rounds that end soon. It needs no upstream: the rounds have all the data they need."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from support.local_store import open_competition
from support.round_world import ROUND_ID, RoundWorld, SetClock, seed
from tocsin.settings import Settings
from tocsin.swaps.rules import rules_of

LENGTH_S = 7_200
ALONE = {
    "TOCSIN_TENERO_ENABLED": "no",
    "TOCSIN_FEED_ENABLED": "no",
    "TOCSIN_SWEEP_ENABLED": "no",
    "HIRO_API_URL": "http://127.0.0.1:9",
    "TENERO_API_URL": "http://127.0.0.1:9",
}


def make_data(data: Path, ends: Sequence[int]) -> None:
    """Add a round for each end, without a grace. The first is `ROUND_ID`, and a sweep begins exactly at its end."""
    data.mkdir(mode=0o700)
    asyncio.run(_fill(data, ends))


async def _fill(data: Path, ends: Sequence[int]) -> None:
    async with open_competition(data) as db:
        world = RoundWorld(db, SetClock(ends[0] - LENGTH_S))
        await seed(world, ends[-1] - LENGTH_S, ends[0])
        for number, ends_at in enumerate(ends):
            round_id = f"{ROUND_ID}-{number}" if number else ROUND_ID
            await world.add_round(roundId=round_id, startsAt=ends_at - LENGTH_S, endsAt=ends_at, graceS=0)
        await world.swept(ends[0], rules_of(Settings()))
