"""Who sent each wallet its first STX, from the lists that are read anyway, without extra calls.

A wallet's own list shows every transaction that brought it STX, including those through contracts. Once that list was
read to its end, nobody can have been earlier, and the network's list shows the first transfer to a wallet that had
none. The end of a long list is not read: the funder of that wallet stays unknown, which does not mean nobody.
"""

import json
from collections.abc import Collection, Iterable

from tocsin.bindings import Database, Statement
from tocsin.chain_model import Transaction
from tocsin.competition.walk import ABOVE_ALL, anchor_at

FUNDING_MIN = 100_000  # micro-STX; less is advertising, which anybody can send to anybody
SERVICE_NONCE = 10_000  # a funder with this many transactions is an exchange or another service

_SEEN = """
INSERT INTO funders (wallet, funder, funder_nonce, block_height, tx_index, complete)
SELECT json_extract(f.value, '$[0]'), json_extract(f.value, '$[1]'), json_extract(f.value, '$[2]'),
  json_extract(f.value, '$[3]'), json_extract(f.value, '$[4]'), 0
FROM json_each(?) f
WHERE true
ON CONFLICT (wallet) DO UPDATE SET funder = excluded.funder, funder_nonce = excluded.funder_nonce,
  block_height = excluded.block_height, tx_index = excluded.tx_index
WHERE (excluded.block_height, excluded.tx_index) < (funders.block_height, funders.tx_index)"""
_ENDED = """
INSERT INTO funders (wallet, block_height, tx_index, complete) VALUES (?, ?, ?, 1)
ON CONFLICT (wallet) DO UPDATE SET complete = 1 WHERE funders.complete = 0"""
# Known for certain, and not a service. Part of a query that has agents as `a`.
FIRST_FUNDER = f"""
SELECT f.funder FROM funders f
WHERE f.wallet = a.stx_address AND f.complete = 1 AND f.funder_nonce < {SERVICE_NONCE}"""  # noqa: S608 - a constant
_FIRST = f"""
SELECT a.stx_address, ({FIRST_FUNDER}) AS funder FROM agents a
WHERE a.stx_address IN (SELECT value FROM json_each(?))"""  # noqa: S608 - a constant


def record_funders(
    db: Database, rows: Iterable[Transaction], wallets: Collection[str], *, ended: str | None = None
) -> list[Statement]:
    """Record who first sent these wallets STX; `ended` is the wallet whose list ends with these rows."""
    first: dict[str, Transaction] = {}
    for row in rows:
        payment = row.payment
        if payment is None or payment.recipient not in wallets or row.status != "success":
            continue
        known = first.get(payment.recipient)
        if payment.amount < FUNDING_MIN or row.sender == payment.recipient:
            continue
        if known is None or anchor_at(row).position < anchor_at(known).position:
            first[payment.recipient] = row
    seen = [
        [wallet, row.sender, _nonce(row), *anchor_at(row).position] for wallet, row in sorted(first.items())
    ]
    statements = [db.prepare(_SEEN).bind(json.dumps(seen))] if seen else []
    if ended is not None:
        statements.append(db.prepare(_ENDED).bind(ended, *ABOVE_ALL))
    return statements


def _nonce(row: Transaction) -> int | None:
    """Return how many transactions its sender had made before."""
    return next((used.nonce for used in row.nonces if used.account == row.sender), None)


async def first_funders(db: Database, wallets: Iterable[str]) -> dict[str, str]:
    """Return the first funder by wallet, where it is known for certain and is not a service."""
    rows = (await db.prepare(_FIRST).bind(json.dumps(list(wallets))).all()).results
    return {row["stx_address"]: row["funder"] for row in rows if row["funder"] is not None}
