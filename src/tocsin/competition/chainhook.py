"""Pushes of Hiro's Chainhook: a third source of transactions, beside agents and the sweep.

A push is a hint, not a fact: what it names is queued, and settled by the same verifier as everything else.
So a push that comes twice, late or out of order does no harm. A rollback comes before what replaces it by
nature of the queue: what is taken back is asked for again, and the chain's answer decides. Both payloads are
read, 2.0 and v1.

Emits `chainhook.received`, `chainhook.nameless`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.bindings import JSON
from tocsin.chain_model import ContractCall, canonical_txid
from tocsin.competition import swap_store
from tocsin.competition.desk import Desk
from tocsin.competition.eligibility import Tier, tiers
from tocsin.competition.rules import Rules
from tocsin.competition.swap_store import Candidate
from tocsin.errors import UsageError

BLOCKS_MAX = 200
TRANSACTIONS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Pushed:
    """A transaction of a push; what it does not tell is None."""

    txid: str
    sender: str | None
    call: ContractCall | None


@dataclass(frozen=True, slots=True)
class Push:
    """What came and what went. `nameless` had no usable id: no chain knows them, so they are counted only."""

    applied: tuple[Pushed, ...]
    rolled_back: tuple[str, ...]
    nameless: int = 0

    def to_json(self) -> JSON:
        """As it is sent to the object: what the payload has beside it is left behind."""
        applied = [
            [pushed.txid, pushed.sender, *((call.contract_id, call.function_name) if call else (None, None))]
            for pushed in self.applied
            for call in (pushed.call,)
        ]
        return {"applied": applied, "rolledBack": list(self.rolled_back), "nameless": self.nameless}

    @classmethod
    def from_json(cls, value: JSON) -> "Push":
        applied = (
            Pushed(txid, sender, None if contract is None else ContractCall(contract, function))
            for txid, sender, contract, function in value["applied"]
        )
        return cls(tuple(applied), tuple(value["rolledBack"]), value["nameless"])


def parse(payload: JSON) -> Push:
    """Read a payload. Refuses one that is neither 2.0 nor v1, with the place that does not fit."""
    event = payload.get("event", payload) if isinstance(payload, dict) else None
    if not isinstance(event, dict) or not ("apply" in event or "rollback" in event):
        raise UsageError(
            "The body is no push of Chainhook: it has neither event.apply and event.rollback (2.0) nor apply"
            " and rollback (v1)."
        )
    came = [_pushed(transaction) for transaction in _transactions(event, "apply")]
    went = [_txid(transaction) for transaction in _transactions(event, "rollback")]
    applied = tuple(pushed for pushed in came if pushed is not None)
    rolled_back = tuple(txid for txid in went if txid is not None)
    return Push(applied, rolled_back, len(came) - len(applied) + len(went) - len(rolled_back))


async def receive(desk: Desk, rules: Rules, argument: JSON) -> JSON:
    """Queue what a push names and what may matter, in one batch: when this returns, nothing can get lost."""
    push = Push.from_json(argument)
    senders = await tiers(desk.db)
    applied = [pushed.txid for pushed in push.applied if _matters(pushed, senders, rules)]
    known = await swap_store.known(desk.db, [*applied, *push.rolled_back])
    queued = dict.fromkeys(
        [txid for txid in push.rolled_back if txid in known] + [txid for txid in applied if txid not in known]
    )
    candidates = [Candidate(txid, "chainhook") for txid in queued]
    statements = swap_store.enqueue(desk.db, candidates, desk.clock.now())
    if statements:
        await desk.db.batch(statements)
    counts = {
        "queued": len(queued),
        "alreadyKnown": sum(txid in known for txid in applied),
        "ignored": len(push.applied) - len(applied) + push.nameless,
        "rolledBack": sum(txid in known for txid in push.rolled_back),
    }
    desk.logger.info("chainhook.received", **counts)
    if push.nameless:
        desk.logger.warn("chainhook.nameless", count=push.nameless, reason="transactions without a usable id")
    return counts


def _matters(pushed: Pushed, senders: Mapping[str, Tier], rules: Rules) -> bool:
    """Strangers and unlisted calls cost no call of ours; what is not told is asked for."""
    if pushed.sender is not None and pushed.sender not in senders:
        return False
    return pushed.call is None or rules.allowlist.allows(pushed.call)


def _transactions(event: Mapping[str, Any], part: str) -> Iterator[Mapping[str, Any]]:
    count = 0
    for number, block in enumerate(_list(event.get(part, []), part, BLOCKS_MAX)):
        place = f"{part}[{number}].transactions"
        for index, transaction in enumerate(
            _list(_object(block).get("transactions"), place, TRANSACTIONS_MAX)
        ):
            count += 1
            if count > TRANSACTIONS_MAX:
                raise _misfit(part, f"{TRANSACTIONS_MAX} transactions at most")
            if not isinstance(transaction, dict):
                raise _misfit(f"{place}[{index}]", "a transaction")
            yield transaction


def _pushed(transaction: Mapping[str, Any]) -> Pushed | None:
    txid, metadata = _txid(transaction), _object(transaction.get("metadata"))
    sender = metadata.get("sender_address", metadata.get("sender"))
    if txid is None:
        return None
    return Pushed(txid, sender if isinstance(sender, str) else None, _call(transaction, metadata))


def _call(transaction: Mapping[str, Any], metadata: Mapping[str, Any]) -> ContractCall | None:
    """The top-level call: an operation of its own in 2.0, the transaction's kind in v1."""
    told = _object(_object(metadata.get("kind")).get("data"))
    function = told.get("method")
    operations = transaction.get("operations")
    for operation in operations if isinstance(operations, list) else ():
        if _object(operation).get("type") == "contract_call":
            told = _object(operation.get("metadata"))
            function = told.get("function_name")
    contract = told.get("contract_identifier")
    if isinstance(contract, str) and isinstance(function, str):
        return ContractCall(contract, function)
    return None


def _txid(transaction: Mapping[str, Any]) -> str | None:
    txid = _object(transaction.get("transaction_identifier")).get("hash")
    try:
        return canonical_txid(txid) if isinstance(txid, str) else None
    except UsageError:
        return None


def _list(value: Any, place: str, length_max: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > length_max:
        raise _misfit(place, f"a list of {length_max} at most")
    return value


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _misfit(place: str, wanted: str) -> UsageError:
    return UsageError(f"{place} is not {wanted}; the push was not taken.")
