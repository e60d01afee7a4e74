"""`GET /api/admin/prices/history`."""

from pathlib import Path

import pytest

from support.asgi import ask
from support.scripted_scheduler import ADMIN_KEY, scene
from tocsin.prices.store import PricePoint, append
from tocsin.web.app import create_app

PATH = "/api/admin/prices/history"
KEY = {"X-Admin-Key": ADMIN_KEY}
MINUTE_MS = 60_000
DAY_MS = 1_440 * MINUTE_MS


def point(at: int, price: str | None) -> PricePoint:
    return PricePoint("stx", at, price, 6, "tenero", None, None)


async def test_what_a_token_cost(tmp_path: Path) -> None:
    """Of the period, oldest first, with a time without a price; a long period has the last point of each stretch."""
    async with scene(tmp_path) as made:
        now = made.site.clock.now()
        every = [point(now - n * 5 * MINUTE_MS, f"0.{n + 1:04}") for n in range(3 * 288)]
        gone = point(now - 2 * MINUTE_MS, None)
        await made.site.db.batch(append(made.site.db, [*every, gone]))
        app = create_app(made.site)

        day = (await ask(app, f"{PATH}?token=stx", headers=KEY)).json()
        month = (await ask(app, f"{PATH}?token=stx&period=30d", headers=KEY)).json()
        none = (
            await ask(app, f"{PATH}?token=SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx", headers=KEY)
        ).json()

    assert (day["token"], day["period"], day["asOf"]) == ("stx", "24h", now)
    assert day["points"][-1] == {"at": now, "priceUsd": 0.0001}
    assert day["points"][-2] == {"at": gone.at, "priceUsd": None}
    assert day["points"][0]["at"] == now - DAY_MS
    assert len(day["points"]) == 289 + 1
    assert 40 <= len(month["points"]) <= 42  # three days of 108 minutes each
    assert [each["at"] for each in month["points"]] == sorted(each["at"] for each in month["points"])
    assert none["points"] == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("token=", 400, "malformed_token"),
        ("token=%3Cb%3E", 400, "malformed_token"),
        ("token=stx&period=1y", 400, "bad_period"),
    ],
)
async def test_a_bad_question_is_refused(tmp_path: Path, query: str, status: int, code: str) -> None:
    """Without a key, nothing is shown."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), f"{PATH}?{query}", headers=KEY)
        without_key = await ask(create_app(made.site), f"{PATH}?token=stx")

    assert (answer.status, answer.json()["code"]) == (status, code)
    assert without_key.status == 401
