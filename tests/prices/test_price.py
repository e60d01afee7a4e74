"""Which tokens are thin, and which tokens are tracked."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.stores import open_kv
from stacks_simulator.addresses import SINGLE_SIG, address_of, encode_address
from support.examples import example
from support.local_store import open_competition
from support.scripted_fetch import always, response
from support.task_run import task_bench
from tocsin.prices.price import NO_FLOORS, PoolFloors
from tocsin.prices.store import (
    STATIC_TOKENS,
    TRADED_MAX,
    price_key,
    publish_tokens,
    supported_tokens,
    tracked_tokens,
    traded_tokens,
)
from tocsin.stacks import is_token_id
from tocsin.upstream.tenero import token_address

FLOORS = PoolFloors(10_000.0, 500.0)
NAMES = st.text("aZ9_-é", min_size=1, max_size=128)
NOTHING = always(response({}))
CONTRACT = address_of("deployer")
SWAP = """
INSERT INTO swaps (
  txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out, burn_block_time,
  block_height, block_hash, tx_index, source, allowlist_version, recorded_at
) VALUES (?, 'SP1', 'c', 'f', ?, '1', 'stx', '2', 1, 1, '0x', 0, ?, 'v', 1)"""


@pytest.mark.parametrize(
    ("token", "liquidity", "volume", "thin"),
    [
        ("a.b::c", 10_000.0, 500.0, False),
        ("a.b::c", 9_999.99, 500.0, True),
        ("a.b::c", 10_000.0, 499.99, True),
        ("a.b::c", 10_000.0, None, False),
        ("a.b::c", None, 500.0, True),
        ("stx", None, None, False),
        ("stx", None, 499.99, True),
        ("stx", 9_999.99, None, True),
    ],
)
def test_thin_is_what_is_known_to_be_too_little_or_not_known_to_be_enough(
    token: str, liquidity: float | None, volume: float | None, thin: bool
) -> None:
    """A core token is known to be traded; a missing volume proves nothing."""
    assert FLOORS.is_thin(token, liquidity, volume) is thin
    assert NO_FLOORS.is_thin(token, liquidity, volume) is False


# The tracked tokens


def token(number: int) -> str:
    return f"{CONTRACT}.token-{number}::t"


def test_the_static_tokens_are_the_known_ones() -> None:
    """The base of the tracked set is the reference's, and all of it is valid."""
    assert list(STATIC_TOKENS) == example("static_tokens")["static_token_ids"]
    assert all(is_token_id(token_id) for token_id in STATIC_TOKENS)


@given(st.binary(min_size=20, max_size=20), NAMES, st.just("") | NAMES.map("::{}".format))
def test_every_id_can_be_asked_for_and_stored(hash160: bytes, name: str, asset: str) -> None:
    """What is accepted as an id is one for the upstream too, and fits into a key of KV."""
    text = f"{encode_address(SINGLE_SIG, hash160)}.{name}{asset}"
    if is_token_id(text):
        assert token_address(text)
        assert len(price_key(text).encode()) <= 512


async def test_traded_tokens_follow_the_static_ones_most_traded_first(tmp_path: Path) -> None:
    """Both sides of a swap count; ties are in the order of their ids."""
    async with task_bench(tmp_path, NOTHING) as bench:
        await bench.traded(("stx", token(1)), (token(1), token(2)), (token(3), token(2)), (token(2), STATIC_TOKENS[1]))

        assert tracked_tokens(await traded_tokens(bench.db)) == (*STATIC_TOKENS, token(2), token(1), token(3))


async def test_swaps_of_every_source_count(tmp_path: Path) -> None:
    """On the competition's own tables: a swap found by a chainhook counts like an agent's."""
    async with open_competition(tmp_path) as db:
        await db.prepare("INSERT INTO agents (btc_address, stx_address) VALUES ('bc1', 'SP1')").run()
        for number, source in enumerate(("agent", "cron", "chainhook")):
            await db.prepare(SWAP).bind(f"0x{number:064x}", token(number), source).run()

        assert tracked_tokens(await traded_tokens(db)) == (*STATIC_TOKENS, token(0), token(1), token(2))


async def test_what_is_not_a_token_id_is_left_out_and_takes_no_place(tmp_path: Path) -> None:
    """However often `unknown` was traded, the cap is spent on tokens."""
    async with task_bench(tmp_path, NOTHING) as bench:
        await bench.traded(*[("unknown", f"x{n % 5}") for n in range(40)])
        await bench.traded(*[("stx", token(n)) for n in range(TRADED_MAX + 9)])

        found = tracked_tokens(await traded_tokens(bench.db))

        assert len(found) == len(STATIC_TOKENS) + TRADED_MAX
        assert all(is_token_id(token_id) for token_id in found)


async def test_the_tracked_set_is_published_for_readers(tmp_path: Path) -> None:
    """Readers get the newest set, and the static one before the first refresh."""
    async with open_kv(tmp_path, VirtualClock()) as kv:
        assert await supported_tokens(kv) == STATIC_TOKENS

        await publish_tokens(kv, ["stx", token(1)])

        assert await supported_tokens(kv) == ("stx", token(1))
