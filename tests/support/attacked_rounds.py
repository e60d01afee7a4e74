"""Rounds on simulated chains: honest agents on one, an attack on another, and the combined inputs.

`unprotected_winners` is the result of a naive board: it counts every swap that was ever broadcast, treats each wallet
as an agent, and uses the prices of the last moment. An attack that wins nothing there would prove nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from statistics import median_low

from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction, SimulatedCall
from stacks_simulator.tokens import TRADED_TOKENS, SimulatedToken, price_usd
from stacks_simulator.truth import COMPETITION_START_S, Campaign
from stacks_simulator.wallets import Wallet
from support.attacks import ATTACKS, Attack, QuoteChange
from support.honest_traders import start_honest
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
from tocsin.swaps.values import SwapWorth, excess_of
from tocsin.text import decimal_of_float, decimal_text, usd_value

STARTS_S = COMPETITION_START_S + 86_400
ENDS_S = STARTS_S + 7 * 86_400 + 290  # halfway between two Bitcoin blocks
HONEST = 33  # 27 of them are eligible
ATTACKERS = 8
LIQUIDITY_USD = 250_000
CHAIN_START_MS = (STARTS_S - 7_200) * 1000
SETTLED_MS = (ENDS_S + 7_200) * 1000
RULES = RoundRules("week-1", STARTS_S, ENDS_S, ENDS_S + 3_600, rewards={"overall_pnl": 3, "volume": 2, "return": 1})


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


def agent_of(wallet: Wallet, first_funder: str | None = None) -> RoundAgent:
    assert wallet.erc8004_agent_id is not None
    return RoundAgent(
        wallet.address, wallet.btc_address, wallet.erc8004_agent_id, owner=wallet.owner, first_funder=first_funder
    )


def swap_of(tx: ChainTransaction) -> RoundSwap:
    """Return a swap as captured; one that is not on the chain is placed in the middle of the round."""
    assert tx.swap is not None
    assert isinstance(tx.payload, SimulatedCall)
    inside = tx.block is not None and STARTS_S <= tx.block.burn_time_s < ENDS_S and tx.state == "mined"
    time, height = (tx.block.burn_time_s, tx.block.height) if inside and tx.block else (STARTS_S + 9, 1)
    return RoundSwap(
        txid=tx.tx_id,
        sender=tx.sender,
        contract_id=tx.payload.contract,
        function_name=tx.payload.function,
        token_in=tx.swap.token_in,
        amount_in=str(tx.swap.amount_in),
        token_out=tx.swap.token_out,
        amount_out=str(tx.swap.amount_out),
        burn_block_time=time,
        block_height=height,
        tx_index=tx.index,
        source="cron",
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
            usd(swap.token_in, swap.amount_in, swap.burn_block_time),
            held(swap.token_in),
            usd(swap.token_out, swap.amount_out, swap.burn_block_time),
            held(swap.token_out),
        )
        for swap in swaps
    ]
    return [worth for worth in worths if excess_of(worth) is not None]


def prices(quotes: Sequence[QuoteChange], *, at_once: bool = False) -> list[RoundPrice]:
    """Return the prices of the end: the lower median of thirteen instants of the last hour, or the last price."""
    instants = [(ENDS_S - 300 * k) * 1000 for k in range(1 if at_once else 13)]
    return [
        RoundPrice(
            token_id=token.id,
            price_usd=decimal_text(decimal_of_float(median_low(quoted(token, at, quotes) for at in instants))),
            decimals=token.decimals,
            source="peg" if token.base_price == 1.0 else "tenero",
            at=instants[0],
            liquidity_usd=str(
                next(
                    (quote.liquidity_usd for quote in quotes if quote.token == token and quote.liquidity_usd),
                    LIQUIDITY_USD,
                )
            ),
            volume_usd="18000",
        )
        for token in sorted(TRADED_TOKENS, key=lambda token: token.id)
    ]


def quoted(token: SimulatedToken, at_ms: int, quotes: Iterable[QuoteChange]) -> float:
    if token.base_price == 1.0:
        return 1.0
    factors = [quote.factor for quote in quotes if quote.token == token and quote.at_ms <= at_ms and quote.factor]
    return price_usd(token, at_ms) * (factors[-1] if factors else 1)
