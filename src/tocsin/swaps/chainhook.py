"""Chainhook: Hiro pushes transactions to us, a third source after agents and our lists; and the task `chainhook`.

A push is a hint, not a fact: its transactions are queued and verified like all others. So a push that arrives twice,
late or out of order does no harm. Transactions of a rollback are verified again, and the chain's answer decides. Both
payload formats are read, 2.0 and v1. A push that is too large to be read is acknowledged and counted; the feed then
looks at the network's list at once, or the sweep if the feed is switched off.

The queue has limited room for pushed transactions. The answer counts those refused for lack of room; if they are real,
our lists show them.

Hiro interrupts a hook silently after failed deliveries. The task exists if the settings name a hook, and watches it. A
hook that is not streaming makes the run incomplete: the status shows it at once, and the service is not ready if that
lasts for two cadences. Nothing is lost in the meantime: the feed and the sweep find what no push reports. Hiro's pages
and Hiro's own client name different paths of a hook: the watch tries both, and stays with the one that answers.

A push that has transactions, none of which can be read, makes the service not ready at once: Hiro counts it as
delivered, so nobody else notices. The next push that can be read ends that.

Emits `chainhook.received`, `chainhook.too_large`, `chainhook.ids_unusable`, `queue.filled`, `chainhook.interrupted`,
`chainhook.reenabled`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.errors import OtherNetwork
from tocsin.scheduler.task import Task, TaskContext, TaskResult, WorkContext
from tocsin.settings import Settings
from tocsin.shape import FreeForm, Shape
from tocsin.stacks import ContractCall, HookStatus, canonical_txid
from tocsin.swaps import store as swap_store
from tocsin.swaps.rules import Rules, Tier, tiers
from tocsin.swaps.store import PUSHED, Candidate
from tocsin.swaps.types import PushCounts
from tocsin.upstream.answer import BadRequest, Failure, NotFound
from tocsin.upstream.decode import value_count
from tocsin.upstream.hiro import HiroClient

BLOCKS_MAX = 200
TRANSACTIONS_MAX = 20_000
READ_MAX = 8 * 1024 * 1024  # bytes
VALUES_MAX = 400_000  # JSON values; 8 MiB of real transactions have about as many
APPLY, ROLLBACK = "apply", "rollback"
OURS = {"network": "mainnet", "chain": "stacks"}  # required in a push that names them
WATCH_EVERY_MS = 3_600_000
LONGEST_RUN_MS = 120_000
UNREADABLE = (
    "Chainhook delivers transactions of which none can be read ({} in the last push): compare the payload of the hook"
    " with docs/competition.md. Until then, the lists show the swaps"
)
ID_FIELD = b'"transaction_identifier"'
EMPTY_RESULT: FreeForm = {
    "path": None,
    "hook": None,
    "enabled": None,
    "lastBlock": None,
    "occurrences": None,
    "reenabled": False,
}


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
    too_large: bool = False  # nothing of it was read


def is_too_large(body: bytes) -> bool:
    """Whether a body, or what was kept of it, would hold up everything else while it is parsed."""
    return len(body) > READ_MAX or value_count(body) > VALUES_MAX


def counted(push: Push, body: bytes) -> Push:
    """The push with the number of transactions that its body has elsewhere than where they were looked for."""
    if push.applied or push.rolled_back or push.too_large:
        return push
    return replace(push, without_id=max(push.without_id, body.count(ID_FIELD)))


def read_push(payload: JSON) -> Push:
    """Read a payload.

    Refuses one that is neither 2.0 nor v1, naming the place that does not fit, and one of another network.
    """
    outermost = _object(payload)
    event = _object(outermost.get("event")) or outermost  # of 2.0; v1 has no event around it
    for about in (outermost, outermost.get("chainhook"), event):
        _check_ours(about)
    if APPLY not in event and ROLLBACK not in event:
        raise UsageError(
            "The body is not a push of Chainhook: it has neither event.apply and event.rollback (2.0) nor"
            " apply and rollback (v1)."
        )
    applied = [_pushed(transaction) for transaction in _transactions(event, APPLY)]
    rolled_back = [_txid(transaction) for transaction in _transactions(event, ROLLBACK)]
    return Push(
        [pushed for pushed in applied if pushed is not None],
        [txid for txid in rolled_back if txid is not None],
        applied.count(None) + rolled_back.count(None),
    )


async def receive(context: WorkContext, rules: Rules, argument: JSON) -> PushCounts:
    """Queue the transactions of a push that may count, in one batch, as far as there is room."""
    push = Push.from_json(argument)
    if push.applied or push.rolled_back:
        context.report("chainhook", None)
    elif push.without_id:
        context.report("chainhook", UNREADABLE.format(push.without_id))
    if push.too_large:
        context.logger.warning("chainhook.too_large", reason="the feed looks at the network's list instead")
        context.wake("feed", "sweep")
        return PushCounts(queued=0, already_known=0, ignored=0, rolled_back=0, too_large=True)
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
        context.logger.warning("queue.filled", source="chainhook", count=counts.refused)
    if push.without_id:
        reason = "transactions without a usable id"
        context.logger.warning("chainhook.ids_unusable", count=push.without_id, reason=reason)
    return counts


def _may_count(pushed: PushedTransaction, senders: Mapping[str, Tier], rules: Rules) -> bool:
    """Return whether it is worth a call to Hiro: not if the push shows an unknown sender or an unlisted contract."""
    if pushed.sender is not None and pushed.sender not in senders:
        return False
    return pushed.call is None or rules.allowlist.allows(pushed.call)


def _check_ours(about: object) -> None:
    """Refuse a push that names another network or chain."""
    for name, ours in OURS.items():
        found = _object(about).get(name)
        if found is not None and found != ours:
            raise OtherNetwork(
                f"The push is about the {name} {str(found)[:40]!r}; Tocsin follows {ours}."
                " Register the hook with network mainnet and chain stacks; nothing of the push was stored."
            )


def _transactions(event: Mapping[str, Any], part: str) -> Iterator[Mapping[str, Any]]:
    """Yield the transactions of a part's blocks. A part that is left out has none."""
    blocks = event.get(part, [])
    if not isinstance(blocks, list) or len(blocks) > BLOCKS_MAX:
        raise _misfit(part, f"a list of {BLOCKS_MAX} at most")
    count = 0
    for number, block in enumerate(blocks):
        place, listed = f"{part}[{number}].transactions", _object(block).get("transactions")
        if not isinstance(listed, list):
            raise _misfit(place, "a list")
        count += len(listed)
        if count > TRANSACTIONS_MAX:
            raise _misfit(part, f"{TRANSACTIONS_MAX} transactions at most")
        for index, transaction in enumerate(listed):
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


