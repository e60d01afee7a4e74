"""Reads the lists of contracts and wallets back to their marks, and queues what the pages of any list show.

Only rows that are new and may count are worth a call. Each page is one batch: its new transactions, the recorded swaps
that it should show and does not, and the mark after it. So reading may stop after any page and continue there.

Lists also show who sent each wallet its first STX, without extra calls. A wallet's own list shows every transaction
that brought it STX, including those through contracts. Once that list was read to its end, nobody can have been
earlier, and the network's list shows the first transfer to a wallet that had none. The end of a long list is not read:
the funder of that wallet stays unknown, which does not mean nobody.

Emits `contract.unlisted`: an agent's call that looks like a swap, to a contract that does not count.
"""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.types import Database, Statement
from tocsin.errors import NoAnswer
from tocsin.scheduler.task import TaskContext
from tocsin.stacks import ContractCall, Page, Transaction
from tocsin.swaps import proof as nonces
from tocsin.swaps import store as swap_store
from tocsin.swaps.codes import MEANINGS, Code
from tocsin.swaps.rules import Rules, Tier, judge
from tocsin.swaps.store import Candidate, Known, Refusal
from tocsin.swaps.walk import ABOVE_ALL, Mark, Step, anchor_at, save_mark, step
from tocsin.upstream.answer import BadRequest, Malformed, value_or_raise
from tocsin.upstream.hiro import HiroClient

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

NOT_A_LIST = "hiro answered 404 for a list; the list of an unused principal should be empty"

_OF_CONTRACT = """
SELECT txid FROM swaps WHERE contract_id = ?
  AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?)"""
_OF_WALLET = """
SELECT txid FROM swaps WHERE sender = ?
  AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?)"""


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


def triage(rows: Iterable[Transaction], known: Mapping[str, Known], tiers: Mapping[str, Tier], rules: Rules) -> Triaged:
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


@dataclass(frozen=True, slots=True)
class PageRead:
    found: int = 0
    already_known: int = 0
    queued: int = 0
    refused: tuple[tuple[str, Code], ...] = ()  # by transaction


class PageQueue:
    def __init__(self, context: TaskContext, rules: Rules) -> None:
        self._context = context
        self._rules = rules
        self._reported: set[ContractCall] = set()

    async def add(
        self,
        rows: Sequence[Transaction],
        tiers: Mapping[str, Tier],
        *,
        gone: Collection[str],
        unreadable: Collection[str],
        kept: Sequence[Statement],
    ) -> PageRead:
        """Queue relevant rows and doubtful transactions, in one batch with the statements in `kept`.

        `gone` are recorded swaps that the page should show and does not. `unreadable` rows may be swaps.
        """
        db, now = self._context.db, self._context.clock.now()
        known = await swap_store.known(db, [row.tx_id for row in rows])
        triaged = triage(rows, known, tiers, self._rules)
        candidates = [*triaged.candidates, *(Candidate(txid, "cron") for txid in gone if txid not in unreadable)]
        candidates += [Candidate(txid, "cron", block_height=0) for txid in unreadable]
        await db.batch(
            [
                *swap_store.enqueue(db, candidates, now),
                *swap_store.refuse(db, triaged.refusals, self._rules, now),
                *kept,
            ]
        )
        for refusal in triaged.refusals:
            if refusal.code is Code.CONTRACT_NOT_ALLOWLISTED:
                self._report_unlisted(refusal.transaction)
        return PageRead(
            found=triaged.found,
            already_known=triaged.already_known,
            queued=len(triaged.candidates),
            refused=tuple((refusal.transaction.tx_id, refusal.code) for refusal in triaged.refusals),
        )

    def _report_unlisted(self, transaction: Transaction) -> None:
        """Report an unlisted call once per run."""
        call = transaction.contract_call
        if call is None or call in self._reported:
            return
        self._reported.add(call)
        self._context.logger.warning(
            "contract.unlisted", contract=call.contract_id, function=call.function_name, txid=transaction.tx_id
        )


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
    seen = [[wallet, row.sender, _nonce(row), *anchor_at(row).position] for wallet, row in sorted(first.items())]
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


