"""Attacks against the feed and the sweep, not only against the rules: the record afterwards is the truth."""

from pathlib import Path

import pytest

from stacks_simulator.tokens import WELSH, price_usd
from stacks_simulator.truth import Campaign
from support.attacks import Attack, start_attack
from support.competition import World, as_rows, chain_of, follow, open_world, register, sweep
from tocsin.swaps.lists import first_funders

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
