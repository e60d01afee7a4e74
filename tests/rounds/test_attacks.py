"""Thirteen attacks on a round among honest agents: none wins a prize, and the honest are left alone.

`TOCSIN_SEEDS=100` tries as many rounds instead of the usual 25, `TOCSIN_FIRST_SEED=1000` others.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import WELSH, price_usd
from stacks_simulator.truth import Campaign
from stacks_simulator.wallets import Wallet
from support.attacked_rounds import attacked_round, honest_round, unprotected_winners
from support.attacks import ATTACKS, Attack, _apply
from support.competition import World, as_rows, chain_of, follow, open_world, register, sweep
from tocsin.rounds.round import RoundInputs
from tocsin.rounds.score import score
from tocsin.swaps.lists import first_funders

FIRST = int(os.environ.get("TOCSIN_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("TOCSIN_SEEDS", "25")))


def start_attack(
    simulator: Simulator,
    name: str,
    wallets: Sequence[Wallet],
    *,
    starts_ms: int,
    ends_ms: int,
    capital_usd: float,
    set_liquidity: Callable[[str, int], None] = lambda _token_id, _usd: None,
) -> Attack:
    """Run a recipe against a whole simulator: on its chain, and with its quotes.

    Import the wallets of the attack afterwards: a recipe may change their identities and owners.
    """
    chain = simulator.chain
    rng = Random(f"{chain.seed}:{name}")
    attack = Attack(chain, list(wallets), starts_ms, ends_ms, capital_usd, rng)
    ATTACKS[name](attack)
    for quote in attack.quotes:
        chain.schedule(quote.at_ms, partial(_apply, simulator, quote, set_liquidity))
    return attack


def test_there_are_thirteen_recipes() -> None:
    assert len(ATTACKS) == 13


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_wins_a_prize(name: str) -> None:
    """With as much capital as the richest honest agent used; somebody honest wins each prize."""
    for seed in SEEDS:
        attacked = attacked_round(name, seed)
        winners = {reward.category: reward.erc8004_agent_id for reward in attacked.outcome().rewards}

        assert sorted(winners) == ["overall_pnl", "return", "volume"], seed
        assert attacked.attackers.isdisjoint(winners.values()), (seed, winners)


@pytest.mark.parametrize("name", ["churn", "thin token", "dust", "late submit", "unlisted contract", "minted tokens"])
def test_some_attacks_win_nothing_with_a_hundred_times_the_capital(name: str) -> None:
    """What others can win with more money is on the page about fair play."""
    for seed in SEEDS[:2]:
        attacked = attacked_round(name, seed, richer=100)
        winners = {reward.erc8004_agent_id for reward in attacked.outcome().rewards}

        assert attacked.attackers.isdisjoint(winners), seed


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_would_win_without_what_stops_it(name: str) -> None:
    """Otherwise it would prove nothing: a board that counts everything it sees gives it a prize in most rounds."""
    seeds = SEEDS[:10]
    won = sum(bool(unprotected_winners(name, seed)) for seed in seeds)

    assert won >= len(seeds) // 2


@pytest.mark.slow
def test_honest_agents_are_not_excluded() -> None:
    """Holders, swing and day traders, scalpers, savers with equal amounts, and people who only try it."""
    agents = flagged = excessive = 0
    for seed in SEEDS:
        outcome = honest_round(seed).outcome
        agents += len(outcome.results)
        flagged += len({flag.erc8004_agent_id for flag in outcome.flags if flag.excludes_from})
        excessive += sum(flag.kind == "excess" for flag in outcome.flags)

    assert agents >= 600
    assert flagged <= agents // 100
    assert excessive == 0


@pytest.mark.parametrize("name", ["churn", "ring", "sybil funding", "double identity"])
def test_no_order_of_the_inputs_changes_the_outcome(name: str) -> None:
    """Newest first, or in any order: flags are the same, and so is everything else."""
    inputs = attacked_round(name, 3).inputs
    expected = score(inputs)
    for order in range(3):
        rng = Random(order)
        agents, swaps, prices = list(inputs.agents), list(inputs.swaps), list(inputs.prices)
        for rows in (agents, swaps, prices):
            rng.shuffle(rows)
        shuffled = RoundInputs(inputs.rules, inputs.allowlist_version, None, agents, prices, swaps)

        assert score(shuffled) == expected
    assert any(flag.excludes_from for flag in expected.flags)


# Against the feed and the sweep, not only against the rules: the record afterwards is the truth

MINUTE_MS = 60_000


HOUR_MS = 3_600_000


async def lived_through(world: World, name: str) -> Attack:
    """A round of two hours, followed from before its start until after its grace."""
    chain = world.simulator.chain
    starts_ms = chain.now_ms + HOUR_MS
    ends_ms = starts_ms + 2 * HOUR_MS + 290_000
    chain.campaign = Campaign(chain.campaign.start_s)
    attack = start_attack(world.simulator, name, chain.wallets, starts_ms=starts_ms, ends_ms=ends_ms, capital_usd=500)
    await register(world.db, attack.wallets)
    await follow(world, (ends_ms + HOUR_MS - chain.now_ms) // MINUTE_MS)
    return attack


@pytest.mark.slow
@pytest.mark.parametrize("name", ["late submit", "reorg at the end", "clock", "unlisted contract"])
async def test_nothing_of_the_attack_is_on_record_within_the_round(tmp_path: Path, name: str) -> None:
    """Swaps of replaced blocks are withdrawn; those after the end do not belong to the round."""
    async with open_world(tmp_path, chain_of(2)) as world:
        attack = await lived_through(world, name)
        recorded = await world.rows()

        assert recorded == as_rows(world.simulator.truth())
        times = [row["burn_block_time"] * 1000 for row in recorded]
        within = [at for at in times if attack.starts_ms <= at < attack.ends_ms]
        assert len(within) == (4 if name == "clock" else 0)  # in the last Bitcoin block, at the market's price
        assert bool(times) == (name in {"late submit", "clock"})


@pytest.mark.slow
async def test_the_funder_of_sybils_is_known(tmp_path: Path) -> None:
    """From the network's list, although the wallets were empty when their lists were read; without an extra call."""
    async with open_world(tmp_path, chain_of(6)) as world:
        await sweep(world)
        attack = await lived_through(world, "sybil funding")

        assert len(attack.first_funders) == 6
        assert await first_funders(world.db, attack.first_funders) == attack.first_funders


@pytest.mark.slow
async def test_a_spike_moves_the_quote_and_not_the_market(tmp_path: Path) -> None:
    async with open_world(tmp_path, chain_of(1)) as world:
        await lived_through(world, "price spike at the end")
        now_ms = world.simulator.chain.now_ms

        assert world.simulator.tenero.price(WELSH.id, now_ms) > 1.2 * price_usd(WELSH, now_ms)
