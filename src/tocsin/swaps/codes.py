"""Every outcome of a transaction other than a new swap: one table for routes and sentences.

Transactions with a `final` code are stored as refusals and not verified again; the other codes are temporary.
`reopened_by` names the change that reopens a refusal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

Reopener: TypeAlias = Literal["sender", "allowlist", "campaign"]


class Code(StrEnum):
    MALFORMED_TXID = "malformed_txid"
    TXID_ALREADY_VERIFIED = "txid_already_verified"
    PENDING = "pending"
    TX_NOT_FOUND = "tx_not_found"
    TX_FETCH_FAILED = "tx_fetch_failed"
    TOO_MANY_REQUESTS = "too_many_requests"
    MALFORMED_TX = "malformed_tx"
    TX_FAILED = "tx_failed"
    BEFORE_COMP_START = "before_comp_start"
    AFTER_COMP_END = "after_comp_end"
    SENDER_NOT_REGISTERED = "sender_not_registered"
    SENDER_NOT_GENESIS = "sender_not_genesis"
    CONTRACT_NOT_ALLOWLISTED = "contract_not_allowlisted"
    INVALID_AMOUNT = "invalid_amount"
    INCOMPLETE_EVENTS = "incomplete_events"
    DB_UNAVAILABLE = "db_unavailable"
    VERIFY_THREW = "verify_threw"


@dataclass(frozen=True, slots=True)
class Meaning:
    status: int
    sentence: str
    retryable: bool = False
    final: bool = False
    retry_s: int = 5  # as in the sentence
    reopened_by: Reopener | None = None


MEANINGS: Mapping[Code, Meaning] = {
    Code.MALFORMED_TXID: Meaning(400, 'Send {"txid": "0x…"}: 64 hex digits, with or without 0x before them.'),
    Code.TXID_ALREADY_VERIFIED: Meaning(
        409, "This swap is already recorded; existing_row shows it. There is nothing left to do."
    ),
    Code.PENDING: Meaning(
        202,
        "The transaction is not mined yet. If it would count, it is checked again without a further request.",
        retryable=True,
    ),
    Code.TX_NOT_FOUND: Meaning(
        404,
        "Hiro does not know this transaction. If it was just broadcast, send it again in a minute.",
        retryable=True,
        retry_s=60,
    ),
    Code.TX_FETCH_FAILED: Meaning(
        502, "Hiro could not be asked about this transaction now. Send it again later.", retryable=True
    ),
    Code.TOO_MANY_REQUESTS: Meaning(
        429,
        "This client has used its share of the calls to Hiro. A swap that counts is found without a submission.",
        retryable=True,
    ),
    Code.MALFORMED_TX: Meaning(
        422, "Only a contract call can be a swap; this transaction is something else.", final=True
    ),
    Code.TX_FAILED: Meaning(
        422, "The transaction did not succeed on chain. Trade again and send the new id.", final=True
    ),
    Code.BEFORE_COMP_START: Meaning(
        422, "The transaction is from before the start of the competition.", final=True, reopened_by="campaign"
    ),
    Code.AFTER_COMP_END: Meaning(
        422, "The competition had ended when this was mined.", final=True, reopened_by="campaign"
    ),
    Code.SENDER_NOT_REGISTERED: Meaning(
        422,
        "The sender is not registered, or has no on-chain identity yet. Register, then send it again.",
        final=True,
        reopened_by="sender",
    ),
    Code.SENDER_NOT_GENESIS: Meaning(
        422,
        "The sender's claim is not verified yet. Complete the claim, then send it again.",
        final=True,
        reopened_by="sender",
    ),
    Code.CONTRACT_NOT_ALLOWLISTED: Meaning(
        422,
        "This contract or function does not count; /api/competition/allowlist shows those that do.",
        final=True,
        reopened_by="allowlist",
    ),
    Code.INVALID_AMOUNT: Meaning(422, "An amount of this transaction is not a usable number.", final=True),
    Code.INCOMPLETE_EVENTS: Meaning(
        422, "A swap takes exactly one token from the sender and gives it exactly one; this did not.", final=True
    ),
    Code.DB_UNAVAILABLE: Meaning(
        503, "The database cannot be used at the moment. Send it again in a few seconds.", retryable=True
    ),
    Code.VERIFY_THREW: Meaning(
        500, "Checking this transaction failed on our side; the log has the reason.", retryable=True
    ),
}
