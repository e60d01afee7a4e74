"""Nonces: those seen are kept as ranges, and those missing between them are known."""

from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks_simulator.wallets import Wallet
from support.competition import World, chain_of, open_world, register, transaction
from tocsin.stacks import AccountNonce, MinedAt, Transaction
from tocsin.swaps import proof as nonces
from tocsin.swaps.position import count_failure
from tocsin.swaps.proof import NonceRange, Ranges, add_seen, missing, settled

NOW = 1_778_700_600_000


numbers = st.lists(st.integers(0, 70), max_size=60)


def ranges_of(seen: list[int]) -> Ranges:
    ranges: Ranges = ()
    for nonce in seen:
        ranges = add_seen(ranges, nonce, 1_000 + nonce)
    return ranges


@given(numbers)
def test_ranges_are_the_set_of_what_was_seen(seen: list[int]) -> None:
    """In any order and however often: maximal ranges, each with the block of its highest nonce."""
    ranges = ranges_of(seen)

    assert [number for each in ranges for number in range(each.low, each.high + 1)] == sorted(set(seen))
    assert all(lower.high + 1 < higher.low for lower, higher in pairwise(ranges))
    assert all(each.block == 1_000 + each.high for each in ranges)
    assert missing(ranges) == (max(seen) - min(seen) + 1 - len(set(seen)) if seen else 0)


@given(numbers)
def test_settled_nonces_lack_nothing(seen: list[int]) -> None:
    """One range from the lowest to the highest, and what comes next continues it."""
    ranges = settled(ranges_of(seen), max(seen, default=0))

    assert missing(ranges) == 0
    if seen:
        assert ranges == (NonceRange(min(seen), max(seen), 1_000 + max(seen)),)
        assert len(add_seen(ranges, max(seen) + 1, 5_000)) == 1
        assert missing(add_seen(ranges, max(seen) + 3, 5_000)) == 2
    else:
        assert ranges == ()


@pytest.mark.slow
@given(st.permutations(range(0, 40, 2)), st.integers(2, 12))
def test_what_does_not_fit_counts_as_missing(seen: list[int], most: int) -> None:
    """However few ranges fit: no nonce counts as seen that was not, and the lowest and the highest are known."""
    with patch("tocsin.swaps.proof.RANGES_MAX", most):
        ranges = ranges_of(seen)
    kept = {nonce for each in ranges for nonce in range(each.low, each.high + 1)}

    assert len(ranges) == most
    assert kept < set(seen)
    assert (ranges[0], ranges[-1]) == (NonceRange(0, 0, 1_000), NonceRange(38, 38, 1_038))
    assert missing(ranges) == 39 - most


def test_at_most_five_hundred_ranges_are_kept() -> None:
    """Those of the lowest and of the highest nonces: what is missing is missing above the lowest."""
    ranges = ranges_of(list(range(0, 1_200, 2)))

    assert len(ranges) == 500
    assert ranges[:2] == (NonceRange(0, 0, 1_000), NonceRange(202, 202, 1_202))
    assert ranges[-1] == NonceRange(1_198, 1_198, 2_198)


def test_a_nonce_that_is_seen_in_another_block_has_that_one() -> None:
    """After a reorg its transaction is mined again, perhaps further down."""
    assert add_seen((NonceRange(0, 5, 100),), 5, 97) == (NonceRange(0, 5, 97),)
    assert add_seen((NonceRange(0, 5, 100),), 4, 97) == (NonceRange(0, 5, 100),)


def test_ranges_that_touch_become_one() -> None:
    two = (NonceRange(1, 3, 10), NonceRange(6, 8, 20))
    assert add_seen(two, 4, 15) == (NonceRange(1, 4, 15), NonceRange(6, 8, 20))
    assert add_seen(two, 5, 15) == (NonceRange(1, 3, 10), NonceRange(5, 8, 20))
    assert add_seen(two, 0, 15) == (NonceRange(0, 3, 10), NonceRange(6, 8, 20))
    assert add_seen(two, 9, 25) == (NonceRange(1, 3, 10), NonceRange(6, 9, 25))
    assert add_seen(two, 10, 25) == (*two, NonceRange(10, 10, 25))
    assert [missing(ranges) for ranges in ((), two, (*two, NonceRange(10, 10, 25)))] == [0, 2, 3]


