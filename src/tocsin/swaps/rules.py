"""What counts: the allow-list of contracts, the tiers of senders, the campaign, and the checks that apply them.

The allow-list is data, not code: operators extend it with a file of the same form. Its version is a digest of its
entries; transactions that were refused under another version are verified again. The view `agent_tiers` defines the
tiers; the board reads the same view.

`MEANINGS` has every outcome of a transaction other than a new swap, for routes and sentences. Transactions with a
`final` code are stored as refusals and not verified again; the other codes are temporary. `reopened_by` names the
change that reopens a refusal.

The checks are pure. They decide from status, time, kind, sender and contract, and their order is part of the public
API contract: the first failed check is the reported reason. The tokens are checked last, because only that costs
another call (`swap.py`).
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.errors import StartError, UsageError
from holdfast.types import Database, Row
from tocsin.prices.price import NO_FLOORS, PoolFloors, floors_of
from tocsin.settings import Settings
from tocsin.sql import read_queries
from tocsin.stacks import ContractCall, Transaction, is_address, is_contract_id
from tocsin.swaps.types import AllowedContract, AllowListView

_FUNCTION = re.compile(r"[a-zA-Z][a-zA-Z0-9\-_!?+<>=/*]{0,127}")
_PROTOCOL = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_FIELDS = ("contracts", "protocol", "provider_address", "provider_attribution_contracts")
_EXAMPLE = '{"protocol": "alex", "contracts": {"SP….router-v-1-1": ["swap-helper-a"]}}'
UNNAMED_PROTOCOL = "other"  # for a file that does not name one

Tier: TypeAlias = Literal["eligible", "genesis", "registered", "not_registered"]
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

# Why a sender's swaps do not count. A missing identity has the code of a missing registration, because the public
# API contract has no other code; the sentences differ.
REFUSED: Mapping[Tier, tuple[Code, str]] = {
    "not_registered": (Code.SENDER_NOT_REGISTERED, "the sender is not a registered agent"),
    "registered": (Code.SENDER_NOT_GENESIS, "the sender's claim is not verified"),
    "genesis": (Code.SENDER_NOT_REGISTERED, "the sender has no on-chain identity (ERC-8004) yet"),
}

SQL = read_queries(__file__)

DATE_MAX_S = 253_402_300_799  # the year 9999; an upstream may send anything
DROPPED = frozenset(
    (
        "dropped_replace_by_fee",
        "dropped_replace_across_fork",
        "dropped_too_expensive",
        "dropped_stale_garbage_collect",
        "dropped_problematic",
    )
)
FAILED = frozenset(("abort_by_response", "abort_by_post_condition", "problematic_skipped"))


@dataclass(frozen=True)
class AllowList:
    """Contract ids and the functions that count of each. Only top-level calls count, and names must match exactly.

    `protocols` names the DEX that each contract belongs to.
    """

    contracts: Mapping[str, frozenset[str]]
    protocols: Mapping[str, str] = field(default_factory=dict)
    provider_address: str = ""
    attribution: frozenset[str] = frozenset()  # contracts that name a provider in their call

    @cached_property
    def version(self) -> str:
        entries = json.dumps({name: sorted(self.contracts[name]) for name in sorted(self.contracts)})
        return hashlib.sha256(entries.encode()).hexdigest()[:12]

    def allows(self, call: ContractCall) -> bool:
        return call.function_name in self.contracts.get(call.contract_id, ())

    def plus(self, other: "AllowList") -> "AllowList":
        """Return both lists combined; a contract in both has the functions of both."""
        contracts = dict(self.contracts)
        for name, functions in other.contracts.items():
            contracts[name] = contracts.get(name, frozenset()) | functions
        return AllowList(
            contracts,
            {**other.protocols, **self.protocols},
            other.provider_address or self.provider_address,
            self.attribution | other.attribution,
        )

    def view(self) -> AllowListView:
        """Return the list as `GET /api/competition/allowlist` shows it."""
        entries = [
            AllowedContract(name, sorted(self.contracts[name]), self.protocols.get(name, UNNAMED_PROTOCOL))
            for name in sorted(self.contracts)
        ]
        return AllowListView(
            version=self.version,
            entries=entries,
            total_contracts=len(self.contracts),
            total_functions=sum(len(functions) for functions in self.contracts.values()),
            provider_address=self.provider_address,
            protocols=dict(sorted(Counter(entry.protocol for entry in entries).items())),
        )


@cache
def built_in() -> AllowList:
    """The list that comes with this release."""
    return parse((Path(__file__).parent / "allowlist.json").read_text(encoding="utf-8"), "allowlist.json")


def with_added(added: str | None) -> AllowList:
    """Return the built-in list plus the additions of a deployment: the name of a file, or the JSON itself."""
    if added is None:
        return built_in()
    try:
        if added.startswith("{"):
            return built_in().plus(parse(added, "the list"))
        return built_in().plus(parse(Path(added).read_text(encoding="utf-8"), added))
    except UsageError as error:
        raise StartError(f"TOCSIN_ALLOWLIST: {error}") from None
    except (OSError, ValueError) as error:
        raise StartError(f"TOCSIN_ALLOWLIST: {added} cannot be read ({error}). Name a file like {_EXAMPLE}") from None


def parse(text: str, name: str) -> AllowList:
    """Read a list. An error names the file, the place and the expected form."""
    try:
        value = json.loads(text, object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON ({error}). It should look like {_EXAMPLE}") from None
    if not isinstance(value, dict) or not isinstance(value.get("contracts"), dict):
        raise UsageError(f"{name} has no object `contracts`. It should look like {_EXAMPLE}")
    unknown = sorted(set(value) - set(_FIELDS))
    if unknown:
        raise UsageError(f"{name} has a field `{unknown[0]}`; known are {', '.join(_FIELDS)}")
    provider = value.get("provider_address", "")
    if provider != "" and not (isinstance(provider, str) and is_address(provider)):
        raise UsageError(
            f"{name}: provider_address is a Stacks address such as SP1M8K…, not {provider!r:.80}."
            " Compare every character: its checksum is part of it"
        )
    protocol = value.get("protocol", UNNAMED_PROTOCOL)
    if not (isinstance(protocol, str) and _PROTOCOL.fullmatch(protocol)):
        raise UsageError(f"{name}: protocol is a short lower-case name such as bitflow, not {protocol!r:.60}")
    contracts = {key: _functions(key, items, name) for key, items in value["contracts"].items()}
    attribution = _texts(value.get("provider_attribution_contracts", []), "provider_attribution_contracts", name)
    return AllowList(contracts, dict.fromkeys(contracts, protocol), provider, frozenset(attribution))


def _functions(contract: str, items: object, name: str) -> frozenset[str]:
    if not is_contract_id(contract):
        raise UsageError(
            f"{name}: {contract[:80]!r} is not a contract id; one looks like SP….router-v-1-1."
            " Compare every character: the address has a checksum"
        )
    functions = _texts(items, contract, name)
    wrong = [function for function in functions if not _FUNCTION.fullmatch(function)]
    if wrong or not functions:
        shown = repr(wrong[0][:80]) if wrong else "an empty list"
        raise UsageError(f"{name}: {contract} needs the names of its functions, not {shown}")
    return frozenset(functions)


def _texts(items: object, key: str, name: str) -> Sequence[str]:
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UsageError(f"{name}: {key} must be a list of texts")
    return items


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON that names each field once; of a contract listed twice, the first entry would be lost."""
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"{twice!r} is listed twice")
    return value


