"""What a round waits for, where the network's list is followed: the reason names what is missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.history_rows import add_refusal, registered
from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, RULES, START_S, STSTX, RoundWorld, round_world
from tocsin.rounds.data_complete import RoundRecord, incomplete_because, load_record
from tocsin.rounds.round import RoundRules
from tocsin.rounds.store import load_unfinished
from tocsin.swaps.position import FeedState, save_state, set_value
from tocsin.swaps.proof import Proof
from tocsin.swaps.rules import Rules

FOLLOWED = FeedState(started_at=1, looked_at=1, complete_at=GRACE_S * 1000, rests_on=RULES.version)


ROUND = RoundRules(ROUND_ID, START_S, END_S, GRACE_S)
CHANGED = "the allow-list or the dates have changed, and the contracts' lists were not read again yet"
UNREAD = "the chain was not read completely since the grace ended (2027-01-22 09:00 UTC)"
UNREAD_WALLET = "wallets that have become eligible, and whose lists were not read yet: 1"
LATE = "SP3D3AMACPMMA62DD0BT1SDFQSRWS9G0VBQ0V6JXF"
OUTSIDE_S = 7_200  # burn block times are at most this much out of order


async def read_wallets(world: RoundWorld, *wallets: str) -> None:
    for wallet in wallets:
        await world.execute("INSERT INTO marks (principal, rules, walked_at) VALUES (?, 'r', 1)", wallet)


async def reason(
    world: RoundWorld, state: FeedState, rules: Rules = RULES, applied: str | None = None, at_s: int = GRACE_S + 60
) -> str | None:
    """Return why the round would not be captured now. `applied`: the rules of the newest sweep, if not the current."""
    await save_state(world.db, state, 1).run()
    await set_value(world.db, "competition_rules", applied or rules.version, 1).run()
    (round_,) = (await load_unfinished(world.db)).rounds
    record = await load_record(world.db, rules, round_.rules, at_s * 1000, feed_runs=True)
    return incomplete_because(round_.rules, record)


async def test_a_list_that_is_followed_completely_is_enough(tmp_path: Path) -> None:
    async with round_world(tmp_path) as world:
        await read_wallets(world, *AGENTS)
        assert await reason(world, FOLLOWED) is None

        assert await reason(world, replace(FOLLOWED, complete_at=GRACE_S * 1000 - 1)) == UNREAD


async def test_times_of_a_clock_that_was_ahead_show_nothing(tmp_path: Path) -> None:
    """Neither of a look at the network's list nor of a sweep."""
    async with round_world(tmp_path) as world:
        await read_wallets(world, *AGENTS)
        ahead = GRACE_S + 7_200
        looked = replace(FOLLOWED, complete_at=ahead * 1000)
        reasons = [await reason(world, looked), await reason(world, looked, at_s=ahead)]
        await world.swept(ahead)
        none = FeedState(source="contracts")
        reasons += [await reason(world, none), await reason(world, none, at_s=ahead)]

    assert reasons == [UNREAD, None, UNREAD, None]


async def test_a_wallet_that_has_become_eligible_is_named_as_the_reason(tmp_path: Path) -> None:
    """The chain was read, but not the new wallet's past. A complete sweep of all contracts also shows that."""
    async with round_world(tmp_path) as world:
        await world.claim(2, "failed")
        await read_wallets(world, *AGENTS[:2])
        assert await reason(world, FOLLOWED) is None

        await world.claim(2, "verified")
        assert await reason(world, FOLLOWED) == UNREAD_WALLET
        await world.swept(GRACE_S)
        assert await reason(world, FOLLOWED) is None


@pytest.mark.parametrize(
    ("rests_on", "expected"),
    [("another", CHANGED), (None, "not all contracts' lists were read since the network's list is followed")],
)
async def test_contracts_that_were_not_read_are_named_as_the_reason(
    tmp_path: Path, rests_on: str | None, expected: str
) -> None:
    async with round_world(tmp_path) as world:
        await read_wallets(world, *AGENTS)
        assert await reason(world, replace(FOLLOWED, rests_on=rests_on)) == expected


