"""Flags from the inputs of a round: what each recognizes, what it leaves alone, and what operators decide about it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.attacks import ATTACKS
from tocsin.rounds import thresholds
from tocsin.rounds.round import (
    AgentFlag,
    FlagDecision,
    FlagKind,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundPrice,
    RoundRules,
    RoundSwap,
)
from tocsin.rounds.score import score
from tocsin.swaps.lists import FUNDING_MIN, SERVICE_NONCE
from tocsin.swaps.values import EXCESS_FACTOR

PAGE = (Path(__file__).parents[2] / "docs" / "fair-play.md").read_text(encoding="utf-8")
START = 1_800_000_000
HOUR = 3_600
RULES = RoundRules("w", START, START + 7 * 24 * HOUR, START + 8 * 24 * HOUR)
PRICES = [
    RoundPrice("stx", "1", 6, "tenero", 0, "1000000", "1000000"),
    RoundPrice("A.a::usd", "1", 6, "peg", 0),
    RoundPrice("B.b::btc", "100000", 8, "tenero", 0, "1000000", "1000000"),
]
STX, USD, BTC = "stx", "A.a::usd", "B.b::btc"
TOKENS = st.permutations([STX, USD, BTC])
TRADE = st.tuples(st.integers(1, 4), TOKENS, st.integers(1, 500), st.integers(1, 500), st.integers(0, 9_000))
UNIT = {STX: 10**6, USD: 10**6, BTC: 1_000}  # of a dollar's worth


def agent(number: int, *, funder: str | None = None, owner: str | None = None, wallet: str = "") -> RoundAgent:
    return RoundAgent(wallet or f"SP{number}", f"bc1{number}", number, owner=owner, first_funder=funder)


class Trades:
    """Swaps in order, in dollars."""

    def __init__(self) -> None:
        self.swaps: list[RoundSwap] = []

    def swap(self, sender: str, sold: str, given: float, bought: str, gotten: float, minute: float) -> None:
        number = len(self.swaps)
        self.swaps.append(
            RoundSwap(
                *(f"0x{number:064x}", sender, "C.c", "swap"),
                *(sold, str(round(given * UNIT[sold])), bought, str(round(gotten * UNIT[bought]))),
                *(START + int(minute * 60), int(minute * 12), number, "cron"),
            )
        )


def outcome(
    agents: Sequence[RoundAgent], trades: Trades, decisions: Iterable[FlagDecision] = (), rules: RoundRules = RULES
) -> RoundOutcome:
    return score(RoundInputs(rules, "v", None, list(agents), PRICES, trades.swaps, [], list(decisions)))


def flags(found: RoundOutcome) -> list[tuple[int, str, list[str]]]:
    return [(flag.erc8004_agent_id, flag.kind, list(flag.excludes_from)) for flag in found.flags]


def winners(found: RoundOutcome) -> dict[str, int]:
    return {reward.category: reward.erc8004_agent_id for reward in found.rewards}


def flags_of(trades: Trades, *agents: RoundAgent) -> list[tuple[int, str, list[str]]]:
    return flags(outcome(agents or [agent(1)], trades))


def kinds_of(trades: Trades, *agents: RoundAgent) -> list[str]:
    return [kind for _, kind, _ in flags_of(trades, *agents)]


def decided(
    number: int, decision: Literal["clear", "exclude"], kind: FlagKind | None = None, at: str = "2027-01-15T09:00:00Z"
) -> FlagDecision:
    return FlagDecision(number, decision, kind, "looked at it", "ops", at)


HONEST, TWO = agent(3), (agent(1), agent(2))


def with_honest(trades: Trades) -> Trades:
    """Add a third agent that gains a little, but less than the first."""
    for at in range(3):
        trades.swap("SP3", STX, 100, BTC, 101, 500 * at)
    return trades


def churned(trips: int = 4, *, minutes: float = 20, gain: float = 0.994, parts: int = 1) -> Trades:
    trades = Trades()
    for trip in range(trips):
        at = trip * 200
        trades.swap("SP1", STX, 100, USD, 100, at)
        for _ in range(parts):
            trades.swap("SP1", USD, 100 / parts, STX, 100 * gain / parts, at + minutes)
    return trades


def opposite(trades: Trades, *senders: str) -> Trades:
    """The first gains 50, the others lose 45 each; the honest one gains 3."""
    with_honest(trades)
    for at in range(3):
        trades.swap(senders[0], STX, 200, BTC, 200 + 50 / 3, 100 * at + 7)
        for other in senders[1:]:
            trades.swap(other, BTC, 150 + at, STX, 135 + at, 100 * at + 77)
    return trades


# Churn


def test_four_trips_there_and_back_are_churn() -> None:
    """They exclude from the prize for volume, and nothing else reaches the floors of the return."""
    trades = churned()
    found = outcome([agent(1)], trades)

    assert flags(found) == [(1, "churn", ["volume", "return"])]
    assert found.flags[0].reason == (
        "8 of 8 trades went there and back within an hour: 800 USD of 800 USD, which earned nearly nothing"
    )
    assert found.flags[0].txids == [swap.txid for swap in trades.swaps[:5]]
    assert winners(found) == {"overall_pnl": 1}


@pytest.mark.parametrize(
    ("trips", "other_usd", "is_churn"),
    [
        ({"trips": 3}, 0, False),
        ({"parts": 3}, 0, True),  # what comes back in parts
        ({"minutes": 60, "gain": 1.0}, 0, True),  # within an hour includes the hour
        ({"minutes": 60 + 1 / 60, "gain": 1.0}, 0, False),
        ({"gain": 1.0}, 800, True),  # half of the volume
        ({"gain": 1.0}, 801, False),
        ({"gain": 1.00199}, 0, True),
        ({"gain": 1.002}, 0, False),  # 0.2 USD of 200 that went there and back: 0.1 %
    ],
)
def test_the_bounds_of_churn(trips: dict[str, Any], other_usd: float, is_churn: bool) -> None:
    """Four trips with 100 USD there and 100 USD back, next to one trade of another pair."""
    trades = churned(**trips)
    if other_usd:
        trades.swap("SP1", STX, other_usd, BTC, other_usd, 5_000)

    assert kinds_of(trades) == ["churn"] * is_churn


@pytest.mark.parametrize(
    "legs",
    [
        # A tenth of each 100 USD comes back: 80 of 440 USD are no churn.
        ((STX, 100, USD, 100, 0), (USD, 10, STX, 10, 20)),
        # What was given back does not go back again: 10 USD there, 100 back, 300 there, of which 10 and 90 count.
        ((STX, 10, USD, 10, 0), (USD, 100, STX, 100, 10), (STX, 300, USD, 200, 20)),
    ],
)
def test_only_the_part_that_came_back_went_there_and_back(legs: tuple[tuple[str, float, str, float, int], ...]) -> None:
    """It is less than half of the volume."""
    trades = Trades()
    for trip in range(4):
        for sold, given_usd, bought, gotten_usd, minute in legs:
            trades.swap("SP1", sold, given_usd, bought, gotten_usd, trip * 200 + minute)

    assert flags_of(trades) == []


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((20, 20, 10), ["volume"]),
        ((20, 20, 9.99), ["volume", "return"]),
        ((30, 30, 0.99), ["volume", "return"]),  # dust is no trade for the return
        ((30, 30, 1), ["volume"]),
    ],
)
def test_the_floors_of_the_return_are_reached_without_churning(others: tuple[float, ...], expected: list[str]) -> None:
    """50 USD and three trades that are not dust, besides the churning."""
    trades = churned()
    for at, usd in enumerate(others):
        trades.swap("SP1", STX, usd, BTC, usd, 2_000 + 100 * at)

    assert flags_of(trades) == [(1, "churn", expected)]


@pytest.mark.parametrize(
    ("legs", "gain", "expected"),
    [(20, 1.0, []), (21, 1.0, ["volume"]), (20, 0.999, []), (24, 0.999, ["volume"]), (24, 1.002, [])],
)
def test_capital_turned_over_more_than_twenty_times_for_nothing_is_churn(
    legs: int, gain: float, expected: list[str]
) -> None:
    """However slowly, and through however many tokens."""
    trades, loop = Trades(), (STX, USD, BTC)
    for leg in range(legs):
        sold, bought = loop[leg % 3], loop[(leg + 1) % 3]
        trades.swap("SP1", sold, 100 * gain**leg, bought, 100 * gain ** (leg + 1), 100 * leg)

    assert flags_of(trades) == ([(1, "churn", expected)] if expected else [])


def test_the_return_stays_with_who_reaches_the_floors_without_churning() -> None:
    """An agent that churned less than half of its volume keeps all prizes."""
    trades = churned()
    for at in range(3):
        trades.swap("SP1", STX, 100, BTC, 105, 2_000 + at)
    assert flags_of(trades) == [(1, "churn", ["volume"])]

    for at in range(6):
        trades.swap("SP1", STX, 100, BTC, 105, 3_000 + at)
    assert flags_of(trades) == []


# Rings


def mirrored(trades: Trades, matches: int = 5, *, minutes: float = 30, off: float = 1.0) -> Trades:
    """One buys what the other sells; the first gains 5 %, the second loses as much."""
    for number in range(matches):
        at, usd = number * 300 + 30, 100 + 17 * number
        trades.swap("SP1", STX, usd, BTC, usd * 1.05, at)
        trades.swap("SP2", BTC, usd * 1.05 * off, STX, usd * off, at + minutes)
    return trades


def test_mirrored_trades_win_nothing_for_either() -> None:
    """The two together lose nothing and gain nothing: an agent that gains a little alone is better."""
    trades = mirrored(with_honest(Trades()))
    found = outcome([agent(1), agent(2), HONEST], trades)

    assert flags(found) == [(1, "ring", ["overall_pnl", "return"]), (2, "ring", ["overall_pnl", "volume", "return"])]
    assert found.flags[0].reason == ("traded the same amounts within an hour as agent 2 (5 trades, mirrored)")
    assert winners(found) == {"overall_pnl": 3, "volume": 1, "return": 3}


@pytest.mark.parametrize(
    ("matches", "minutes", "off", "is_ring"),
    [(5, 30, 1.0, True), (5, -30, 1.0, True), (4, 30, 1.0, False), (5, 61, 1.0, False), (5, 30, 1.03, False)],
)
def test_few_distant_or_different_trades_are_no_ring(matches: int, minutes: float, off: float, is_ring: bool) -> None:
    """Whoever came first: the window extends both ways."""
    trades = mirrored(Trades(), matches, minutes=minutes, off=off)

    assert kinds_of(trades, *TWO) == ["ring"] * 2 * is_ring


def test_a_fifth_of_the_volume_must_match() -> None:
    trades = mirrored(Trades())
    for at in range(6):
        for sender in ("SP1", "SP2"):
            trades.swap(sender, STX, 1_000 + 100 * at, USD, 1_000, 4_000 + 100 * at + 70 * (sender == "SP1"))

    assert flags_of(trades, *TWO) == []


@pytest.mark.parametrize("large", ["SP1", "SP2"])
@pytest.mark.parametrize("mirrors", [True, False])
def test_a_large_trader_does_not_shield_its_small_copies(large: str, mirrors: bool) -> None:
    """Volumes of 1 to 100: the matching trades make up the smaller one, and a hundredth of the larger."""
    trades = Trades()
    for number in range(10):
        at, usd = number * 300, 100 + 17 * number
        trades.swap("SP1", STX, usd, BTC, usd, at)
        copied = (BTC, usd, STX, usd) if mirrors else (STX, usd, BTC, usd)
        trades.swap("SP2", *copied, at + 30)
    for at in range(10):
        trades.swap(large, STX, 17_650, USD, 17_650, 4_000 + 100 * at)

    assert kinds_of(trades, *TWO) == ["ring", "ring"]


@pytest.mark.parametrize("mirrors", [True, False])
@pytest.mark.parametrize(("more", "is_ring"), [(0, True), (4, False)])
def test_a_fifth_is_measured_on_the_trades_of_the_smaller_agent(more: float, is_ring: bool, mirrors: bool) -> None:
    """Its own matching trades are exactly a fifth of its volume; those of the other are worth a little more."""
    trades = Trades()
    for number in range(5):
        usd = 100 + 20 * number
        trades.swap("SP2", STX, usd, BTC, usd, number * 300)
        copied = (BTC, usd * 1.01, STX, usd * 1.01) if mirrors else (STX, usd * 1.01, BTC, usd * 1.01)
        trades.swap("SP1", *copied, number * 300 + 30)
    trades.swap("SP2", STX, 4 * 700 + more, USD, 2_800, 4_000)
    trades.swap("SP1", STX, 90_000, USD, 90_000, 5_000)

    assert kinds_of(trades, *TWO) == ["ring"] * 2 * is_ring


@pytest.mark.parametrize(
    ("minutes", "first", "second", "is_ring"),
    [
        *((60, 100, 100, True), (60 + 1 / 60, 100, 100, False)),
        *((30, 100, 98, True), (30, 98, 100, True), (30, 100, 97.9, False), (30, 97.9, 100, False)),
    ],
)
def test_a_match_is_at_most_an_hour_and_two_per_cent_apart(
    minutes: float, first: float, second: float, is_ring: bool
) -> None:
    """The bounds themselves belong to it; two percent are of the larger amount, whichever came first."""
    trades = Trades()
    for number in range(5):
        times = 2**number
        trades.swap("SP1", STX, first * times, BTC, first * times, number * 300)
        trades.swap("SP2", BTC, second * times, STX, second * times, number * 300 + minutes)

    assert kinds_of(trades, *TWO) == ["ring"] * 2 * is_ring


@pytest.mark.parametrize("many", ["SP1", "SP2"])
def test_five_trades_of_each_must_mirror_the_other(many: str) -> None:
    """Ten equal trades of one agent that mirror a single one of the other are no ring."""
    trades = Trades()
    other = "SP2" if many == "SP1" else "SP1"
    trades.swap(other, BTC, 100, STX, 100, 30)
    for minute in range(10):
        trades.swap(many, STX, 100, BTC, 100, 20 + 2 * minute)

    assert flags_of(trades, *TWO) == []


def test_the_same_round_amount_every_day_is_no_ring_but_five_amounts_are() -> None:
    """Savers who all buy for ten STX do not copy each other."""
    for amounts, expected in ((1, set()), (5, {"ring"})):
        trades = Trades()
        for day in range(7):
            usd = 10 * 2 ** (day % amounts)
            for sender in ("SP1", "SP2"):
                trades.swap(sender, STX, usd, BTC, usd, day * 1_440)

        assert set(kinds_of(trades, *TWO)) == expected


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.integers(10**4, 10**14),
    st.integers(10**4, 10**14),
    st.integers(0, 7 * 24 * 60 - 700),
    st.tuples(*[st.integers(-3_600, 3_600)] * 5),
    st.tuples(*[st.integers(0, 1_999)] * 10),
    st.booleans(),
)
def test_no_edge_of_a_cell_hides_a_match(
    first: int, second: int, minute: int, offsets: tuple[int, ...], excess: tuple[int, ...], mirrored_: bool
) -> None:
    """Five trades of each, of any amounts, at any hour, within the tolerance and the window."""
    trades = Trades()
    for number, offset in enumerate(offsets):
        at, given_, gotten = minute + 61 + 120 * number, first << number, second << number
        near = (given_ + given_ * excess[2 * number] // 100_000, gotten + gotten * excess[2 * number + 1] // 100_000)
        trades.swap("SP1", STX, 1, BTC, 1, at)
        trades.swaps[-1] = trades.swaps[-1]._replace(amount_in=str(given_), amount_out=str(gotten))
        sold, bought, (paid, brought) = (BTC, STX, near[::-1]) if mirrored_ else (STX, BTC, near)
        trades.swap("SP2", sold, 1, bought, 1, at + offset / 60)
        trades.swaps[-1] = trades.swaps[-1]._replace(amount_in=str(paid), amount_out=str(brought))

    assert [flag.kind for flag in outcome([agent(1), agent(2)], trades).flags if flag.kind == "ring"] == ["ring"] * 2


# Dust


def test_dust_is_shown_and_excludes_from_nothing() -> None:
    trades = Trades()
    trades.swap("SP1", STX, 100, BTC, 101, 1)
    for at in range(10):
        trades.swap("SP1", STX, 0.5, BTC, 0.5, 100 * at)
    found = outcome([agent(1)], trades)

    assert flags(found) == [(1, "dust", [])]
    assert found.flags[0].reason == "10 of 11 trades gave less than 1 USD"
    assert winners(found) == {"overall_pnl": 1, "volume": 1}  # one trade that is not dust: too few for the return


@pytest.mark.parametrize(("others", "is_shown"), [(10, True), (11, False)])
def test_half_of_the_trades_is_mostly_dust(others: int, is_shown: bool) -> None:
    trades = Trades()
    for at in range(10):
        trades.swap("SP1", STX, 0.99, BTC, 0.99, 100 * at)
    for at in range(others):
        trades.swap("SP1", STX, 1, BTC, 1, 2_000 + 100 * at)

    assert flags_of(trades) == [(1, "dust", [])] * is_shown


# Groups


def test_wallets_with_one_first_funder_are_judged_as_one() -> None:
    """Added up, the three lost: the honest agent wins, and the best placed of them keeps the volume."""
    agents = [agent(1, funder="F"), agent(2, funder="F"), HONEST, agent(4, funder="F")]
    found = outcome(agents, opposite(Trades(), "SP1", "SP2", "SP4"))

    assert flags(found) == [
        (1, "shared_funder", ["overall_pnl", "return"]),
        (2, "shared_funder", ["overall_pnl", "volume", "return"]),
        (4, "shared_funder", ["overall_pnl", "volume", "return"]),
    ]
    assert found.flags[0].reason == "first funded by F, like agent 2, 4"
    assert winners(found) == {"overall_pnl": 3, "volume": 1, "return": 3}


def test_a_group_that_gained_wins_with_its_best() -> None:
    agents = [agent(1, funder="F"), agent(2, funder="F"), HONEST]
    found = outcome(agents, opposite(Trades(), "SP1", "SP2"))

    assert flags(found) == [
        (1, "shared_funder", ["return"]),  # together 5 of 1,052; the honest one 3 of 300
        (2, "shared_funder", ["overall_pnl", "volume", "return"]),
    ]
    assert winners(found) == {"overall_pnl": 1, "volume": 1, "return": 3}


@pytest.mark.parametrize(("own", "partner"), [(58, -18), (55, -15)])
def test_a_group_is_compared_with_what_the_others_gained_themselves(own: float, partner: float) -> None:
    """The gain of a group does not lift its best agent, so it hides no group that lost, even in a tie."""
    agents = [agent(1, funder="F"), agent(4, funder="F"), HONEST, agent(2, funder="G"), agent(5, funder="G")]
    trades = Trades()
    gains = {"SP1": 50.0, "SP4": 10.0, "SP3": 55.0, "SP2": own, "SP5": partner}
    for number, (sender, gain) in enumerate(gains.items()):
        usd = 1_000 + 300 * number
        trades.swap(sender, STX, usd, BTC, usd + gain, 100 * number)
    found = outcome(agents, trades)

    assert winners(found)["overall_pnl"] == 3
    assert (2, "shared_funder", ["overall_pnl"]) in flags(found)


def test_a_chain_of_wallets_is_a_group() -> None:
    """One agent's wallet funds the next."""
    agents = [agent(1), agent(2, funder="SP1"), HONEST, agent(4, funder="SP2")]
    found = outcome(agents, opposite(Trades(), "SP1", "SP2", "SP4"))

    assert {flag.erc8004_agent_id for flag in found.flags if flag.excludes_from} == {1, 2, 4}