async def tier_of(db: Database, address: str) -> Tier:
    return (await tiers_of(db, [address])).get(address, "not_registered")


async def tiers_of(db: Database, addresses: Iterable[str]) -> dict[str, Tier]:
    """Return the tiers of the addresses that are registered."""
    asked = sorted(set(addresses))
    if not asked:
        return {}
    rows = (await db.prepare(SQL["tiers_of"]).bind(json.dumps(asked)).all()).results
    return {row["stx_address"]: row["tier"] for row in rows}


async def tiers(db: Database) -> dict[str, Tier]:
    """The tiers of all registered wallets."""
    return {row["stx_address"]: row["tier"] for row in (await db.prepare(SQL["tiers"]).all()).results}


@dataclass(frozen=True)
class Rules:
    """The allow-list and the campaign: burn block times from `start_s` until before `end_s`.

    A token whose pools are below the floors counts like one without a price.
    """

    allowlist: AllowList
    start_s: int
    end_s: int | None = None
    floors: PoolFloors = NO_FLOORS

    def __post_init__(self) -> None:
        if self.end_s is not None and self.end_s <= self.start_s:
            raise UsageError("COMPETITION_END must be later than COMPETITION_START, both in unix seconds.")

    @property
    def version(self) -> str:
        """A text that changes whenever a refused transaction might count now."""
        return f"{self.allowlist.version}:{self.start_s}:{self.end_s}"

    def for_principal(self, principal: str) -> str:
        """Return the rules for one contract's or wallet's list, as text: if it changes, so may the findings."""
        functions = ",".join(sorted(self.allowlist.contracts.get(principal, ())))
        return f"{self.start_s}:{self.end_s}:{functions}"


