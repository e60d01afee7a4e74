"""What a round waits for, where the network's list is followed: the reason names what is missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.round_world import (
    AGENTS,
    END_S,
    GRACE_S,
    ROUND_ID,
    RULES,
    START_S,
    RoundWorld,
    round_world,
    txid,
)
from tocsin.competition.feed_state import FeedState, save_state
from tocsin.competition.kept_values import set_value
from tocsin.competition.rules import Rules
from tocsin.rounds.data_complete import incomplete_because, load_record
from tocsin.rounds.round_store import load_unfinished

FOLLOWED = FeedState(started_at=1, looked_at=1, complete_at=GRACE_S * 1000, rests_on=RULES.version)


async def read_wallets(world: RoundWorld, *wallets: str) -> None:
    for wallet in wallets:
        mark = "INSERT INTO marks (principal, rules, walked_at) VALUES (?, 'r', 1)"
        await world.db.prepare(mark).bind(wallet).run()


async def reason(
    world: RoundWorld,
    state: FeedState,
    rules: Rules = RULES,
    applied: str | None = None,
    at_s: int = GRACE_S + 60,
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

        late = await reason(world, replace(FOLLOWED, complete_at=GRACE_S * 1000 - 1))
        assert late is not None
        assert late.startswith("the chain was not read completely since the grace ended")


async def test_times_of_a_clock_that_was_ahead_show_nothing(tmp_path: Path) -> None:
    """Neither of a look at the network's list nor of a sweep."""
    async with round_world(tmp_path) as world:
        await read_wallets(world, *AGENTS)
        ahead = GRACE_S + 7_200
        looked = replace(FOLLOWED, complete_at=ahead * 1000)
        reasons = [await reason(world, looked), await reason(world, looked, at_s=ahead)]
        await world.swept(ahead)
        none = FeedState(way="contracts")
        reasons += [await reason(world, none), await reason(world, none, at_s=ahead)]

    unread = "the chain was not read completely since the grace ended (2027-01-22 09:00 UTC)"
    assert reasons == [unread, None, unread, None]


async def test_a_wallet_that_has_become_eligible_is_named_as_the_reason(tmp_path: Path) -> None:
    """The chain was read, but not the new wallet's past. A complete sweep of all contracts also shows that."""
    async with round_world(tmp_path) as world:
        failed = "UPDATE claims SET status = ? WHERE btc_address = 'bc1q2'"
        await world.db.prepare(failed).bind("failed").run()
        await read_wallets(world, *AGENTS[:2])
        assert await reason(world, FOLLOWED) is None

        await world.db.prepare(failed).bind("verified").run()
        assert await reason(world, FOLLOWED) == (
            "wallets that have become eligible, and whose lists were not read yet: 1"
        )
        await world.swept(GRACE_S)
        assert await reason(world, FOLLOWED) is None


@pytest.mark.parametrize(
    ("rests_on", "expected"),
    [
        (
            "another",
            "the allow-list or the dates have changed, and the contracts' lists were not read again yet",
        ),
        (None, "not all contracts' lists were read since the network's list is followed"),
    ],
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
        changed = "the allow-list or the dates have changed, and the contracts' lists were not read again yet"
        assert await reason(world, FOLLOWED, applied="another") == changed
        await world.swept(GRACE_S)
        assert await reason(world, FOLLOWED, applied="another") == changed


REFUSED = """
INSERT INTO refusals (txid, sender, code, burn_block_time, reason, source, refused_at, allowlist_version, block_height,
  block_hash) VALUES (?, ?, ?, ?, 'why', 'cron', 0, 'v', 1005, '0x')"""


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
        await world.db.prepare(REFUSED).bind(txid(77), AGENTS[0], code, at_s).run()
        found = await reason(world, FOLLOWED)
        await world.db.prepare("UPDATE claims SET status = 'failed' WHERE btc_address = 'bc1q0'").run()
        ineligible = await reason(world, FOLLOWED)

    assert (found, ineligible) == ("transactions that wait to be verified: 1" if waits else None, None)


LATE = "SP3D3AMACPMMA62DD0BT1SDFQSRWS9G0VBQ0V6JXF"


async def test_a_reopened_round_waits_for_the_lists_of_new_wallets(tmp_path: Path) -> None:
    """It was complete once. The past of a wallet registered since is found only when its list is read."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        agent = "INSERT INTO agents (btc_address, stx_address, erc8004_agent_id, display_name) VALUES ('b', ?, 99, '')"
        await world.db.prepare(agent).bind(LATE).run()
        await world.db.prepare("INSERT INTO claims (btc_address, status) VALUES ('b', 'verified')").run()
        world.clock.at_s = GRACE_S + 86_400
        await world.act("reopen", roundId=ROUND_ID, reason="agent 99 was registered late")
        waits = await world.run()
        await world.swept(GRACE_S + 86_400 + 600)
        done = await world.run(GRACE_S + 86_400 + 900)

    assert waits.counters["waiting"] == {
        ROUND_ID: "wallets that have become eligible, and whose lists were not read yet: 1"
    }
    assert (waits.counters["captured"], done.counters["finalized"]) == (0, 1)


async def test_a_reopened_round_waits_for_a_sweep_under_new_rules(tmp_path: Path) -> None:
    """The allow-list has changed since the last complete sweep; the sweep that applies it forgets that one."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        await world.run(GRACE_S)
        await world.act("reopen", roundId=ROUND_ID, reason="a contract was added")
        await set_value(world.db, "competition_rules", "older", 1).run()
        waits = await world.run(GRACE_S + 300)
        await world.swept(GRACE_S + 600)
        done = await world.run(GRACE_S + 900)

    assert waits.counters["waiting"] == {
        ROUND_ID: "the allow-list or the dates have changed, and the contracts' lists were not read again yet"
    }
    assert done.counters["finalized"] == 1
