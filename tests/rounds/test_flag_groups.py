"""Agents that belong together, and what operators decide about flags."""

from dataclasses import replace

import pytest

from support.round_trades import BTC, HONEST, STX, Trades, agent, churned, decided, flags, opposite, outcome, winners
from tocsin.rounds.round import RoundOutcome

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
    trades = Trades()
    churned(trades, 4)
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