def rules_of(settings: Settings) -> Rules:
    allowlist = with_added(settings.allowlist)
    return Rules(allowlist, settings.competition_start, settings.competition_end, floors_of(settings))


@dataclass(frozen=True, slots=True)
class Check:
    """One check. It passed if there is no code."""

    name: str
    detail: str
    code: Code | None = None


def judge(transaction: Transaction, tier: Tier, rules: Rules) -> Check | None:
    """Return the first check that failed; None when only the tokens are left to check."""
    return next((check for check in checks(transaction, tier, rules) if check.code is not None), None)


def checks(transaction: Transaction, tier: Tier, rules: Rules) -> Iterator[Check]:
    """Yield all checks in order; those about the block are left out while there is none."""
    yield _status(transaction)
    if transaction.mined is not None:
        yield _time(transaction.mined.burn_block_time, rules)
    yield _kind(transaction)
    yield _sender(tier)
    if transaction.contract_call is not None:
        yield _contract(transaction, rules)


def still_refused(refusal: Row, tier: Tier, rules: Rules) -> bool:
    """Return whether a stored refusal would be the same today."""
    code = Code(refusal["code"])
    match MEANINGS[code].reopened_by:
        case "sender":
            return tier in REFUSED and REFUSED[tier][0] == code
        case "allowlist":
            return not rules.allowlist.allows(ContractCall(refusal["contract_id"], refusal["function_name"]))
        case "campaign":
            time: int = refusal["burn_block_time"]
            return time < rules.start_s or (rules.end_s is not None and time >= rules.end_s)
        case None:
            return True


def _status(transaction: Transaction) -> Check:
    status = transaction.status
    if status == "pending":
        return Check("status", "waiting in the mempool", Code.PENDING)
    if status in DROPPED:
        return Check("status", f"it left the mempool unmined ({status})", Code.TX_FAILED)
    if status != "success" and status not in FAILED:
        return Check("status", f"Hiro reports the unknown status {status}", Code.MALFORMED_TX)
    if not transaction.canonical:
        return Check("status", "it is on a fork that was abandoned, and not mined again yet", Code.PENDING)
    if status != "success":
        return Check("status", f"it was mined and failed ({status})", Code.TX_FAILED)
    return Check("status", "mined on the canonical chain, and succeeded")


def _time(burn_block_time: int, rules: Rules) -> Check:
    when = _date(burn_block_time)
    if burn_block_time < rules.start_s:
        return Check("campaign", f"{when} is before the start, {_date(rules.start_s)}", Code.BEFORE_COMP_START)
    if rules.end_s is not None and burn_block_time >= rules.end_s:
        return Check("campaign", f"{when} is after the end, {_date(rules.end_s)}", Code.AFTER_COMP_END)
    return Check("campaign", f"{when} is within the campaign")


def _kind(transaction: Transaction) -> Check:
    if transaction.contract_call is None and transaction.type == "contract_call":
        return Check("kind", "it does not say which contract it calls", Code.MALFORMED_TX)
    if transaction.contract_call is None:
        return Check("kind", f"it is a {transaction.type}, not a contract_call", Code.MALFORMED_TX)
    return Check("kind", "it is a contract call")


def _sender(tier: Tier) -> Check:
    if tier in REFUSED:
        code, detail = REFUSED[tier]
        return Check("sender", detail, code)
    return Check("sender", "the sender is eligible")


def _contract(transaction: Transaction, rules: Rules) -> Check:
    call = transaction.contract_call
    assert call is not None
    name = f"{call.contract_id}::{call.function_name}"
    if not rules.allowlist.allows(call):
        version = rules.allowlist.version
        return Check("contract", f"{name} is not on list {version}", Code.CONTRACT_NOT_ALLOWLISTED)
    return Check("contract", f"{name} is on the list")


def _date(seconds: int) -> str:
    if seconds > DATE_MAX_S:
        return f"second {seconds}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
