"""A price set by an operator: it must be possible, and it has the token's own decimals."""

from pathlib import Path

import pytest

from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, STSTX, RoundWorld, round_world
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.round import RoundAnswer

SBTC = "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token"
SUSDT = "SP3K8BC0PPEVCV7NZ6QSRWPQ2JE9E5B6N3PA0KBR9.token-susdt::bridged-usdt"
UNKNOWN = f"{AGENTS[0]}.a-token::a"


async def set_price(
    world: RoundWorld, token: str, usd: str, decimals: int | None = None, *, dry_run: bool = False
) -> RoundAnswer:
    given = {} if decimals is None else {"decimals": decimals}
    return await world.act(
        "price", dry_run=dry_run, roundId=ROUND_ID, tokenId=token, priceUsd=usd, reason="why", **given
    )


@pytest.mark.parametrize(
    ("usd", "decimals", "sentence"),
    [
        ("0", 6, "A price is above 0. A token without one is left out."),
        ("-1", 6, "An amount in USD is a decimal number such as 0.85, as text."),
        ("1", 39, "A token has 0 to 38 decimals, not 39."),
        ("1", -1, "A token has 0 to 38 decimals, not -1."),
    ],
)
async def test_a_price_that_cannot_be_is_refused_when_it_is_set(
    tmp_path: Path, usd: str, decimals: int, sentence: str
) -> None:
    """Not when the round is captured and nothing can be changed any more; a dry run says the same."""
    async with round_world(tmp_path) as world:
        looked = await set_price(world, UNKNOWN, usd, decimals, dry_run=True)
        answer = await set_price(world, UNKNOWN, usd, decimals)
        kept = await world.all("SELECT * FROM competition_round_price_overrides")

    assert (answer.ok, answer.http_status, answer.detail, kept) == (False, 400, sentence, [])
    assert looked.detail == sentence


async def test_decimals_are_those_that_prices_have_told(tmp_path: Path) -> None:
    """Of the price series, also of one that ended long before; of a fixed price; of STX always."""
    async with round_world(tmp_path) as world:
        old = PricePoint(SBTC, (END_S - 30 * 86_400) * 1000, "60000", 8, "tenero", "1", "1")
        gone = PricePoint(SBTC, (END_S - 29 * 86_400) * 1000, None, None, "tenero", None, None)
        await world.db.batch(append(world.db, [old, gone]))
        answers = [await set_price(world, token, "60000") for token in (SBTC, SUSDT, STSTX)]
        await world.db.prepare("DELETE FROM price_points").run()
        answers.append(await set_price(world, "stx", "0.85"))
        kept = await world.all("SELECT token_id, decimals FROM competition_round_price_overrides")

    assert [answer.detail for answer in answers] == [
        f"{SBTC} is 60000 USD, with 8 decimals",
        f"{SUSDT} is 60000 USD, with 8 decimals",
        f"{STSTX} is 60000 USD, with 6 decimals",
        "stx is 0.85 USD, with 6 decimals",
    ]
    assert {row["token_id"]: row["decimals"] for row in kept} == {SBTC: 8, SUSDT: 8, STSTX: 6, "stx": 6}


async def test_decimals_are_never_guessed(tmp_path: Path) -> None:
    """They are required if no price has them."""
    async with round_world(tmp_path) as world:
        missing = await set_price(world, UNKNOWN, "2")
        given = await set_price(world, UNKNOWN, "2", 3)

    assert (missing.ok, missing.http_status) == (False, 400)
    assert missing.detail == (
        f"It is not known how many decimals {UNKNOWN} has: no price of it was ever seen. Give decimals."
    )
    assert (given.ok, given.detail) == (True, f"{UNKNOWN} is 2 USD, with 3 decimals")


async def test_other_decimals_than_the_tokens_own_are_refused(tmp_path: Path) -> None:
    """A hundredth of a bitcoin would count as a whole one. With the token's own decimals the sums are right."""
    async with round_world(tmp_path) as world:
        for at_s in range(END_S - 3_600, END_S + 1, 600):
            point = PricePoint(SBTC, at_s * 1000, "60000", 8, "tenero", "2000000", "70000")
            await world.db.batch(append(world.db, [point]))
        await world.swap(90, 2, ("stx", 600), (SBTC, 1))  # a million units: 0.01 sBTC
        wrong = await set_price(world, SBTC, "60000", 6)
        right = await set_price(world, SBTC, "60000", 8)
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        results = await world.all("SELECT erc8004_agent_id, pnl_usd FROM competition_round_results")

    assert (wrong.ok, wrong.http_status, wrong.code) == (False, 409, "wrong_decimals")
    assert wrong.detail == (f"{SBTC} has 8 decimals, not 6: amounts would count wrong. Leave its decimals out.")
    assert right.ok
    assert {row["erc8004_agent_id"]: row["pnl_usd"] for row in results}[12] == 0.0
