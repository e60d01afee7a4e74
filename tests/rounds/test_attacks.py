"""Thirteen attacks on a round among honest agents: none wins a prize, and the honest are left alone.

Honest agents trade for gain, with typical strategies: flags must not hit them. `unprotected_winners` is the result of a
naive board: it counts every swap that was ever broadcast, treats each wallet as an agent, and uses the prices of the
last moment. An attack that wins nothing there would prove nothing.

`TOCSIN_SEEDS=100` tries as many rounds instead of the usual 25, `TOCSIN_FIRST_SEED=1000` others.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from statistics import median_low

import pytest

from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction, SimulatedCall
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import AEUSDC, ALEX, SBTC, STSTX, STX, TRADED_TOKENS, WELSH, SimulatedToken, price_usd
from stacks_simulator.truth import COMPETITION_START_S, Campaign
from stacks_simulator.wallets import Wallet
from support.attacks import ATTACKS, HOUR_MS, Attack, QuoteChange, agent_of
from support.competition import World, as_rows, chain_of, follow, open_world, register, sweep
from tocsin.rounds.round import (
    CATEGORIES,
    RewardCategory,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundPrice,
    RoundRules,
    RoundSwap,
)
from tocsin.rounds.score import score
from tocsin.swaps.lists import first_funders
from tocsin.swaps.values import SwapWorth, excess_of
from tocsin.text import decimal_of_float, decimal_text, usd_value

FIRST = int(os.environ.get("TOCSIN_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("TOCSIN_SEEDS", "25")))
STARTS_S = COMPETITION_START_S + 86_400
ENDS_S = STARTS_S + 7 * 86_400 + 290  # halfway between two Bitcoin blocks
HONEST = 33  # 27 of them are eligible
ATTACKERS = 8
LIQUIDITY_USD = 250_000
CHAIN_START_MS = (STARTS_S - 7_200) * 1000
SETTLED_MS = (ENDS_S + 7_200) * 1000
RULES = RoundRules("week-1", STARTS_S, ENDS_S, ENDS_S + 3_600, rewards={"overall_pnl": 3, "volume": 2, "return": 1})
TOKENS = (SBTC, AEUSDC, STSTX, WELSH, ALEX)  # each has a pool with STX


@dataclass(frozen=True)
class HonestRound:
    """What honest agents did, and the greatest capital that one of them used."""

    agents: list[RoundAgent]
    swaps: list[RoundSwap]
    outcome: RoundOutcome  # without an attack
    capital_usd: float


@cache
def honest_round(seed: int) -> HonestRound:
    chain = Chain(seed=seed, start_ms=CHAIN_START_MS, wallets=HONEST, campaign=Campaign(STARTS_S, ENDS_S))
    wallets = [wallet for wallet in chain.wallets if wallet.tier == "eligible"]
    start_honest(chain, wallets, STARTS_S * 1000, ENDS_S * 1000, Random(f"{seed}:honest"))
    chain.advance(SETTLED_MS)
    agents = [agent_of(wallet) for wallet in wallets]
    swaps = [swap_of(chain.transactions[swap.txid]) for swap in chain.truth()]
    outcome = score(RoundInputs(RULES, "v", None, agents, prices(()), swaps, excesses=excesses(swaps)))
    volume = max(float(result.volume_usd) for result in outcome.results)
    capital = max(float(result.capital_usd) for result in outcome.results)
    return HonestRound(agents, swaps, outcome, min(capital, volume / 2))


@dataclass(frozen=True)
class AttackedRound:
    """The inputs of a round with an attack in it, and the attackers."""

    inputs: RoundInputs
    attackers: frozenset[int]

    def outcome(self) -> RoundOutcome:
        return score(self.inputs)


def attacked_round(name: str, seed: int, *, protected: bool = True, richer: float = 1.0) -> AttackedRound:
    """Run one attack on one round, with the capital of the honest agent that used most, or `richer` times as much."""
    honest = honest_round(seed)
    chain = Chain(
        seed=seed + 1_000_000, start_ms=CHAIN_START_MS, wallets=ATTACKERS, campaign=Campaign(STARTS_S, ENDS_S)
    )
    wallets = [replace(wallet, erc8004_agent_id=1_000 + number) for number, wallet in enumerate(chain.wallets[:6])]
    capital_usd = honest.capital_usd * richer
    attack = Attack(chain, list(wallets), STARTS_S * 1000, ENDS_S * 1000, capital_usd, Random(f"{seed}:{name}"))
    ATTACKS[name](attack)
    chain.advance(SETTLED_MS)
    if protected:
        senders = [wallet.address for wallet in attack.wallets]
        swaps = [swap_of(chain.transactions[swap.txid]) for swap in chain.truth(senders=senders)]
        agents = [agent_of(wallet, attack.first_funders.get(wallet.address)) for wallet in attack.wallets]
        rules = RULES
    else:
        swaps = [swap_of(tx) for tx in chain.transactions.values() if tx.swap is not None]
        agents = [agent_of(replace(wallet, owner=None), None) for wallet in wallets]
        rules = replace(RULES, min_liquidity_usd="0", min_day_volume_usd="0", dust_usd="0")
    inputs = RoundInputs(
        rules=rules,
        allowlist_version="v",
        complete_until_block=None,
        agents=[*honest.agents, *agents],
        prices=prices(attack.quotes, at_once=not protected),
        swaps=[*honest.swaps, *swaps],
        excesses=excesses([*honest.swaps, *swaps], attack.quotes) if protected else [],
    )
    return AttackedRound(inputs, frozenset(agent.erc8004_agent_id for agent in agents))


def unprotected_winners(name: str, seed: int) -> set[RewardCategory]:
    """Return what the attack wins on a naive board: without flags, floors, allow-list and end of the round."""
    attacked = attacked_round(name, seed, protected=False)
    results = [result for result in score(attacked.inputs).results if result.priced_trade_count]
    best = {
        "overall_pnl": max(results, key=lambda result: float(result.pnl_usd)),
        "volume": max(results, key=lambda result: float(result.volume_usd)),
        "return": max(
            (result for result in results if float(result.volume_usd) >= 50 and result.priced_trade_count >= 3),
            key=lambda result: float(result.pnl_percent or 0),
        ),
    }
    return {category for category in CATEGORIES if best[category].erc8004_agent_id in attacked.attackers}


def swap_of(tx: ChainTransaction) -> RoundSwap:
    """Return a swap as captured; one that is not on the chain is placed in the middle of the round."""
    assert tx.swap is not None
    assert isinstance(tx.payload, SimulatedCall)
    inside = tx.block is not None and STARTS_S <= tx.block.burn_time_s < ENDS_S and tx.state == "mined"
    time, height = (tx.block.burn_time_s, tx.block.height) if inside and tx.block else (STARTS_S + 9, 1)
    return RoundSwap(
        *(tx.tx_id, tx.sender, tx.payload.contract, tx.payload.function),
        *(tx.swap.token_in, str(tx.swap.amount_in), tx.swap.token_out, str(tx.swap.amount_out)),
        *(time, height, tx.index, "cron"),
    )


def excesses(swaps: Iterable[RoundSwap], quotes: Sequence[QuoteChange] = ()) -> list[SwapWorth]:
    """Return the excessive swaps, at the quotes of their Bitcoin blocks."""
    tokens = {token.id: token for token in TRADED_TOKENS}

    def usd(token_id: str, amount: str, at_s: int) -> str:
        token = tokens[token_id]
        price = decimal_of_float(quoted(token, at_s * 1000, quotes))
        return decimal_text(usd_value(int(amount), price, token.decimals))

    def held(token_id: str) -> str | None:
        return None if tokens[token_id].base_price == 1.0 else str(LIQUIDITY_USD)

    worths = [
        SwapWorth(
            swap.txid,
            *(usd(swap.token_in, swap.amount_in, swap.burn_block_time), held(swap.token_in)),
            *(usd(swap.token_out, swap.amount_out, swap.burn_block_time), held(swap.token_out)),
        )
        for swap in swaps
    ]
    return [worth for worth in worths if excess_of(worth) is not None]


def prices(quotes: Sequence[QuoteChange], *, at_once: bool = False) -> list[RoundPrice]:
    """Return the prices of the end: the lower median of thirteen instants of the last hour, or the last price."""
    instants = [(ENDS_S - 300 * k) * 1000 for k in range(1 if at_once else 13)]
    liquidity = {quote.token: quote.liquidity_usd for quote in reversed(quotes) if quote.liquidity_usd}
    return [
        RoundPrice(
            token_id=token.id,
            price_usd=decimal_text(decimal_of_float(median_low(quoted(token, at, quotes) for at in instants))),
            decimals=token.decimals,
            source="peg" if token.base_price == 1.0 else "tenero",
            at=instants[0],
            liquidity_usd=str(liquidity.get(token, LIQUIDITY_USD)),
            volume_usd="18000",
        )
        for token in sorted(TRADED_TOKENS, key=lambda token: token.id)
    ]


def quoted(token: SimulatedToken, at_ms: int, quotes: Iterable[QuoteChange]) -> float:
    if token.base_price == 1.0:
        return 1.0
    factors = [quote.factor for quote in quotes if quote.token == token and quote.at_ms <= at_ms and quote.factor]
    return price_usd(token, at_ms) * (factors[-1] if factors else 1)


# Honest traders


@dataclass
class Trader:
    """One wallet and its holdings, in dollars at the time of purchase."""

    chain: Chain
    wallet: Wallet
    rng: Random
    starts_ms: int
    ends_ms: int
    capital_usd: float

    def swap(self, at_ms: float, sold: SimulatedToken, bought: SimulatedToken, amount: int) -> int:
        """Swap at the market price, less a fee and the movement of the pool's price; return the amount received."""
        at = int(at_ms)
        usd = amount / 10**sold.decimals * price_usd(sold, at)
        cost = self.rng.uniform(-0.001, 0.008)
        gotten = max(1000, int(usd * (1 - cost) / price_usd(bought, at) * 10**bought.decimals))
        if at < self.ends_ms:
            self.chain.schedule(at, lambda: self._broadcast(sold, bought, amount, gotten))
        return gotten

    def _broadcast(self, sold: SimulatedToken, bought: SimulatedToken, given: int, gotten: int) -> None:
        self.chain.swap(
            self.wallet, rng=self.rng, token_in=sold.id, token_out=bought.id, amount_in=given, amount_out=gotten
        )

    def stx_of(self, usd: float, at_ms: float) -> int:
        return max(1000, int(usd / price_usd(STX, int(at_ms)) * 10**STX.decimals))

    def moment(self, low: float = 0.0, high: float = 0.98) -> float:
        return self.starts_ms + self.rng.uniform(low, high) * (self.ends_ms - self.starts_ms)

    def choice(self, at_ms: float, until_ms: float) -> SimulatedToken:
        """Return the better of two tokens: traders know a little."""
        at, until = int(at_ms), int(min(until_ms, self.ends_ms))
        two = self.rng.sample(TOKENS, 2)
        return max(two, key=lambda token: price_usd(token, until) / price_usd(token, at))

    def trips(self, count: int, hold_hours: tuple[float, float], shares: tuple[float, float]) -> None:
        """Buy a token and sell all or nearly all of it later; then the next."""
        at = self.moment(0, 0.1)
        for _ in range(count):
            usd, until = (self.capital_usd * self.rng.uniform(*shares), at + self.rng.uniform(*hold_hours) * HOUR_MS)
            token = self.choice(at, until)
            brought = self.swap(at, STX, token, self.stx_of(usd, at))
            at = until
            if at >= self.ends_ms:
                return
            part = self.rng.choice((1.0, 1.0, 0.5, self.rng.uniform(0.3, 1)))
            self.swap(at, token, STX, max(1000, int(brought * part)))
            at += self.rng.uniform(0.2, 1) * hold_hours[1] * HOUR_MS