def funded_by_one(count: int) -> RoundOutcome:
    trades = Trades()
    for number in range(1, count + 1):
        trades.swap(f"SP{number}", STX, 100 + number, BTC, 100, 100 * number)
    return outcome([agent(number, funder="F") for number in range(1, count + 1)], trades)


def test_who_funded_more_than_eight_is_a_service() -> None:
    """It is shown, and has no effect."""
    eight, nine = funded_by_one(8), funded_by_one(9)

    assert [flag.kind for flag in nine.flags] == ["shared_funder"] * 9
    assert sum(bool(flag.excludes_from) for flag in eight.flags) == 7
    assert not any(flag.excludes_from for flag in nine.flags)
    assert nine.flags[0].reason == (
        "first funded by F, like agent 2, 3, 4, 5, 6 and 3 more: "
        "so many that it is probably a service, which has no effect"
    )


def test_one_owner_however_it_is_written_or_one_bitcoin_address() -> None:
    """Names with braces and the like are text."""
    trades = opposite(Trades(), "SP1", "SP2")
    for first, second in (
        (agent(1, owner="@Sat{0}"), agent(2, owner=" sat{0}")),
        (agent(1), replace(agent(2), btc_address="bc11")),
    ):
        found = outcome([first, second, HONEST], trades)
        assert [flag.kind for flag in found.flags] == ["shared_owner"] * 2
        assert winners(found) == {"overall_pnl": 1, "volume": 1, "return": 3}
    for owner in (None, "", " "):
        assert flags(outcome([agent(1, owner=owner), agent(2, owner=owner), HONEST], trades)) == []


