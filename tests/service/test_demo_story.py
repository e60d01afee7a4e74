"""What a visitor of the demo sees: a fair competition with one staged ring, and no warning."""

import pytest

from stacks_simulator.chain_records import TokenTransfer
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import TRADED_TOKENS, walk
from support.attacks import agent_of
from support.simulated import HandClock
from tocsin.commands import demo
from tocsin.prices.store import peg_of
from tocsin.rounds.round import RoundInputs, RoundOutcome, RoundPrice, RoundRules, RoundSwap
from tocsin.rounds.score import score
from tocsin.settings import Settings
from tocsin.text import decimal_of_float, decimal_text

WEEK_S = 7 * 86_400


@pytest.fixture(
    scope="module",
    params=[1_790_000_000, *(pytest.param(at, marks=pytest.mark.slow) for at in (1_795_054_000, 1_802_222_222))],
)
def week(request: pytest.FixtureRequest) -> RoundOutcome:
    """The result of the week before a demo that starts at this time."""
    ends_at: int = request.param
    simulator = demo.build(HandClock(ends_at * 1000), ends_at * 1000)
    return score(inputs(simulator, ends_at))


def inputs(simulator: Simulator, ends_at: int) -> RoundInputs:
    chain = simulator.chain
    funders: dict[str, str] = {}
    for tx in chain.transactions.values():
        if isinstance(tx.payload, TokenTransfer):
            funders.setdefault(tx.payload.recipient, tx.sender)
    swaps = [
        RoundSwap(
            *(swap.txid, swap.sender, swap.contract_id, swap.function_name),
            *(swap.token_in, str(swap.amount_in), swap.token_out, str(swap.amount_out)),
            *(swap.burn_block_time, swap.block_height, 0, "cron"),
        )
        for swap in chain.truth()
        if ends_at - WEEK_S <= swap.burn_block_time < ends_at
    ]
    prices = []
    for token in TRADED_TOKENS:
        if peg_of(token.id) is not None:
            prices.append(RoundPrice(token.id, "1", token.decimals, "peg", ends_at * 1000))
        elif token.id in demo.PRICED:
            usd = decimal_text(decimal_of_float(walk(token, ends_at * 1000)))
            prices.append(RoundPrice(token.id, usd, token.decimals, "tenero", ends_at * 1000, "250000", "18000"))
    return RoundInputs(
        RoundRules("week", ends_at - WEEK_S, ends_at, ends_at, rewards={"overall_pnl": 50_000}),
        "v",
        None,
        [agent_of(wallet, funders[wallet.address]) for wallet in chain.wallets if wallet.tier == "eligible"],
        prices,
        swaps,
    )


def test_three_of_fifty_agents_are_flagged(week: RoundOutcome) -> None:
    """They share a funder, and nobody else has a flag."""
    assert len(week.results) >= 45
    assert [(flag.kind, flag.erc8004_agent_id) for flag in week.flags] == [
        ("shared_funder", 4),
        ("shared_funder", 15),
        ("shared_funder", 26),
    ]


def test_rank_one_does_not_win(week: RoundOutcome) -> None:
    """One of the ring is first and the others lose more, so the second wins."""
    first, second = week.results[:2]
    reward = next(reward for reward in week.rewards if reward.category == "overall_pnl")

    assert first.erc8004_agent_id == 4
    assert (reward.rank, reward.erc8004_agent_id) == (2, second.erc8004_agent_id)
    assert second.erc8004_agent_id not in {15, 26}


def test_the_demo_stays_within_its_plans() -> None:
    """The tasks' calls of a month: 30 s and 5 min at Hiro, a minute at Tenero."""
    settings = demo.demo_settings(Settings(), "http://127.0.0.1:1", "/nowhere", "a-key")

    assert (settings.feed_cadence, settings.sweep_cadence, settings.tenero_cadence) == (30_000, 300_000, 60_000)
    assert settings.hiro_plan_minute == 500
