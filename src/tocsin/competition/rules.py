"""Decides whether a transaction may count from its status, time, kind, sender and contract. Pure.

The order is part of the public API contract: the first failed check is the reported reason. The tokens are checked
last, because only that costs another call (`swap.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tocsin.bindings import Row
from tocsin.chain_model import ContractCall, Transaction
from tocsin.competition.allowlist import AllowList, with_added
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.eligibility import REFUSED, Tier
from tocsin.errors import UsageError
from tocsin.settings import Settings
from tocsin.shapes.pool_floors import NO_FLOORS, PoolFloors

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
    """Return the rules that the settings define."""
    allowlist = with_added(settings.allowlist)
    return Rules(allowlist, settings.competition_start, settings.competition_end, floors_of(settings))


def floors_of(settings: Settings) -> PoolFloors:
    return PoolFloors(settings.min_liquidity_usd, settings.min_day_volume_usd)


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
        return Check(
            "status", f"Hiro calls it {status}, a status that Tocsin does not know", Code.MALFORMED_TX
        )
    if not transaction.canonical:
        return Check("status", "it is on a fork that was abandoned, and not mined again yet", Code.PENDING)
    if status != "success":
        return Check("status", f"it was mined and failed ({status})", Code.TX_FAILED)
    return Check("status", "mined on the canonical chain, and succeeded")


def _time(burn_block_time: int, rules: Rules) -> Check:
    when = _date(burn_block_time)
    if burn_block_time < rules.start_s:
        return Check(
            "campaign", f"{when} is before the start, {_date(rules.start_s)}", Code.BEFORE_COMP_START
        )
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