def test_wallets_of_one_identity_are_no_group() -> None:
    agents = [agent(1, owner="o"), agent(1, owner="o", wallet="SP2", funder="SP1"), HONEST]

    assert flags(outcome(agents, opposite(Trades(), "SP1", "SP2"))) == []


# Operators


def test_a_flag_that_is_cleared_stays_and_has_no_effect() -> None:
    trades = churned()
    for kind in ("churn", None):
        found = outcome([agent(1)], trades, [decided(1, "clear", kind)])

        assert [(flag.kind, flag.cleared, flag.excludes_from) for flag in found.flags] == [("churn", True, [])]
        assert winners(found) == {"overall_pnl": 1, "volume": 1, "return": 1}
    assert not outcome([agent(1)], trades, [decided(1, "clear", "ring")]).flags[0].cleared


def test_who_is_cleared_leaves_the_group_and_the_others_stay() -> None:
    agents = [agent(1, funder="F"), agent(2, funder="F"), HONEST, agent(4, funder="F")]
    trades = opposite(Trades(), "SP1", "SP2", "SP4")
    found = outcome(agents, trades, [decided(1, "clear", "shared_funder")])

    by_agent = {flag.erc8004_agent_id: flag for flag in found.flags}
    assert (by_agent[1].cleared, by_agent[1].excludes_from) == (True, [])
    assert winners(found)["overall_pnl"] == 1
    assert sorted(bool(by_agent[number].excludes_from) for number in (2, 4)) == [False, True]