async def test_a_sweep_must_have_applied_the_rules_in_force(tmp_path: Path) -> None:
    """A contract that was taken off the list has swaps that count until then, also where all lists were read."""
    async with round_world(tmp_path) as world:
        await read_wallets(world, *AGENTS)
        assert await reason(world, FOLLOWED, applied="another") == CHANGED
        await world.swept(GRACE_S)
        assert await reason(world, FOLLOWED, applied="another") == CHANGED


@pytest.mark.parametrize(
    ("code", "at_s", "waits"),
    [
        ("sender_not_registered", START_S, True),
        ("sender_not_genesis", END_S - 1, True),
        ("sender_not_registered", END_S, False),
        ("sender_not_registered", START_S - 1, False),
        ("not_a_swap", START_S, False),
    ],
)
async def test_what_counts_now_that_its_sender_is_eligible_holds_a_round_up(
    tmp_path: Path, code: str, at_s: int, waits: bool
) -> None:
    """It was refused, and the next sweep verifies it, if it lies within the round."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await add_refusal(world.db, 77, AGENTS[0], code, at_s=at_s)
        found = await reason(world, FOLLOWED)
        await world.candidate(78, 0)
        both = await reason(world, FOLLOWED)
        await world.execute("DELETE FROM candidates")
        await world.claim(0, "failed")
        ineligible = await reason(world, FOLLOWED)

    assert (found, ineligible) == ("transactions that wait to be verified: 1" if waits else None, None)
    assert both == f"transactions that wait to be verified: {2 if waits else 1}"


async def test_a_reopened_round_waits_for_the_lists_of_new_wallets(tmp_path: Path) -> None:
    """It was complete once. The past of a wallet registered since is found only when its list is read."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        await world.db.batch(registered(world.db, "b", LATE, 99))
        world.clock.at_s = GRACE_S + 86_400
        await world.act("reopen", roundId=ROUND_ID, reason="agent 99 was registered late")
        waits = await world.run()
        await world.swept(GRACE_S + 86_400 + 600)
        done = await world.run(GRACE_S + 86_400 + 900)

    assert waits.counters["waiting"] == {ROUND_ID: UNREAD_WALLET}
    assert (waits.counters["captured"], done.counters["finalized"]) == (0, 1)


async def test_a_reopened_round_waits_for_a_sweep_under_new_rules(tmp_path: Path) -> None:
    """The allow-list has changed since the last complete sweep; the sweep that applies it forgets that one."""
    async with round_world(tmp_path) as world:
        await world.finalized()
        await world.act("reopen", roundId=ROUND_ID, reason="a contract was added")
        await set_value(world.db, "competition_rules", "older", 1).run()
        waits = await world.run(GRACE_S + 300)
        await world.swept(GRACE_S + 600)
        done = await world.run(GRACE_S + 900)

    assert waits.counters["waiting"] == {ROUND_ID: CHANGED}
    assert done.counters["finalized"] == 1


