"""Agents and swaps written directly into the database."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.types import Database, Statement
from support.local_store import open_competition

_SWAP = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, block_time, source, allowlist_version, recorded_at)
VALUES (?, ?, 'C.c', 'swap', ?, ?, ?, ?, ?, ?, '0x', ?, ?, 'cron', 'v', 0)"""

ADD_AGENT = """
INSERT INTO agents (btc_address, stx_address, erc8004_agent_id, display_name) VALUES (?, ?, ?, ?)
ON CONFLICT (btc_address) DO UPDATE SET erc8004_agent_id = excluded.erc8004_agent_id"""

SET_CLAIM = """
INSERT INTO claims (btc_address, status) VALUES (?, ?)
ON CONFLICT (btc_address) DO UPDATE SET status = excluded.status"""

_REFUSAL = """
INSERT INTO refusals (txid, code, reason, sender, burn_block_time, block_height, block_hash, source, allowlist_version,
  refused_at) VALUES (?, ?, ?, ?, ?, 5, '0x', 'cron', 'v', 0)
ON CONFLICT (txid) DO UPDATE SET reason = excluded.reason"""

_EXCESS = """
INSERT INTO excess_swaps SELECT txid, sender, token_in, amount_in, token_out, amount_out, burn_block_time,
  '1', NULL, '9', NULL FROM swaps WHERE txid IN (SELECT value FROM json_each(?))"""


@dataclass(frozen=True)
class PlainSwap:
    """A swap; its number determines its id and, by default, its position in the chain."""

    number: int
    sender: str
    token_in: str
    amount_in: int
    token_out: str
    amount_out: int
    burn_block_time: int = 1_000
    block_height: int | None = None
    block_time: int | None = None

    @property
    def txid(self) -> str:
        return f"0x{self.number % 2**256:064x}"

    @property
    def position(self) -> tuple[int, int]:
        return (self.number if self.block_height is None else self.block_height, self.number)


@asynccontextmanager
async def traders_in(directory: Path, *senders: tuple[str, int]) -> AsyncIterator[Database]:
    """Open a competition with these eligible wallets."""
    async with open_competition(directory) as db:
        await add_traders(db, senders)
        yield db


async def add_traders(db: Database, senders: Iterable[tuple[str, int]]) -> None:
    """Eligible wallets, each with the id of its agent."""
    await db.batch([each for sender, number in senders for each in registered(db, f"bc1{sender}", sender, number)])


def registered(
    db: Database,
    btc_address: str,
    stx_address: str,
    agent_id: int | None,
    *,
    status: str = "verified",
    display_name: str | None = None,
) -> list[Statement]:
    """Register an agent with a claim in this status, or change those of a registered one."""
    return [
        db.prepare(ADD_AGENT).bind(btc_address, stx_address, agent_id, display_name),
        db.prepare(SET_CLAIM).bind(btc_address, status),
    ]


async def add_swaps(db: Database, swaps: Iterable[PlainSwap]) -> None:
    await db.batch(
        [
            db.prepare(_SWAP).bind(
                swap.txid,
                swap.sender,
                swap.token_in,
                str(swap.amount_in),
                swap.token_out,
                str(swap.amount_out),
                swap.burn_block_time,
                *swap.position,
                swap.block_time,
            )
            for swap in swaps
        ]
    )


async def add_refusal(
    db: Database, number: int, sender: str, code: str = "not_a_swap", *, reason: str = "why", at_s: int = 1_000
) -> None:
    """Refuse a transaction; if it is refused already, only the reason changes."""
    await db.prepare(_REFUSAL).bind(f"0x{number:064x}", code, reason, sender, at_s).run()


async def mark_excessive(db: Database, *numbers: int) -> None:
    """Record that these swaps brought nine times their value."""
    txids = json.dumps([f"0x{number:064x}" for number in numbers])
    await db.prepare(_EXCESS).bind(txids).run()


async def remove_swap(db: Database, swap: PlainSwap) -> None:
    await db.prepare("DELETE FROM swaps WHERE txid = ?").bind(swap.txid).run()
