"""Scoring equals a straightforward computation with fractions, whatever the competition."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.types import Row
from support.random_rounds import round_inputs
from tocsin.rounds.accounts import TradingAccounts, agent_scores
from tocsin.rounds.capture import swaps_in_order
from tocsin.rounds.file import file_lines, parts_of
from tocsin.rounds.round import (
    AgentFlag,
    PriceSource,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundPrice,
    RoundRules,
    RoundSwap,
)
from tocsin.rounds.score import ranked, rewards, score, scoring, with_pauses
from tocsin.rounds.steps import parts_with_pauses
from tocsin.swaps.values import SwapWorth

T = TypeVar("T")

SWAPS = 40_000  # of a big round
USDA = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"
RULES = RoundRules("week-1", 1_000, 2_000, 5_600, rewards={"overall_pnl": 100, "volume": 50, "return": 25})
PRICES = [RoundPrice("stx", "0.5", 6, "peg", 0), RoundPrice("usd", "1", 6, "peg", 0)]


def expected(inputs: RoundInputs, flags: list[AgentFlag]) -> dict[str, Any]:
    """Compute the results and rewards by the rules, swap by swap, without regard to speed."""
    rules = inputs.rules
    worth: dict[str, Fraction] = {}
    thin = set()
    for price in inputs.prices:
        held, traded = price.liquidity_usd, price.volume_usd
        unknown = held is None and price.token_id not in rules.core_tokens
        low = (unknown and Fraction(rules.min_liquidity_usd) > 0) or (
            held is not None and Fraction(held) < Fraction(rules.min_liquidity_usd)
        )
        quiet = traded is not None and Fraction(traded) < Fraction(rules.min_day_volume_usd)
        if price.source == "tenero" and (low or quiet):
            thin.add(price.token_id)
        worth[price.token_id] = Fraction(price.price_usd) / Fraction(10) ** price.decimals
    identity = {agent.stx_address: agent.erc8004_agent_id for agent in inputs.agents}
    by_agent: dict[int, list[RoundSwap]] = defaultdict(list)
    for swap in inputs.swaps:
        if swap.sender in identity and rules.starts_at <= swap.burn_block_time and swap.burn_block_time < rules.ends_at:
            by_agent[identity[swap.sender]].append(swap)
    rows = [_expected_row(agent_id, swaps, worth, thin, inputs) for agent_id, swaps in by_agent.items()]
    rows.sort(key=lambda row: row["stx_address"])
    rows.sort(key=lambda row: row["latest_trade_at"])
    rows.sort(key=lambda row: row["volume_usd"], reverse=True)
    rows.sort(key=lambda row: row["pnl_usd"], reverse=True)
    rows.sort(key=lambda row: row["priced_trade_count"] == 0)
    excluded = {(flag.erc8004_agent_id, each) for flag in flags if not flag.cleared for each in flag.excludes_from}
    able = {
        category: [
            row for row in rows if row["priced_trade_count"] > 0 and (row["erc8004_agent_id"], category) not in excluded
        ]
        for category in ("overall_pnl", "volume", "return")
    }
    serious = [
        row
        for row in able["return"]
        if row["volume_usd"] >= Fraction(rules.min_volume_usd)
        and row["priced_trade_count"] - row["dust_trade_count"] >= rules.min_priced_trade_count
    ]
    winners = {
        "overall_pnl": able["overall_pnl"][:1],
        "volume": sorted(able["volume"], key=lambda row: -row["volume_usd"])[:1],
        "return": sorted(serious, key=lambda row: (-row["pnl_usd"] / row["volume_usd"], -row["volume_usd"]))[:1],
    }
    return {
        "results": rows,
        "rewards": [
            (category, rows.index(row) + 1, row["stx_address"], rules.rewards.get(category, 0))
            for category, found in winners.items()
            for row in found
        ],
    }


def _is_excessive(worth: SwapWorth) -> bool:
    sides = ((worth.given_usd, worth.given_liquidity_usd), (worth.received_usd, worth.received_liquidity_usd))
    if any(usd is not None and held is not None and Fraction(usd) > Fraction(held) for usd, held in sides):
        return True
    if worth.given_usd is None or worth.received_usd is None:
        return False
    return Fraction(worth.received_usd) > 5 * Fraction(worth.given_usd)


def _expected_row(
    agent_id: int, swaps: list[RoundSwap], worth: dict[str, Fraction], thin: set[str], inputs: RoundInputs
) -> dict[str, Any]:
    swaps = sorted(swaps, key=lambda swap: (swap.block_height, swap.tx_index, swap.txid))
    usable = worth.keys() - thin
    excessive = {each.txid for each in inputs.excesses if _is_excessive(each)}
    valued = [swap for swap in swaps if swap.txid not in excessive]
    priced = [swap for swap in valued if {swap.token_in, swap.token_out} <= usable]
    volume = sum((int(swap.amount_in) * worth[swap.token_in] for swap in priced), Fraction(0))
    received = sum((int(swap.amount_out) * worth[swap.token_out] for swap in priced), Fraction(0))
    net: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    for swap in priced:
        net[swap.token_in] += int(swap.amount_in)
        most[swap.token_in] = max(most[swap.token_in], net[swap.token_in])
        net[swap.token_out] -= int(swap.amount_out)
    addresses = {swap.sender for swap in swaps}
    last = {address: max(s.burn_block_time for s in swaps if s.sender == address) for address in addresses}
    ordered = sorted(sorted(addresses), key=lambda address: last[address], reverse=True)
    tokens = {token for swap in valued for token in (swap.token_in, swap.token_out)}
    return {
        "stx_address": ordered[0],
        "btc_address": next(a.btc_address for a in inputs.agents if a.stx_address == ordered[0]),
        "erc8004_agent_id": agent_id,
        "trade_count": len(swaps),
        "priced_trade_count": len(priced),
        "unpriced_trade_count": len(swaps) - len(priced),
        "dust_trade_count": len(
            [s for s in priced if int(s.amount_in) * worth[s.token_in] < Fraction(inputs.rules.dust_usd)]
        ),
        "volume_usd": volume,
        "received_usd": received,
        "pnl_usd": received - volume,
        "capital_usd": sum((most[token] * worth[token] for token in most), Fraction(0)),
        "latest_trade_at": max(last.values()),
        "source_counts": {
            name: len([swap for swap in swaps if swap.source == name]) for name in ("agent", "cron", "chainhook")
        },
        "unpriced_tokens": sorted(tokens - worth.keys()),
        "thin_tokens": sorted(tokens & thin),
        "wallets": ordered,
    }


@given(round_inputs())
def test_it_equals_a_straightforward_computation_with_fractions(inputs: RoundInputs) -> None:
    """Every figure, the order and the prizes; `pnl_percent` is right to 12 digits."""
    outcome = score(inputs)
    should = expected(inputs, outcome.flags)
    assert [result.rank for result in outcome.results] == list(range(1, len(should["results"]) + 1))
    for result, row in zip(outcome.results, should["results"], strict=True):
        found = asdict(result)
        for money in ("volume_usd", "received_usd", "pnl_usd", "capital_usd"):
            found[money] = Fraction(found[money])
        assert {name: found[name] for name in row} == row
        _check_percent(result.pnl_percent, row)
    rewards = [(won.category, won.rank, won.stx_address, won.amount_sats) for won in outcome.rewards]
    assert rewards == should["rewards"]


def _check_percent(text: str | None, row: dict[str, Any]) -> None:
    if row["volume_usd"] == 0:
        assert text is None
        return
    assert text is not None
    exact = row["pnl_usd"] / row["volume_usd"]
    assert abs(Fraction(text) - exact) <= abs(exact) / 10**11 / 2
    assert len(text.strip("-0.").replace(".", "").strip("0")) <= 12


@settings(max_examples=30)
@given(round_inputs(), st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_does_not_matter(inputs: RoundInputs, shuffled: random.Random) -> None:
    """A reader of rows from a database need not sort them."""

    def mixed(values: list[Any]) -> list[Any]:
        return shuffled.sample(values, len(values))

    other = replace(
        inputs,
        agents=mixed(inputs.agents),
        prices=mixed(inputs.prices),
        swaps=mixed(inputs.swaps),
        refusals=mixed(inputs.refusals),
        decisions=mixed(inputs.decisions),
    )
    outcome = score(inputs)
    assert score(other) == outcome
    assert [*file_lines(other, outcome)] == [*file_lines(inputs, outcome)]


def agent(address: str, agent_id: int) -> RoundAgent:
    return RoundAgent(address, f"bc1{address}", agent_id)


def swap(sender: str, given: str, received: str, at: int = 1_500, height: int = 1) -> RoundSwap:
    """Amounts are like `2 stx`."""
    (amount_in, token_in), (amount_out, token_out) = given.split(), received.split()
    return RoundSwap(
        *(f"0x{height:032x}{sender.encode().hex():0>32}", sender, "SP1.pool", "swap"),
        *(token_in, f"{amount_in}000000", token_out, f"{amount_out}000000"),
        *(at, height, 0),
        source="cron",
    )


def inputs_of(*swaps: RoundSwap, **other: Any) -> RoundInputs:
    agents = [agent("SPA", 1), agent("SPB", 2), agent("SPC", 3)]
    return RoundInputs(other.pop("rules", RULES), "v1", None, other.pop("agents", agents), PRICES, [*swaps], **other)


def test_ties_are_broken_by_volume_then_time_then_address() -> None:
    """A and C differ only in the address; B has the greater volume."""
    outcome = score(
        inputs_of(swap("SPC", "10 usd", "20 stx"), swap("SPA", "10 usd", "20 stx"), swap("SPB", "20 usd", "40 stx"))
    )
    assert [result.stx_address for result in outcome.results] == ["SPB", "SPA", "SPC"]
    later = score(inputs_of(swap("SPC", "10 usd", "20 stx"), swap("SPA", "10 usd", "20 stx", at=1_501)))
    assert [result.stx_address for result in later.results] == ["SPC", "SPA"]


def test_a_swap_at_the_end_belongs_to_the_next_round() -> None:
    """And one at the start to this one."""
    starts_at, ends_at = RULES.starts_at, RULES.ends_at
    times = {"SPA": starts_at - 1, "SPB": starts_at, "SPC": ends_at}
    outcome = score(inputs_of(*(swap(sender, "10 usd", "20 stx", at=at) for sender, at in times.items())))
    assert [result.stx_address for result in outcome.results] == ["SPB"]


def test_an_agent_without_a_priced_trade_comes_after_one_who_lost() -> None:
    outcome = score(inputs_of(swap("SPA", "1 usd", "5 none"), swap("SPB", "10 usd", "1 stx")))
    assert [(result.stx_address, result.pnl_usd) for result in outcome.results] == [("SPB", "-9.5"), ("SPA", "0")]
    assert outcome.results[1].pnl_percent is None
    assert outcome.results[1].unpriced_tokens == ["none"]
    assert {won.stx_address for won in outcome.rewards} == {"SPB"}


def test_capital_does_not_grow_by_trading_the_same_money_again() -> None:
    """Trading 100 USD back and forth ten times is a volume of 2,000 USD and a capital of 100 USD."""
    there_and_back = [
        swap("SPA", *pair, height=2 * number + turn)
        for number in range(10)
        for turn, pair in enumerate((("100 usd", "200 stx"), ("200 stx", "100 usd")))
    ]
    (result,) = score(inputs_of(*there_and_back)).results
    assert (result.volume_usd, result.capital_usd, result.pnl_usd) == ("2000", "100", "0")


def test_wallets_of_one_identity_are_one_agent() -> None:
    """The wallet that traded last is shown; the money of both is one."""
    rotated = [agent("SPA", 1), agent("SPB", 1)]
    (result,) = score(
        inputs_of(
            swap("SPA", "10 usd", "20 stx", height=1, at=1_100),
            swap("SPB", "20 stx", "11 usd", height=2, at=1_200),
            agents=rotated,
        )
    ).results
    assert (result.stx_address, result.wallets) == ("SPB", ["SPB", "SPA"])
    assert (result.capital_usd, result.pnl_usd) == ("10", "1")


def test_a_flag_gives_the_prizes_that_it_excludes_from_to_the_next() -> None:
    """The rank stays. A flag that an operator cleared excludes from nothing."""
    swaps = [swap("SPA", "100 usd", "400 stx"), swap("SPB", "60 usd", "121 stx")]
    inputs = inputs_of(*swaps)
    accounts = TradingAccounts(inputs)
    accounts.take(inputs.swaps)
    for account in accounts.by_agent.values():
        [*account.book(accounts.units)]
    scores = ranked(agent_scores(accounts, RULES))
    flag = AgentFlag(1, "ring", "mirrored trades", [], ["overall_pnl", "return"])
    assert [(won.category, won.rank, won.amount_sats) for won in rewards(RULES, scores, [flag])] == [
        ("overall_pnl", 2, 100),
        ("volume", 1, 50),
    ]
    cleared = rewards(RULES, scores, [replace(flag, cleared=True)])
    assert [(won.category, won.rank) for won in cleared] == [("overall_pnl", 1), ("volume", 1)]


def test_the_prize_for_return_needs_volume_and_trades_that_are_not_dust() -> None:
    """Three trades, one of them of half a dollar: two count."""
    swaps = [
        swap("SPA", "60 usd", "200 stx", height=1),
        swap("SPA", "60 usd", "200 stx", height=2),
        swap("SPA", "1 stx", "1 usd", height=3),
    ]
    one_short = score(inputs_of(*swaps))
    assert one_short.results[0].dust_trade_count == 1
    assert [won.category for won in one_short.rewards] == ["overall_pnl", "volume"]
    enough = score(inputs_of(*swaps, rules=replace(RULES, min_priced_trade_count=2)))
    assert [won.category for won in enough.rewards] == ["overall_pnl", "volume", "return"]


@pytest.mark.parametrize(
    ("liquidity", "volume", "source", "thin"),
    [
        ("10000", "500", "tenero", False),
        ("9999.999", "500", "tenero", True),
        ("10000", "499.999", "tenero", True),
        (None, "500", "tenero", True),
        ("10000", None, "tenero", False),
        (None, None, "peg", False),
        ("1", "1", "manual_admin", False),
    ],
)
def test_a_token_below_a_floor_is_thin(
    liquidity: str | None, volume: str | None, source: PriceSource, thin: bool
) -> None:
    """Missing liquidity counts as below the floor, missing volume does not; pegs and set prices have no floor."""
    price = RoundPrice("new", "500", 0, source, 0, liquidity, volume)
    inputs = replace(inputs_of(swap("SPA", "1 usd", "5 new")), prices=[*PRICES, price])
    (result,) = score(inputs).results
    assert (result.thin_tokens, result.priced_trade_count) == ((["new"], 0) if thin else ([], 1))


def test_a_core_token_counts_when_tenero_does_not_tell_its_pools() -> None:
    """A source that leaves STX out must not empty the result; reported figures count as for any other token."""
    for liquidity, counts in ((None, 1), ("9999", 0)):
        prices = [RoundPrice("usd", "1", 0, "peg", 0), RoundPrice("stx", "0.5", 0, "tenero", 0, liquidity, None)]
        inputs = replace(inputs_of(swap("SPA", "1 usd", "2 stx")), prices=prices)
        assert score(inputs).results[0].priced_trade_count == counts


def test_a_floor_of_zero_is_no_floor() -> None:
    price = RoundPrice("new", "500", 0, "tenero", 0)
    rules = replace(RULES, min_liquidity_usd="0", min_day_volume_usd="0")
    inputs = replace(inputs_of(swap("SPA", "1 usd", "5 new"), rules=rules), prices=[*PRICES, price])
    assert score(inputs).results[0].priced_trade_count == 1


def test_capital_follows_the_order_within_a_block() -> None:
    """First 10 USD out and in again, then 10 USD out: never more than 10. The ids are in another order."""
    steps = (("10 usd", "20 stx"), ("20 stx", "10 usd"), ("10 usd", "20 stx"))
    swaps = [
        swap("SPA", *step)._replace(tx_index=index, txid=f"0x{order:064x}")
        for index, (step, order) in enumerate(zip(steps, (2, 3, 1), strict=True))
    ]
    assert score(inputs_of(*swaps)).results[0].capital_usd == "10"


def test_an_amount_is_dust_when_it_is_worth_less_than_the_limit() -> None:
    """1.6 USD is 3.2 STX at 0.50 USD: 3 STX are dust, and 4 are not; 1.60 USD itself is not."""
    swaps = [
        swap("SPA", "3 stx", "1 usd", height=1),
        swap("SPA", "4 stx", "1 usd", height=2),
        swap("SPA", "2 usd", "1 stx", height=3)._replace(amount_in="1600000"),
        swap("SPA", "2 usd", "1 stx", height=4)._replace(amount_in="1599999"),
    ]
    whole = [RoundPrice("stx", "500000", 6, "peg", 0), RoundPrice("usd", "1", 6, "peg", 0)]  # 1 unit is 0.50 USD
    units = [one._replace(amount_in=one.amount_in[:1]) for one in swaps[:2]]
    rules = replace(RULES, dust_usd="1.6")
    assert score(inputs_of(*swaps, rules=rules)).results[0].dust_trade_count == 2
    coarse = replace(inputs_of(*units, rules=rules), prices=whole)
    assert score(coarse).results[0].dust_trade_count == 1


def best_return(outcome: RoundOutcome) -> list[str]:
    return [won.stx_address for won in outcome.rewards if won.category == "return"]


def test_equal_returns_are_decided_by_volume() -> None:
    """Exactly the least volume is enough. B has the same return on more, A the earlier address."""
    rules = replace(RULES, min_priced_trade_count=1)
    swaps = [swap("SPA", "50 usd", "110 stx"), swap("SPB", "60 usd", "132 stx")]
    both, alone = score(inputs_of(*swaps, rules=rules)), score(inputs_of(swaps[0], rules=rules))
    assert best_return(both) == ["SPB"]
    assert best_return(alone) == ["SPA"]


def test_a_loss_makes_the_smaller_volume_no_better() -> None:
    """Both lost a tenth: B on more, which ranks it after A, and the prize for return goes to B."""
    rules = replace(RULES, min_priced_trade_count=1)
    swaps = [swap("SPA", "50 usd", "90 stx"), swap("SPB", "60 usd", "108 stx")]
    outcome = score(inputs_of(*swaps, rules=rules))
    assert [result.stx_address for result in outcome.results] == ["SPA", "SPB"]
    assert best_return(outcome) == ["SPB"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"agents": [agent("SPA", 1), agent("SPA", 2)]}, "SPA is listed twice"),
        ({"prices": [*PRICES, PRICES[0]]}, "stx has two prices"),
        ({"prices": [replace(PRICES[0], price_usd="0")]}, "A price is above 0"),
        ({"prices": [replace(PRICES[0], price_usd="1e5")]}, "A decimal number looks like"),
        ({"prices": [replace(PRICES[0], decimals=39)]}, "A token has 0 to 38 decimals"),
        ({"rules": replace(RULES, dust_usd="-1")}, "dust_usd is 0 or above"),
    ],
)
def test_inputs_that_cannot_be_are_refused(change: dict[str, Any], sentence: str) -> None:
    """None of them may lead to a number that depends on the order of the rows."""
    with pytest.raises(UsageError, match=sentence):
        score(replace(inputs_of(), **change))


# While a big round is closed, the event loop continues its other work. Turns of the loop are counted


def big_round() -> RoundInputs:
    """All swaps are of one agent, the worst case, and go there and back, so that everything is matched."""
    swaps = [
        RoundSwap(
            *(f"0x{number:064x}", "SP1", "SP.pool", "swap"),
            *(("stx", "1000000", USDA, "1000000") if number % 2 else (USDA, "1000000", "stx", "1000000")),
            *(1_000 + number, number // 7, number % 7, "cron"),
        )
        for number in range(SWAPS)
    ]
    prices = [RoundPrice(token, "1", 6, "manual_admin", 0) for token in ("stx", USDA)]
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


async def test_putting_swaps_in_order_pauses() -> None:
    """At least once for every 500 blocks of the chain."""
    inputs = big_round()

    async def pages() -> AsyncIterator[list[Row]]:
        backwards = [swap._asdict() for swap in reversed(inputs.swaps)]
        for first in range(0, SWAPS, 2_000):
            yield backwards[first : first + 2_000]

    turns, swaps = await turns_during(swaps_in_order(pages()))

    assert turns >= SWAPS // 7 // 500
    assert swaps == inputs.swaps
