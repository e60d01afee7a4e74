"""Pushes of Hiro's Chainhook: a third source of transactions, besides agents and the sweep.

A push is a hint, not a fact: what it names is queued, and verified like everything else. So a push that comes twice,
late or out of order does no harm. What a rollback takes back is asked for again, and the chain's answer decides. Both
payloads are read, 2.0 and v1.

The queue has room for so many of them and no more. What is refused for lack of room is counted in the answer; if it is
real, our lists show it.

Emits `chainhook.received`, `chainhook.ids_unusable`, `queue.full`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.bindings import JSON
from tocsin.chain_model import ContractCall, canonical_txid
from tocsin.competition import swap_store
from tocsin.competition.eligibility import Tier, tiers
from tocsin.competition.rules import Rules
from tocsin.competition.swap_store import PUSHED, Candidate
from tocsin.errors import UsageError
from tocsin.scheduler.work_context import WorkContext
from tocsin.shapes.base import Shape
from tocsin.shapes.competition import PushCounts

BLOCKS_MAX = 200
TRANSACTIONS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class PushedTransaction(Shape):
    """A transaction of a push; what the push does not say is null."""

    txid: str
    sender: str | None
    contract: str | None
    function: str | None

    @property
    def call(self) -> ContractCall | None:
        if self.contract is None or self.function is None:
            return None
        return ContractCall(self.contract, self.function)


@dataclass(frozen=True, slots=True)
class Push(Shape):
    """What was mined and what was rolled back, as it is sent to the object.

    Transactions without a usable id are only counted: no chain knows them.
    """

    applied: list[PushedTransaction]
    rolled_back: list[str]
    without_id: int = 0


def parse(payload: JSON) -> Push:
    """Read a payload. Refuses one that is neither 2.0 nor v1, with the place that does not fit."""
    event = payload.get("event", payload) if isinstance(payload, dict) else None
    if not isinstance(event, dict) or not ("apply" in event or "rollback" in event):
        raise UsageError(
            "The body is not a push of Chainhook: it has neither event.apply and event.rollback (2.0) nor apply"
            " and rollback (v1)."
        )
    mined = [_pushed(transaction) for transaction in _transactions(event, "apply")]
    undone = [_txid(transaction) for transaction in _transactions(event, "rollback")]
    applied = [pushed for pushed in mined if pushed is not None]
    rolled_back = [txid for txid in undone if txid is not None]
    return Push(applied, rolled_back, len(mined) - len(applied) + len(undone) - len(rolled_back))


async def receive(context: WorkContext, rules: Rules, argument: JSON) -> PushCounts:
    """Queue what a push names and what may count, in one batch, as far as there is room."""
    push = Push.from_json(argument)
    senders = await tiers(context.db)
    applied = [pushed.txid for pushed in push.applied if _may_count(pushed, senders, rules)]
    known = await swap_store.known(context.db, [*applied, *push.rolled_back])
    named = dict.fromkeys(
        [txid for txid in push.rolled_back if txid in known] + [txid for txid in applied if txid not in known]
    )
    waiting = await swap_store.queued(context.db, list(named))
    wanted = [txid for txid in named if txid not in waiting]
    room = await swap_store.room(context.db, PUSHED) if wanted else 0
    candidates = [Candidate(txid, "chainhook", rank=PUSHED) for txid in wanted[:room]]
    statements = swap_store.enqueue(context.db, candidates, context.clock.now())
    if statements:
        await context.db.batch(statements)
    counts = PushCounts(
        queued=len(candidates),
        already_known=sum(txid in known or txid in waiting for txid in applied),
        ignored=len(push.applied) - len(applied) + push.without_id,
        rolled_back=sum(txid in known for txid in push.rolled_back),
        refused=len(wanted) - len(candidates),
    )
    context.logger.info("chainhook.received", **counts.to_json())
    if counts.refused:
        context.logger.warn("queue.full", source="chainhook", count=counts.refused)
    if push.without_id:
        reason = "transactions without a usable id"
        context.logger.warn("chainhook.ids_unusable", count=push.without_id, reason=reason)
    return counts


def _may_count(pushed: PushedTransaction, senders: Mapping[str, Tier], rules: Rules) -> bool:
    """Calls of strangers and unlisted calls cost no call of ours; what the push does not say is asked for."""
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


def _pushed(transaction: Mapping[str, Any]) -> PushedTransaction | None:
    txid, metadata = _txid(transaction), _object(transaction.get("metadata"))
    sender = metadata.get("sender_address", metadata.get("sender"))
    if txid is None:
        return None
    contract, function = _call(transaction, metadata)
    return PushedTransaction(txid, sender if isinstance(sender, str) else None, contract, function)


def _call(transaction: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[str, str] | tuple[None, None]:
    """Contract and function of the top-level call: an operation in 2.0, the transaction's kind in v1."""
    call = _object(_object(metadata.get("kind")).get("data"))
    function = call.get("method")
    operations = transaction.get("operations")
    for operation in operations if isinstance(operations, list) else ():
        if _object(operation).get("type") == "contract_call":
            call = _object(operation.get("metadata"))
            function = call.get("function_name")
    contract = call.get("contract_identifier")
    if isinstance(contract, str) and isinstance(function, str):
        return contract, function
    return None, None


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
    return UsageError(f"{place} is not {wanted}; nothing of the push was stored.")
