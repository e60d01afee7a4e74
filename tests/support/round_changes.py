"""Changes that may happen while a result is prepared or afterwards, each as one step in a world with a round."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from support.round_world import AGENTS, END_S, GRACE_S, ROUND_ID, START_S, STSTX, RoundWorld, txid

PREPARE_S = (END_S + GRACE_S) // 2
LATER = "SP3FBR2AGK5H9QBDH3EEN6DF8EK8JY7RX8QJ5SVTE"  # registered, without a claim
STRANGER = "SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7"
OTHER_TOKEN = f"{AGENTS[0]}.other::other"

Change: TypeAlias = Callable[[RoundWorld], Awaitable[Any]]

_REFUSE = """
INSERT INTO refusals (txid, code, reason, sender, burn_block_time, block_height, block_hash, source,
  allowlist_version, refused_at)
VALUES (?, 'not_a_swap', ?, ?, ?, 5, '0x', 'cron', 'v', 0)
ON CONFLICT (txid) DO UPDATE SET reason = excluded.reason"""
_REGISTER = "INSERT INTO agents (btc_address, stx_address, erc8004_agent_id) VALUES (?, ?, ?)"
_TABLES = {
    "competition_rounds": "round_id",
    "competition_round_results": "rank",
    "competition_rewards": "category",
    "competition_round_flags": "erc8004_agent_id, kind",
    "competition_round_price_snapshots": "token_id",
    "competition_round_agents": "stx_address",
    "competition_round_swaps": "txid",
    "competition_round_refusals": "txid",
    "competition_round_files": "version, part",
    "competition_round_changes": "txid",
    "competition_round_discrepancies": "subject",
}


async def published(world: RoundWorld) -> dict[str, list[dict[str, Any]]]:
    """Return every stored column of rounds: results, prizes, flags, file, digest, captured inputs, times."""
    return {
        table: await world.all(f"SELECT * FROM {table} ORDER BY round_id, {order}") for table, order in _TABLES.items()
    }


async def run_sql(world: RoundWorld, sql: str, *values: str | int) -> None:
    await world.db.prepare(sql).bind(*values).run()


async def refuse(world: RoundWorld, number: int, sender: str, reason: str = "no swap") -> None:
    await run_sql(world, _REFUSE, txid(number), reason, sender, START_S + 90)


async def claim(world: RoundWorld, agent: int, status: str) -> None:
    await run_sql(
        world,
        "INSERT INTO claims (btc_address, status) VALUES (?, ?)"
        " ON CONFLICT (btc_address) DO UPDATE SET status = excluded.status",
        f"bc1q{agent}",
        status,
    )


async def populate(world: RoundWorld) -> None:
    """Add a wallet that may become eligible, with a swap; and refusals of it, of an agent and of a stranger."""
    await run_sql(world, _REGISTER, "bc1q3", LATER, 13)
    await world.swap(30, LATER, ("stx", 30), (STSTX, 33), at_s=START_S + 70)
    for number, sender in ((101, AGENTS[1]), (102, STRANGER), (103, LATER)):
        await refuse(world, number, sender)


async def set_price(world: RoundWorld) -> None:
    await world.act("price", roundId=ROUND_ID, tokenId=STSTX, priceUsd="1.5", reason="a test")


async def decide(world: RoundWorld) -> None:
    await world.act("flag", roundId=ROUND_ID, agentId=10, decision="exclude", reason="a test")


async def prices_of_the_end_move(world: RoundWorld) -> None:
    await run_sql(world, "DELETE FROM price_points")
    await world.prices_around(END_S, stx="1", ststx="2")


async def moved(world: RoundWorld) -> None:
    await world.unswap(2)
    await world.swap(2, 1, ("stx", 200), (STSTX, 191), at_s=START_S + 61)


async def moved_out(world: RoundWorld) -> None:
    await world.unswap(2)
    await world.swap(2, 1, ("stx", 200), (STSTX, 190), at_s=END_S)


async def other_token(world: RoundWorld) -> None:
    """Trade a token that has a price of the end which was not needed before."""
    for at_s in range(END_S - 3_600, END_S + 1, 600):
        await world.price(OTHER_TOKEN, "2", at_s)
    await world.swap(60, 0, ("stx", 3), (OTHER_TOKEN, 4), at_s=START_S + 5)


# By name: the change, and whether the preparation is used after it.
CHANGES: dict[str, tuple[Change, bool]] = {
    "nothing": (lambda world: world.all("SELECT 1"), True),
    "a swap after the end": (lambda world: world.swap(61, 0, ("stx", 1), (STSTX, 9), at_s=END_S), True),
    "prices after the end": (lambda world: world.prices_around(END_S + 3_601, stx="5"), True),
    "a swap that is found late": (lambda world: world.swap(62, 0, ("stx", 1), (STSTX, 9), at_s=START_S), False),
    "a late swap of another token": (other_token, False),
    "a reorg that takes a swap": (lambda world: world.unswap(1), False),
    "a reorg that moves a swap": (moved, False),
    "a reorg that moves a swap out of the round": (moved_out, False),
    "a new refusal": (lambda world: refuse(world, 110, AGENTS[0]), False),
    "another reason of a refusal": (lambda world: refuse(world, 101, AGENTS[1], "another"), False),
    "a refusal that is opened again": (
        lambda world: run_sql(world, "DELETE FROM refusals WHERE txid = ?", txid(101)),
        False,
    ),
    "a refusal of a stranger": (lambda world: refuse(world, 111, STRANGER), True),
    "a stranger who registers": (lambda world: run_sql(world, _REGISTER, "bc1q9", STRANGER, 19), False),
    "a wallet that is not eligible any more": (lambda world: claim(world, 2, "failed"), False),
    "a wallet that has become eligible": (lambda world: claim(world, 3, "verified"), False),
    "another identity": (
        lambda world: run_sql(world, "UPDATE agents SET erc8004_agent_id = 10 WHERE stx_address = ?", AGENTS[1]),
        False,
    ),
    "another name": (lambda world: run_sql(world, "UPDATE agents SET display_name = 'Zoë'"), False),
    "another owner": (lambda world: run_sql(world, "UPDATE agents SET owner = 'SPO'"), False),
    "a first funder": (
        lambda world: run_sql(world, "INSERT INTO funders VALUES (?, 'SPX', 5, 10, 0, 1)", AGENTS[0]),
        False,
    ),
    "a price of an operator": (set_price, False),
    "other prices of the end": (prices_of_the_end_move, False),
    "a decision": (decide, False),
}


def made(path: Path) -> Path:
    path.mkdir()
    return path