def holder(trader: Trader) -> None:
    """Makes a few purchases and keeps most of them."""
    for _ in range(trader.rng.randrange(3, 7)):
        at, token = trader.moment(), trader.rng.choice(TOKENS)
        brought = trader.swap(at, STX, token, trader.stx_of(trader.capital_usd * trader.rng.uniform(0.1, 0.4), at))
        if trader.rng.random() < 0.3:
            trader.swap(at + trader.rng.uniform(10, 80) * HOUR_MS, token, STX, brought)


def swing(trader: Trader) -> None:
    """Holds positions for hours to days."""
    trader.trips(trader.rng.randrange(4, 12), (4, 40), (0.1, 0.6))


def day_trader(trader: Trader) -> None:
    """Buys and sells within a day."""
    trader.trips(trader.rng.randrange(5, 10), (1, 10), (0.3, 1))


def scalper(trader: Trader) -> None:
    """Buys and sells within hours, sometimes minutes."""
    trader.trips(trader.rng.randrange(6, 18), (0.3, 6), (0.2, 0.8))


def saver(trader: Trader) -> None:
    """Buys the same round amount of the same token at the same hours."""
    stx, every = trader.rng.choice((5, 10, 10, 20, 25, 50, 100)), trader.rng.choice((4, 6, 8, 12, 24))
    token = trader.rng.choice(TOKENS)
    for number in range(7 * 24 // every):
        trader.swap(trader.starts_ms + number * every * HOUR_MS, STX, token, stx * 10**STX.decimals)


def tiny(trader: Trader) -> None:
    """Tries trades of a few cents."""
    for _ in range(trader.rng.randrange(3, 30)):
        at = trader.moment()
        trader.swap(at, STX, trader.rng.choice(TOKENS), trader.stx_of(trader.rng.uniform(0.2, 5), at))


KINDS: Mapping[Callable[[Trader], None], float] = {
    holder: 27,
    swing: 30,
    day_trader: 15,
    scalper: 5,
    saver: 18,
    tiny: 5,
}


def start_honest(chain: Chain, wallets: list[Wallet], starts_ms: int, ends_ms: int, rng: Random) -> None:
    """Let everybody trade independently, a few with much capital and many with little."""
    for wallet in wallets:
        (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
        capital_usd = min(5_000.0, 60 * rng.paretovariate(1.1))
        kind(Trader(chain, wallet, Random(rng.random()), starts_ms, ends_ms, capital_usd))


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


def quote_at(simulator: Simulator, token: SimulatedToken, factor: float) -> None:
    simulator.tenero.set_price(token.id, price_usd(token, simulator.chain.now_ms) * factor)


async def lived_through(world: World, name: str) -> Attack:
    """A round of two hours, followed from before its start until after its grace."""
    chain = world.simulator.chain
    starts_ms = chain.now_ms + HOUR_MS
    ends_ms = starts_ms + 2 * HOUR_MS + 290_000
    chain.campaign = Campaign(chain.campaign.start_s)
    rng = Random(f"{chain.seed}:{name}")
    attack = Attack(chain, list(chain.wallets), starts_ms, ends_ms, 500, rng)
    ATTACKS[name](attack)
    for quote in attack.quotes:
        if quote.factor is not None:
            chain.schedule(quote.at_ms, partial(quote_at, world.simulator, quote.token, quote.factor))
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