def test_an_operator_excludes_from_everything_with_a_reason() -> None:
    """The last word holds."""
    trades = opposite(Trades(), "SP1")
    first, second, third = (f"2027-01-15T0{hour}:00:00Z" for hour in (1, 2, 3))
    found = outcome([agent(1), HONEST], trades, [decided(1, "exclude", at=first)])
    assert flags(found) == [(1, "operator", ["overall_pnl", "volume", "return"])]
    assert found.flags[0].reason == "excluded by an operator: looked at it"
    assert set(winners(found).values()) == {3}

    cleared = [decided(1, "clear", at=second), decided(1, "exclude", at=first)]
    found = outcome([agent(1), HONEST], trades, cleared)
    assert [(flag.kind, flag.cleared) for flag in found.flags] == [("operator", True)]
    assert set(winners(found).values()) == {1}

    found = outcome([agent(1), HONEST], trades, [*cleared, decided(1, "exclude", at=third)])
    assert set(winners(found).values()) == {3}


# Any trades


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(TRADE, max_size=40), st.randoms(use_true_random=False))
def test_any_trades_in_any_order_give_the_same_flags(
    rows: list[tuple[int, list[str], int, int, int]], rng: Random
) -> None:
    """And no agent excluded from a prize wins it."""
    trades = Trades()
    for sender, (sold, bought, _), given_usd, gotten_usd, minute in rows:
        trades.swap(f"SP{sender}", sold, given_usd, bought, gotten_usd, minute)
    agents = [agent(1, funder="F"), agent(2, funder="F"), agent(3, owner="o"), agent(4, owner="O")]
    found = outcome(agents, trades)
    excluded = {(flag.erc8004_agent_id, category) for flag in found.flags for category in flag.excludes_from}
    assert excluded.isdisjoint((reward.erc8004_agent_id, reward.category) for reward in found.rewards)

    rng.shuffle(trades.swaps)
    assert outcome(agents[::-1], trades) == found
    assert [AgentFlag.from_dict(flag.to_dict()) for flag in found.flags] == found.flags


# The page about fair play


def test_the_page_has_every_threshold_with_its_value() -> None:
    written = {name: int(value) for name, value in re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", PAGE, re.MULTILINE)}
    limits = {name: value for name, value in vars(thresholds).items() if name.isupper()}

    assert written == {
        **limits,
        "FUNDING_MIN": FUNDING_MIN,
        "SERVICE_NONCE": SERVICE_NONCE,
        "EXCESS_FACTOR": EXCESS_FACTOR,
    }


def test_the_page_has_every_flag_and_every_attack() -> None:
    assert re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE) == list(get_args(FlagKind))
    table = PAGE[PAGE.index("| attack |") : PAGE.index("### A richer attacker")]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:] if line]

    assert [next((name for name in ATTACKS if row.startswith(name)), row) for row in rows] == list(ATTACKS)
