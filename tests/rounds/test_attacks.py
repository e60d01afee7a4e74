"""Thirteen attacks on a round among honest agents: none wins a prize, and the honest are left alone.

`TOCSIN_SEEDS=100` tries as many rounds instead of the usual 25, `TOCSIN_FIRST_SEED=1000` others.
"""

import os
from random import Random

import pytest

from support.attacked_rounds import attacked_round, honest_round, unprotected_winners
from support.attacks import ATTACKS
from tocsin.rounds.round import RoundInputs
from tocsin.rounds.score import score

FIRST = int(os.environ.get("TOCSIN_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("TOCSIN_SEEDS", "25")))


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