def test_what_begins_above_what_a_list_shows_is_not_settled() -> None:
    """The list may lag, and still show what is missing there."""
    three = (NonceRange(1, 3, 10), NonceRange(6, 8, 20), NonceRange(11, 12, 30))
    for shown, expected in (
        (0, three),
        (1, three),
        (5, three),
        (6, (NonceRange(1, 8, 20), three[2])),
        (7, (NonceRange(1, 8, 20), three[2])),
        (10, (NonceRange(1, 8, 20), three[2])),
        (11, (NonceRange(1, 12, 30),)),
    ):
        assert settled(three, shown) == expected
    assert settled((), 5) == ()


def row(number: int, height: int, *used: tuple[str, int]) -> Transaction:
    by = tuple(AccountNonce(account, nonce) for account, nonce in used)
    return transaction(f"0x{number}", used[0][0], mined=MinedAt(height, "0x", 0, 0), nonces=by)


def test_senders_and_sponsors_are_seen_and_nobody_else() -> None:
    rows = [row(1, 50, ("A", 3), ("B", 7)), row(2, 49, ("C", 1)), row(3, 48, ("B", 6))]

    assert nonces.seen_in(rows, {"A": None, "B": None}) == {"A": [(3, 50)], "B": [(7, 50), (6, 48)]}
    assert nonces.seen_in(rows, {}) == {}


async def store(world: World, wallet: str, *seen: tuple[int, int], shown: int | None = None) -> int:
    """Return how many statements it took."""
    statements = await nonces.record_seen(world.db, {wallet: list(seen)}, shown=shown)
    if statements:
        await world.db.batch(statements)
    return len(statements)


async def proof_of(world: World) -> tuple[int, int | None]:
    """Return how many nonces are missing, and the block up to which none is."""
    row = await nonces.ask_for_proof(world.db)[0].first()
    assert row is not None
    return row["missing"], row["block"]


async def test_what_was_seen_is_kept_and_what_is_missing_is_found(tmp_path: Path) -> None:
    """Nothing is written when nothing is new; a wallet that lacks nothing is not returned."""
    async with open_world(tmp_path, chain_of(3)) as world:
        first, second, third = (wallet.address for wallet in world.simulator.chain.wallets)
        written = [
            await store(world, first, (4, 100), (5, 101)),
            await store(world, first, (5, 101)),
            await store(world, first),
            await store(world, first, (9, 105), (8, 105)),
            await store(world, second, (0, 90), (2, 110)),
            await store(world, third, (0, 90), (1, 91)),
        ]
        lacking = await nonces.lacking(world.db, 5, NOW)
        one = await nonces.lacking(world.db, 1, NOW)
        proof = await proof_of(world)
        await store(world, second, (1, 92))
        later = await nonces.lacking(world.db, 5, NOW), await proof_of(world)
        await store(world, first, shown=1_000)
        settled_now = await nonces.lacking(world.db, 5, NOW), await proof_of(world)

    assert written == [1, 0, 0, 1, 1, 1]
    assert lacking == {second: 1, first: 2}
    assert one == {second: 1}  # the lowest missing nonce comes first
    assert proof == (3, 89)  # a transaction of block 90 itself may be missing
    assert later == ({first: 2}, (2, 100))
    assert settled_now == ({}, (0, None))


async def test_only_eligible_wallets_that_can_be_read_are_visited(tmp_path: Path) -> None:
    """Others' nonces do not count; a wallet whose list keeps failing is visited once an hour."""
    async with open_world(tmp_path, chain_of(3)) as world:
        good, failing, other = world.simulator.chain.wallets
        for wallet in (good, failing, other):
            await store(world, wallet.address, (1, 100), (3, 102))
        await register(world.db, [Wallet(other.address, "registered", other.btc_address)])
        for _ in range(5):
            await count_failure(world.db, failing.address, world.rules, NOW).run()
        lacking = await nonces.lacking(world.db, 5, NOW + 3_599_999)
        later = await nonces.lacking(world.db, 5, NOW + 3_600_000)
        proof = await proof_of(world)
        await nonces.forget_all(world.db).run()
        forgotten = await nonces.lacking(world.db, 5, NOW), await proof_of(world)

    assert lacking == {good.address: 1}
    assert later == {good.address: 1, failing.address: 1}
    assert proof == (2, 99)
    assert forgotten == ({}, (0, None))


async def test_a_wallet_that_lost_its_eligibility_is_not_visited(tmp_path: Path) -> None:
    async with open_world(tmp_path, chain_of(1)) as world:
        (wallet,) = world.simulator.chain.wallets
        await store(world, wallet.address, (1, 100), (3, 102))
        before = await nonces.lacking(world.db, 5, NOW)
        await world.db.prepare("DELETE FROM claims").run()
        after = await nonces.lacking(world.db, 5, NOW)

    assert (before, after) == ({wallet.address: 1}, {})