class ListReader:
    """Reads lists for one run. `marks` are those of the current rules, and advance with reading."""

    def __init__(self, context: TaskContext, rules: Rules, tiers: Mapping[str, Tier], marks: dict[str, Mark]) -> None:
        self._context = context
        self._hiro = context.upstream("hiro", HiroClient)
        self._rules = rules
        self._tiers = tiers
        self._marks = marks
        self._page_queue = PageQueue(context, rules)
        self._tip = 0  # the highest block seen in this run
        self._shown: dict[str, int] = {}  # the highest nonce that each wallet's list showed
        # Lists that have more pages than `pages_max` allowed to read.
        self.unfinished: set[str] = set()

    async def pages(self, principal: str, *, pages_max: int | None = None) -> AsyncIterator[PageRead]:
        """Read one list: first the rest of an interrupted walk, then what is new."""
        self.unfinished.discard(principal)
        mark = self._marks.get(principal, Mark())
        resumed = mark.gap is not None
        leaves_new = resumed and not self._began_in_this_run(mark)
        pages = 0
        while pages_max is None or pages < pages_max:
            if pages:
                self._context.checkpoint()
            cursor = mark.gap.cursor if mark.gap else None
            answer = await self._hiro.principal_transactions(principal, self._context.session, cursor)
            if resumed and isinstance(answer, BadRequest):  # an outdated cursor: start at the head again
                mark, resumed, leaves_new = replace(mark, gap=None), False, False
                continue
            page = value_or_raise(answer)
            if page is None:
                raise NoAnswer(Malformed(NOT_A_LIST))
            pages += 1
            for row in page.items[:1]:
                self._tip = max(self._tip, row.mined.height if row.mined else 0)
            now = self._context.clock.now()
            taken = step(mark, page, start_s=self._rules.start_s, tip=self._tip, now=now)
            _check_progress(mark, taken)
            read = await self._queue(principal, taken, page)
            mark = self._marks[principal] = taken.mark
            yield read
            if taken.done:
                if not leaves_new:
                    return
                resumed = leaves_new = False
        self.unfinished.add(principal)

    def _began_in_this_run(self, mark: Mark) -> bool:
        """Return whether the walk under way began in this run. If not, there may be newer rows above it."""
        begun_at = mark.gap.begun_at if mark.gap else None
        return begun_at is not None and self._context.started_at <= begun_at <= self._context.clock.now()

    async def _queue(self, principal: str, taken: Step, page: Page[Transaction]) -> PageRead:
        """Queue the new transactions of a page and the recorded swaps it fails to show, together with the mark."""
        db = self._context.db
        rows = relevant_to(principal, taken.fresh, self._tiers, self._rules)
        listed = {row.tx_id for row in page.items}
        gone = [txid for txid in await self._recorded(principal, taken) if txid not in listed]
        kept = [save_mark(db, principal, self._rules.for_principal(principal), taken.mark)]
        if self._tiers.get(principal) == "eligible":
            kept += await self._nonces(principal, taken, page)
            ended = principal if page.next_cursor is None and not page.unreadable else None
            kept += record_funders(db, page.items, (principal,), ended=ended)
        return await self._page_queue.add(rows, self._tiers, gone=gone, unreadable=page.unreadable, kept=kept)

    async def _nonces(self, wallet: str, taken: Step, page: Page[Transaction]) -> list[Statement]:
        """Record the nonces of a page. At the end of the list, those missing below the highest stay missing."""
        on_page = [nonce for nonce, _ in nonces.seen_in(page.items, {wallet: None}).get(wallet, [])]
        self._shown[wallet] = max(self._shown.get(wallet, -1), *on_page, -1)
        seen = {wallet: nonces.seen_in(taken.fresh, {wallet: None}).get(wallet, [])}
        return await nonces.record_seen(
            db=self._context.db, seen=seen, shown=self._shown[wallet] if taken.done else None
        )

    async def _recorded(self, principal: str, taken: Step) -> list[str]:
        """Return the recorded swaps in the stretch of the chain that a page covers."""
        sql = _OF_CONTRACT if "." in principal else _OF_WALLET
        statement = self._context.db.prepare(sql).bind(principal, *taken.above, *taken.below)
        return [row["txid"] for row in (await statement.all()).results]


def _check_progress(mark: Mark, taken: Step) -> None:
    """Check that a cursor leads down the list: a broken upstream could keep us busy forever."""
    if mark.gap is not None and taken.mark.gap is not None and taken.mark.gap.bottom >= mark.gap.bottom:
        raise NoAnswer(Malformed("hiro broke its contract: its cursor does not lead further down the list"))