def problem_of(hook: HookStatus) -> str | None:
    """Return why no pushes arrive, with the fix; None if they do."""
    if hook.state == "interrupted":
        return "Hiro has interrupted the hook: enable it again, or set TOCSIN_CHAINHOOK_REENABLE=yes"
    if hook.state == "expired":
        return "the hook has expired: register it again, and set TOCSIN_CHAINHOOK_ID to the new one"
    if not hook.enabled:
        return "the hook is disabled: enable it at Hiro, or remove TOCSIN_CHAINHOOK_ID"
    return None


def hook_paths(hook: str) -> list[str]:
    """Where a hook may be at Hiro; a path in the settings is the only one."""
    return [hook] if hook.startswith("/") else [f"/chainhooks/v1/me/{hook}", f"/chainhooks/me/{hook}"]


async def watch_hook(context: TaskContext, paths: list[str], *, reenable: bool) -> TaskResult:
    """Ask Hiro for the status of a hook; with `reenable`, enable it again if it was interrupted.

    The one of its `paths` that answers becomes the first.
    """
    hiro = context.upstream("hiro", HiroClient)
    path, *others = paths
    asked = await hiro.hook_status(path, context.session)
    for other in others:
        if isinstance(asked, NotFound) or (isinstance(asked, BadRequest) and asked.status == 404):
            path, asked = other, await hiro.hook_status(other, context.session)
            paths.sort(key=path.__ne__)
    if isinstance(asked, NotFound):
        reason = "Hiro has no such hook for our key: check TOCSIN_CHAINHOOK_ID and HIRO_API_KEY"
        return TaskResult(EMPTY_RESULT, error=reason, error_kind="NotFound")
    if isinstance(asked, Failure):
        return TaskResult.of(asked, EMPTY_RESULT)
    hook = asked.value
    counters = {
        **EMPTY_RESULT,
        "path": path,
        "hook": hook.state,
        "enabled": hook.enabled,
        "lastBlock": hook.last_block,
        "occurrences": hook.occurrences,
    }
    problem = problem_of(hook)
    if hook.state == "interrupted":
        context.logger.warning("chainhook.interrupted", last_block=hook.last_block, reason=problem)
        if reenable:
            return await _reenabled(context, hiro, path, counters)
    return TaskResult(counters, incomplete=problem)


async def _reenabled(context: TaskContext, hiro: HiroClient, path: str, counters: FreeForm) -> TaskResult:
    changed = await hiro.enable_hook(path, context.session)
    if isinstance(changed, NotFound):
        reason = "Hiro has no hook to enable at this path: check TOCSIN_CHAINHOOK_ID"
        return TaskResult(counters, error=reason, error_kind="NotFound")
    if isinstance(changed, Failure):
        return TaskResult.of(changed, counters)
    context.logger.warning("chainhook.reenabled", last_block=counters["lastBlock"])
    return TaskResult({**counters, "reenabled": True})


def watch_chainhook_tasks(settings: Settings) -> tuple[Task, ...]:
    """The task; empty if there is no hook to watch."""
    hook, reenable = settings.chainhook_id, settings.chainhook_reenable
    if hook is None:
        return ()
    paths = hook_paths(hook)

    async def run(context: TaskContext) -> TaskResult:
        return await watch_hook(context, paths, reenable=reenable)

    task = Task(
        name="chainhook",
        title="Chainhook",
        upstream="hiro",
        cadence_ms=WATCH_EVERY_MS,
        slice_ms=LONGEST_RUN_MS,
        calls_per_run=1.0,
        run=run,
        empty_result=EMPTY_RESULT,
        why="one call an hour: while the hook is down, the sweep finds everything",
    )
    return (task,)
