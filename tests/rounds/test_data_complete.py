"""What a round waits for, where the network's list is followed: the reason names what is missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.round_world import AGENTS, GRACE_S, RULES, RoundWorld, round_world
from tocsin.competition.feed_state import FeedState, save_state
from tocsin.competition.rules import Rules
from tocsin.rounds.data_complete import incomplete_because, load_record
from tocsin.rounds.round_store import unfinished

FOLLOWED = FeedState(started_at=1, looked_at=1, complete_at=GRACE_S * 1000, rests_on=RULES.version)


async def read_wallets(world: RoundWorld, *wallets: str) -> None:
    for wallet in wallets:
        mark = "INSERT INTO marks (principal, rules, walked_at) VALUES (?, 'r', 1)"
        await world.db.prepare(mark).bind(wallet).run()


async def reason(world: RoundWorld, state: FeedState, rules: Rules = RULES) -> str | None:
    """Why the round would not be captured now."""
    await save_state(world.db, state, 1).run()
    (round_,) = await unfinished(world.db)
    record = await load_record(world.db, rules, round_.rules, feed_runs=True)
    return incomplete_because(round_.rules, record)


async def test_a_list_that_is_followed_completely_is_enough(tmp_path: Path) -> None:
    async with round_world(tmp_path) as world:
        await read_wallets(world, *AGENTS)
        assert await reason(world, FOLLOWED) is None

        late = await reason(world, replace(FOLLOWED, complete_at=GRACE_S * 1000 - 1))
        assert late is not None
        assert late.startswith("the chain was not read completely since the grace ended")


async def test_a_wallet_that_has_become_eligible_is_named_as_the_reason(tmp_path: Path) -> None:
    """The chain was read; what the new wallet did before was not. A complete sweep of all contracts shows it, too."""
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