@pytest.mark.parametrize(
    ("at_s", "height", "waits"),
    [
        # A swap at block 5,000 from before the round: what lies at or below it does not count, if it is early enough.
        (START_S - OUTSIDE_S - 1, 4_999, False),
        (START_S - OUTSIDE_S - 1, 5_000, False),
        (START_S - OUTSIDE_S - 1, 5_001, True),
        (START_S - OUTSIDE_S, 4_999, True),
        (START_S - 1, 4_999, True),
        # A swap at block 5,000 from after the round: what lies at or above it does not count, if it is late enough.
        (END_S + OUTSIDE_S, 5_001, False),
        (END_S + OUTSIDE_S, 5_000, False),
        (END_S + OUTSIDE_S, 4_999, True),
        (END_S + OUTSIDE_S - 1, 5_001, True),
        (END_S, 5_001, True),
    ],
)
async def test_what_may_lie_within_the_round_holds_it_up(tmp_path: Path, at_s: int, height: int, waits: bool) -> None:
    """Only blocks are known of what waits to be verified. A later block may have a time two hours earlier."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.swap(4_000, 0, ("stx", 1), (STSTX, 1), at_s)
        await world.candidate(77, height)
        found = await reason(world, FOLLOWED)

    assert found == ("transactions that wait to be verified: 1" if waits else None)


async def test_a_candidate_whose_block_is_unknown_holds_every_round_up(tmp_path: Path) -> None:
    """Unless it is a recorded swap that is verified again."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.swap(4_000, 0, ("stx", 1), (STSTX, 1), START_S - OUTSIDE_S - 1)
        await world.candidate(4_000, 0)
        recorded = await reason(world, FOLLOWED)
        await world.candidate(77, 0)
        unknown = await reason(world, FOLLOWED)

    assert (recorded, unknown) == (None, "transactions that wait to be verified: 1")


def known(
    feed: FeedState,
    swept_at: int | None = None,
    *,
    missing: tuple[int, int | None] = (0, None),
    after: int | None = None,
) -> RoundRecord:
    """What is known if all else is complete. `missing`: how many nonces, and the block up to which none is."""
    proof = Proof(rests=True, missing_nonces=missing[0], nonces_until=missing[1], unverified=0, verified_until=None)
    return RoundRecord(feed, swept_at, proof, 0, after, RULES.version, RULES.version)


@pytest.mark.parametrize(
    ("nonces_until", "block_after", "waits"),
    [(998, 1_000, True), (999, 1_000, False), (1_000, 1_000, False), (None, 1_000, True), (999, None, True)],
)
def test_a_missing_nonce_after_the_round_does_not_hold_it_up(
    nonces_until: int | None, block_after: int | None, waits: bool
) -> None:
    """Block 1,000 lies after the round, so what is missing must lie in it or above it."""
    expected = "transactions of eligible wallets that no list has shown: 2" if waits else None
    assert incomplete_because(ROUND, known(FOLLOWED, missing=(2, nonces_until), after=block_after)) == expected


@pytest.mark.parametrize(
    ("newest_s", "is_read"), [(GRACE_S - 1, False), (GRACE_S, True), (GRACE_S + 1, True), (None, True)]
)
def test_the_list_must_show_a_block_from_after_the_grace(newest_s: int | None, is_read: bool) -> None:
    """A list that lags looks complete; an empty one has nothing to show."""
    found = incomplete_because(ROUND, known(replace(FOLLOWED, newest_s=newest_s)))
    assert found == (None if is_read else UNREAD)


@pytest.mark.parametrize(("late_ms", "is_read"), [(-1, False), (0, True), (1, True)])
@pytest.mark.parametrize("by", ["feed", "sweep"])
def test_the_chain_is_read_from_the_instant_at_which_the_grace_ends(by: str, late_ms: int, is_read: bool) -> None:
    at = GRACE_S * 1000 + late_ms
    followed = replace(FOLLOWED, complete_at=at if by == "feed" else None)
    found = incomplete_because(ROUND, known(followed, at if by == "sweep" else None))
    assert found == (None if is_read else UNREAD)


@pytest.mark.parametrize(
    "feed", [FeedState(source="contracts"), replace(FOLLOWED, rests_on="older rules"), replace(FOLLOWED, newest_s=1)]
)
def test_a_sweep_after_the_grace_does_not_rest_on_the_feed(feed: FeedState) -> None:
    """It has read all contracts' lists under the rules in force."""
    assert incomplete_because(ROUND, known(feed, GRACE_S * 1000)) is None


def test_without_the_networks_list_nonces_show_nothing() -> None:
    """The contracts' lists show only what calls them, so most nonces are missing there."""
    contracts = FeedState(source="contracts")
    assert incomplete_because(ROUND, known(contracts, GRACE_S * 1000, missing=(2, None))) is None
