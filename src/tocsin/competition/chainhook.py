"""Pushes from Hiro's Chainhook: a third source of transactions, after agents and the sweep.

A push is a hint, not a fact: its transactions are queued and verified like all others. So a push that arrives twice,
late or out of order does no harm. Transactions of a rollback are verified again, and the chain's answer decides. Both
payload formats, 2.0 and v1, are read one transaction at a time, so a large push needs little memory.

The queue has limited room for pushed transactions. The answer counts those refused for lack of room; if they are real,
our lists show them.

Emits `chainhook.received`, `chainhook.ids_unusable`, `queue.full`.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tocsin.bindings import JSON
from tocsin.chain_model import ContractCall, canonical_txid
from tocsin.competition import swap_store
from tocsin.competition.eligibility import Tier, tiers
from tocsin.competition.json_stream import NAME_MAX, JsonStream, decoded
from tocsin.competition.rules import Rules
from tocsin.competition.swap_store import PUSHED, Candidate
from tocsin.errors import OtherNetwork, UsageError
from tocsin.scheduler.work_context import WorkContext
from tocsin.shapes.base import Shape
from tocsin.shapes.competition import PushCounts

BLOCKS_MAX = 200
TRANSACTIONS_MAX = 20_000
TRANSACTION_MAX = 2 * 1024 * 1024  # bytes; a larger one counts as one without an id: our lists show it
ODD_BODY_MAX = 100_000  # bytes of a body that is not an object
APPLY, ROLLBACK = "apply", "rollback"
OURS = {"network": "mainnet", "chain": "stacks"}  # required in a push that names them

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PushedTransaction(Shape):
    """A transaction of a push; fields that the push leaves out are null."""

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
    """The mined and the rolled-back transactions of a push, as sent to the object.

    Transactions without a usable id are only counted: no chain has them.
    """

    applied: list[PushedTransaction]
    rolled_back: list[str]
    without_id: int = 0


async def read_push(pieces: AsyncIterator[bytes]) -> Push:
    """Read a payload as it arrives, one transaction at a time.

    Refuses a payload that is neither 2.0 nor v1, naming the place that does not fit, and one of another network.
    """
    reader = _PushReader(JsonStream(pieces))
    await reader.read()
    return Push(reader.applied, reader.rolled_back, reader.without_id)


async def receive(context: WorkContext, rules: Rules, argument: JSON) -> PushCounts:
    """Queue the transactions of a push that may count, in one batch, as far as there is room."""
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
    """Return whether it is worth a call to Hiro: not if the push shows an unknown sender or an unlisted contract."""
    if pushed.sender is not None and pushed.sender not in senders:
        return False
    return pushed.call is None or rules.allowlist.allows(pushed.call)


class _PushReader:
    """Walks through a payload and keeps the transactions it names."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream
        self._is_push = False
        self._counts = {APPLY: 0, ROLLBACK: 0}
        self.applied: list[PushedTransaction] = []
        self.rolled_back: list[str] = []
        self.without_id = 0

    async def read(self) -> None:
        stream = self._stream
        if await stream.kind() == "{":
            await self._event(outermost=True)
        else:
            decoded(await stream.take(ODD_BODY_MAX) or b"")
        await stream.finish()
        if not self._is_push:
            raise UsageError(
                "The body is not a push of Chainhook: it has neither event.apply and event.rollback (2.0) nor"
                " apply and rollback (v1)."
            )

    async def _event(self, *, outermost: bool) -> None:
        """Read the event of 2.0, or the whole of v1. Its network and chain may come before or after the blocks."""
        stream = self._stream
        async for name in stream.members():
            if name in self._counts:
                self._is_push = True
                await self._blocks(name)
            elif name in OURS:
                await self._check_ours(name)
            elif outermost and name == "event" and await stream.kind() == "{":
                await self._event(outermost=False)
            elif outermost and name == "chainhook" and await stream.kind() == "{":
                async for about in stream.members():
                    await (self._check_ours(about) if about in OURS else stream.skip())
            else:
                await stream.skip()

    async def _check_ours(self, name: str) -> None:
        raw = await self._stream.take(NAME_MAX)
        found = None if raw is None else decoded(raw)
        if found is not None and found != OURS[name]:
            raise OtherNetwork(
                f"The push is about the {name} {str(found)[:40]!r}; Tocsin follows {OURS[name]}."
                " Register the hook with network mainnet and chain stacks; nothing of the push was stored."
            )

    async def _blocks(self, part: str) -> None:
        stream = self._stream
        if await stream.kind() != "[":
            raise _misfit(part, f"a list of {BLOCKS_MAX} at most")
        async for number in stream.items():
            place, found = f"{part}[{number}].transactions", False
            if number >= BLOCKS_MAX:
                raise _misfit(part, f"a list of {BLOCKS_MAX} at most")
            if await stream.kind() != "{":
                raise _misfit(place, "a list")
            async for name in stream.members():
                if name == "transactions" and await stream.kind() == "[":
                    found = True
                    await self._transactions(part, place)
                else:
                    await stream.skip()
            if not found:
                raise _misfit(place, "a list")

    async def _transactions(self, part: str, place: str) -> None:
        stream = self._stream
        async for index in stream.items():
            self._counts[part] += 1
            if self._counts[part] > TRANSACTIONS_MAX:
                raise _misfit(part, f"{TRANSACTIONS_MAX} transactions at most")
            if await stream.kind() != "{":
                raise _misfit(f"{place}[{index}]", "a transaction")
            raw = await stream.take(TRANSACTION_MAX)
            transaction = {} if raw is None else _object(decoded(raw))
            if part == APPLY:
                self._keep(self.applied, _pushed(transaction))
            else:
                self._keep(self.rolled_back, _txid(transaction))

    def _keep(self, kept: list[T], named: T | None) -> None:
        if named is None:
            self.without_id += 1
        else:
            kept.append(named)


def _pushed(transaction: Mapping[str, Any]) -> PushedTransaction | None:
    txid, metadata = _txid(transaction), _object(transaction.get("metadata"))
    sender = metadata.get("sender_address", metadata.get("sender"))
    if txid is None:
        return None
    contract, function = _call(transaction, metadata)
    return PushedTransaction(txid, sender if isinstance(sender, str) else None, contract, function)


def _call(transaction: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[str, str] | tuple[None, None]:
    """Return contract and function of the top-level call: an operation in 2.0, the transaction's kind in v1."""
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


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _misfit(place: str, wanted: str) -> UsageError:
    return UsageError(f"{place} is not {wanted}; nothing of the push was stored.")
