"""While a big round is closed, the event loop continues its other work. Turns of the loop are counted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from holdfast.types import Row
from tocsin.rounds.capture import swaps_in_order
from tocsin.rounds.file import file_lines, parts_of
from tocsin.rounds.finalize import parts_with_pauses
from tocsin.rounds.round import RoundAgent, RoundInputs, RoundPrice, RoundRules, RoundSwap
from tocsin.rounds.score import score, scoring, with_pauses

T = TypeVar("T")

STX, USDA = "stx", "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"
SWAPS = 40_000


def big_round() -> RoundInputs:
    """All swaps are of one agent, the worst case, and go there and back, so that everything is matched."""
    swaps = [
        RoundSwap(
            *(f"0x{number:064x}", "SP1", "SP.pool", "swap"),
            *((STX, "1000000", USDA, "1000000") if number % 2 else (USDA, "1000000", STX, "1000000")),
            *(1_000 + number, number // 7, number % 7, "cron"),
        )
        for number in range(SWAPS)
    ]
    prices = [RoundPrice(token, "1", 6, "manual_admin", 0) for token in (STX, USDA)]
    rules = RoundRules("week-1", 1_000, 1_000 + SWAPS, 2_000 + SWAPS)
    return RoundInputs(rules, "v", 1, [RoundAgent("SP1", "bc1", 1)], prices, swaps)


async def turns_during(work: Awaitable[T]) -> tuple[int, T]:
    """Return how often other work of the loop had its turn, and the result."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    result = await work
    task.cancel()
    return turns, result


async def test_scoring_pauses() -> None:
    """At least once for every 8,000 swaps that are read, and that are matched; the outcome is the same."""
    inputs = big_round()
    turns, outcome = await turns_during(with_pauses(scoring(inputs)))

    assert turns >= 2 * SWAPS // 8_000
    assert outcome == score(inputs)
    assert [flag.kind for flag in outcome.flags] == ["churn"]


async def test_writing_the_file_pauses() -> None:
    """At every part, which is at most half a megabyte."""
    inputs = big_round()
    outcome = score(inputs)
    turns, parts = await turns_during(parts_with_pauses(inputs, outcome))

    assert turns >= len(parts) >= 14
    assert parts == [*parts_of(file_lines(inputs, outcome))]


def row_of(swap: RoundSwap) -> Row:
    """As the database returns it: the values that many swaps share are one string."""
    shared = (swap.sender, swap.contract_id, swap.function_name, swap.token_in, swap.token_out, swap.source)
    return {
        "txid": swap.txid,
        "shared": "\x1f".join(shared),
        "amount_in": swap.amount_in,
        "amount_out": swap.amount_out,
        "burn_block_time": swap.burn_block_time,
        "block_height": swap.block_height,
        "tx_index": swap.tx_index,
    }


async def test_putting_swaps_in_order_pauses() -> None:
    """At least once for every 500 blocks of the chain."""
    inputs = big_round()

    async def pages() -> AsyncIterator[list[Row]]:
        backwards = [row_of(swap) for swap in reversed(inputs.swaps)]
        for first in range(0, SWAPS, 2_000):
            yield backwards[first : first + 2_000]

    turns, swaps = await turns_during(swaps_in_order(pages()))

    assert turns >= SWAPS // 7 // 500
    assert swaps == inputs.swaps
