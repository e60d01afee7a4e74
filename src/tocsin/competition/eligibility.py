"""Whose swaps count. The view `agent_tiers` defines it; the board reads the same view."""

import json
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from tocsin.bindings import Database
from tocsin.competition.codes import Code

Tier: TypeAlias = Literal["eligible", "genesis", "registered", "not_registered"]

# Why a sender's swaps do not count. A missing identity has the code of a missing registration, because the public
# API contract has no other code; the sentences differ.
REFUSED: Mapping[Tier, tuple[Code, str]] = {
    "not_registered": (Code.SENDER_NOT_REGISTERED, "the sender is not a registered agent"),
    "registered": (Code.SENDER_NOT_GENESIS, "the sender's claim is not verified"),
    "genesis": (Code.SENDER_NOT_REGISTERED, "the sender has no on-chain identity (ERC-8004) yet"),
}

TIER = "SELECT tier FROM agent_tiers WHERE stx_address = ?"
_TIERS = "SELECT stx_address, tier FROM agent_tiers"
_TIERS_OF = """
SELECT stx_address, tier FROM agent_tiers WHERE stx_address IN (SELECT value FROM json_each(?))"""


async def tier_of(db: Database, address: str) -> Tier:
    row = await db.prepare(TIER).bind(address).first()
    return "not_registered" if row is None else row["tier"]


async def tiers_of(db: Database, addresses: Iterable[str]) -> dict[str, Tier]:
    """Return the tiers of the addresses that are registered."""
    asked = sorted(set(addresses))
    if not asked:
        return {}
    rows = (await db.prepare(_TIERS_OF).bind(json.dumps(asked)).all()).results
    return {row["stx_address"]: row["tier"] for row in rows}


async def tiers(db: Database) -> dict[str, Tier]:
    """The tiers of all registered wallets."""
    return {row["stx_address"]: row["tier"] for row in (await db.prepare(_TIERS).all()).results}
