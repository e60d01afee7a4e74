"""The market and the agents of the demo: prices that walk, irregular blocks, styles, and who funded whom."""

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import pytest

from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import TokenTransfer
from stacks_simulator.tokens import STSTX, STX, TOKENS_BY_ID, TRADED_TOKENS, VELAR, walk
from stacks_simulator.traders import RING
from stacks_simulator.traffic import EVERYDAY_KINDS, Traffic, start_traffic
from support.simulated import HandClock

START_MS = 1_778_700_600_000
HOUR_MS = 3_600_000
DAYS = 12


@cache
def grown_chain() -> Chain:
    clock = HandClock(START_MS)
    chain = Chain(seed=1, start_ms=clock.now(), wallets=60, market=walk, is_irregular=True)
    traffic = Traffic(swaps=12, strangers=1, transfers=1, floods=0, reorgs=0, kinds=EVERYDAY_KINDS, with_styles=True)
    start_traffic(chain, traffic)
    chain.advance(START_MS + DAYS * 24 * HOUR_MS)
    return chain


def hourly(symbol: str) -> list[float]:
    token = next(token for token in TRADED_TOKENS if token.symbol == symbol)
    return [walk(token, START_MS + hour * HOUR_MS) / token.base_price for hour in range(7 * 24)]


def test_prices_walk_by_themselves() -> None:
    """No two tokens have the same curve; a price turns often, and a week moves it by some percent."""
    curves = {
        token.symbol: hourly(token.symbol) for token in TRADED_TOKENS if token.base_price != 1.0 and token != STSTX
    }
    shapes = {tuple(round(value / curve[0], 2) for value in curve[::24]) for curve in curves.values()}
    stx = curves["STX"]
    turns = sum((b > a) != (c > b) for a, b, c in zip(stx, stx[1:], stx[2:], strict=False))

    assert len(shapes) == len(curves) == 8
    assert 50 < turns < 120
    assert 1.02 < max(stx) / min(stx) < 1.3
    assert all(0.995 < value < 1.005 for value in hourly("aeUSDC"))
    assert walk(STX, START_MS) == walk(STX, START_MS + 59_999) == 0.777354


def test_staked_stx_follows_stx() -> None:
    rates = [walk(STSTX, at) / walk(STX, at) for at in range(START_MS, START_MS + 24 * HOUR_MS, 600_000)]

    assert 1.139 < min(rates) < max(rates) < 1.143


@pytest.mark.slow
def test_bitcoin_blocks_come_at_irregular_times() -> None:
    """They never run back, and the newest one is never in the future."""
    blocks = grown_chain().blocks
    times = sorted({block.burn_time_s for block in blocks})
    gaps = {after - before for before, after in pairwise(times)}

    assert len(gaps) > 500
    assert [block.burn_time_s for block in blocks] == sorted(block.burn_time_s for block in blocks)
    assert [block.burn_height for block in blocks] == sorted(block.burn_height for block in blocks)
    assert all(0 <= block.time_s - block.burn_time_s < 1_140 for block in blocks)


def test_the_rate_of_trading_does_not_change() -> None:
    swaps = Counter((swap.burn_block_time * 1000 - START_MS) // (24 * HOUR_MS) for swap in grown_chain().truth())

    daily = [swaps[day] for day in range(DAYS)]
    assert len(daily) == 12
    assert max(daily) < 1.35 * min(daily)


def test_agents_have_styles() -> None:
    """More than half gain by their trades and the others lose; one token has no price and is seldom traded."""
    gained: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    unpriced = 0
    for swap in grown_chain().truth():
        sold, bought, at = TOKENS_BY_ID[swap.token_in], TOKENS_BY_ID[swap.token_out], swap.burn_block_time * 1000
        unpriced += VELAR in {sold, bought}
        gained[swap.sender] += swap.amount_out / 10**bought.decimals * walk(bought, at)
        gained[swap.sender] -= swap.amount_in / 10**sold.decimals * walk(sold, at)
        counts[swap.sender] += 1

    assert len(gained) == 50
    assert 25 <= sum(gain > 0 for gain in gained.values()) <= 35
    assert min(counts.values()) < 10
    assert max(counts.values()) > 120
    assert 1 <= unpriced <= 12


def test_three_wallets_share_a_funder() -> None:
    """Every other one has a funder of its own."""
    chain = grown_chain()
    funders: dict[str, str] = {}
    for tx in chain.transactions.values():
        if isinstance(tx.payload, TokenTransfer):
            funders.setdefault(tx.payload.recipient, tx.sender)
    shared = Counter(funders[wallet.address] for wallet in chain.wallets)

    assert sorted(shared.values()) == [1] * 57 + [3]
    assert len({funders[chain.wallets[number].address] for number in RING}) == 1


@pytest.mark.parametrize("steps", [7, 50])
def test_styles_do_not_depend_on_the_steps(steps: int) -> None:
    def history(count: int) -> list[str]:
        chain = Chain(seed=2, start_ms=START_MS, wallets=11, market=walk)
        start_traffic(chain, Traffic(swaps=60, with_styles=True))
        for step in range(1, count + 1):
            chain.advance(START_MS + 10 * HOUR_MS * step // count)
        return [str(swap) for swap in chain.truth()]

    assert history(steps) == history(1)
