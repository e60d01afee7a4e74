"""Decides which rows of a list are worth a call: those that are new and may count. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tocsin.chain_model import Transaction
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.eligibility import Tier
from tocsin.competition.rules import Rules, judge
from tocsin.competition.swap_store import Candidate, Known, Refusal


@dataclass(slots=True)
class Triaged:
    """The rows of a page that matter. `found` counts listed calls of registered senders."""

    candidates: list[Candidate] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    found: int = 0
    already_known: int = 0


def relevant_to(
    principal: str, rows: Iterable[Transaction], tiers: Mapping[str, Tier], rules: Rules
) -> list[Transaction]:
    """Return the calls that the list of this principal is read for.

    For a contract: listed calls by registered senders. For a wallet: its own listed calls, and calls to other contracts
    that look like swaps, to report them and to find them again when the allow-list grows.
    """
    return [row for row in rows if _concerns(principal, row, tiers, rules)]


def relevant_calls(rows: Iterable[Transaction], tiers: Mapping[str, Tier], rules: Rules) -> list[Transaction]:
    """Return the calls by registered senders that are listed or look like swaps."""
    return [row for row in rows if row.sender in tiers and _concerns(row.sender, row, tiers, rules)]


def triage(
    rows: Iterable[Transaction], known: Mapping[str, Known], tiers: Mapping[str, Tier], rules: Rules
) -> Triaged:
    """Sort rows: to be verified, refused without a call, or already known in the listed block."""
    triaged = Triaged()
    for row in rows:
        check = judge(row, tiers.get(row.sender, "not_registered"), rules)
        code = check.code if check else None
        before = known.get(row.tx_id)
        triaged.found += code is not Code.CONTRACT_NOT_ALLOWLISTED
        if before is not None and _is_unchanged(before, row, code):
            triaged.already_known += before.kind == "swap"
        elif check is None or code is None:
            contract = None if row.contract_call is None else row.contract_call.contract_id
            block = 0 if row.mined is None else row.mined.height
            triaged.candidates.append(Candidate(row.tx_id, "cron", contract_id=contract, block_height=block))
        elif MEANINGS[code].final:
            triaged.refusals.append(Refusal(row, code, check.detail, "cron"))
    return triaged


def _concerns(principal: str, row: Transaction, tiers: Mapping[str, Tier], rules: Rules) -> bool:
    call = row.contract_call
    if call is None:
        return False
    if row.sender == principal:
        return rules.allowlist.allows(call) or "swap" in call.function_name
    return call.contract_id == principal and rules.allowlist.allows(call) and row.sender in tiers


def _is_unchanged(before: Known, row: Transaction, code: Code | None) -> bool:
    """Return whether nothing is to be done: it was seen in this block and would be judged the same today."""
    if row.mined is None or before.block_hash != row.mined.block_hash:
        return False
    if before.kind == "refusal" and before.code is not None:
        return before.code == code or (code is None and MEANINGS[before.code].reopened_by is None)
    return True
