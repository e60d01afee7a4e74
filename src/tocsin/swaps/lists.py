"""Reads the lists of contracts and wallets, and queues what the pages of any list show.

Only rows that are new and may count are worth a call. Each page is one batch: its new transactions, the recorded swaps
that it should show and does not, and the position after it. So reading may stop after any page and continue there.

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
from tocsin.scheduler.task import TaskContext
from tocsin.sql import read_queries
from tocsin.stacks import ContractCall, Page, Transaction
from tocsin.swaps import proof as nonces
from tocsin.swaps import store as swap_store
from tocsin.swaps.position import ABOVE_ALL, Mark, Step, after, anchor_at, is_deep, save_mark, take_page
from tocsin.swaps.rules import MEANINGS, Code, Rules, Tier, judge
from tocsin.swaps.store import Candidate, Known, Refusal
from tocsin.swaps.verify import Tally
from tocsin.upstream.answer import BadRequest, Malformed, NoAnswer, value_or_raise
from tocsin.upstream.hiro import HiroClient

FUNDING_MIN = 100_000  # micro-STX; less is advertising, which anybody can send to anybody
SERVICE_NONCE = 10_000  # a funder with this many transactions is an exchange or another service

NOT_A_LIST = "hiro answered 404 for a list; the list of an unused principal should be empty"

SQL = read_queries(__file__)


@dataclass(slots=True)
class PageRead:
    """The rows of a page that matter. `found` counts listed calls of registered senders."""

    candidates: list[Candidate] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    found: int = 0
    already_known: int = 0


@dataclass(slots=True)
class ReadCounts:
    """What a run that reads lists has done. Each refused transaction counts once: several lists may show it."""

    tally: Tally = field(default_factory=Tally)
    pages: int = 0
    found: int = 0
    queued: int = 0
    unverified: int = 0  # transactions that could not be verified, except those that never can be
    refused: set[str] = field(default_factory=set)
    done: int = 0  # lists, and groups of queued transactions
    total: int = 0

    def count(self, read: PageRead) -> None:
        self.found += read.found
        self.queued += len(read.candidates)
        self.tally.already_known += read.already_known
        for refusal in read.refusals:
            txid = refusal.transaction.tx_id
            if refusal.code is not Code.CONTRACT_NOT_ALLOWLISTED and txid not in self.refused:
                self.refused.add(txid)
                self.tally.reasons[refusal.code] += 1

    @property
    def progressed(self) -> bool:
        """Whether the run read a page or verified a transaction."""
        return bool(self.pages or self.tally.verified)

    def unverified_ones(self) -> list[str]:
        """Describe them, if there are any."""
        return [f"transactions that could not be verified: {self.unverified}"] if self.unverified else []


def relevant(
    rows: Iterable[Transaction], tiers: Mapping[str, Tier], rules: Rules, principal: str | None = None
) -> list[Transaction]:
    """Return the calls by registered senders that a list is read for. `principal`: whose list it is.

    For a contract: its listed calls. For a wallet and the network: listed calls, and calls to other contracts that look
    like swaps, to report them and to find them again when the allow-list grows.
    """
    return [row for row in rows if row.sender in tiers and _concerns(principal or row.sender, row, rules)]


def _concerns(principal: str, row: Transaction, rules: Rules) -> bool:
    call = row.contract_call
    if call is None:
        return False
    if row.sender == principal:
        return rules.allowlist.allows(call) or "swap" in call.function_name
    return call.contract_id == principal and rules.allowlist.allows(call)


def triage(
    rows: Iterable[Transaction], known: Mapping[str, Known], tiers: Mapping[str, Tier], rules: Rules
) -> PageRead:
    """Sort rows: to be verified, refused without a call, or already known in the listed block."""
    read = PageRead()
    for row in rows:
        check = judge(row, tiers.get(row.sender, "not_registered"), rules)
        code = check.code if check else None
        before = known.get(row.tx_id)
        read.found += code is not Code.CONTRACT_NOT_ALLOWLISTED
        if before is not None and _is_unchanged(before, row, code):
            read.already_known += before.kind == "swap"
        elif check is None or code is None:
            block = 0 if row.mined is None else row.mined.height
            read.candidates.append(Candidate(row.tx_id, "cron", block_height=block))
        elif MEANINGS[code].final:
            read.refusals.append(Refusal(row, code, check.detail, "cron"))
    return read


def _is_unchanged(before: Known, row: Transaction, code: Code | None) -> bool:
    """Return whether nothing is to be done: it was seen in this block and would be judged the same today."""
    if row.mined is None or before.block_hash != row.mined.block_hash:
        return False
    if before.kind == "refusal" and before.code is not None:
        return before.code == code or (code is None and MEANINGS[before.code].reopened_by is None)
    return True


class PageQueue:
    """Queues what the pages of one run show."""

    def __init__(self, context: TaskContext, rules: Rules) -> None:
        self._context = context
        self._rules = rules
        self._reported: set[ContractCall] = set()

    async def add(
        self,
        page: Page[Transaction],
        taken: Step,
        tiers: Mapping[str, Tier],
        kept: Sequence[Statement],
        *,
        principal: str | None = None,
    ) -> PageRead:
        """Queue a page's new transactions and doubtful ones, in one batch with the statements in `kept`.

        Doubtful are recorded swaps that the page should show and does not, and rows that cannot be read.
        """
        db, now = self._context.db, self._context.clock.now()
        rows = relevant(taken.fresh, tiers, self._rules, principal)
        listed = {*page.unreadable, *(row.tx_id for row in page.items)}
        recorded = await swap_store.recorded_between(db, taken.above, taken.below, principal)
        read = triage(rows, await swap_store.known(db, [row.tx_id for row in rows]), tiers, self._rules)
        doubtful = [Candidate(txid, "cron") for txid in recorded if txid not in listed]
        doubtful += [Candidate(txid, "cron", block_height=0) for txid in page.unreadable]
        await db.batch(
            [
                *swap_store.enqueue(db, [*read.candidates, *doubtful], now),
                *swap_store.refuse(db, read.refusals, self._rules, now),
                *kept,
            ]
        )
        for refusal in read.refusals:
            if refusal.code is Code.CONTRACT_NOT_ALLOWLISTED:
                self._report_unlisted(refusal.transaction)
        return read

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
        if known is None or anchor_at(row).place < anchor_at(known).place:
            first[payment.recipient] = row
    seen = [[wallet, row.sender, _nonce(row), *anchor_at(row).place] for wallet, row in sorted(first.items())]
    statements = [db.prepare(SQL["save_funders"]).bind(json.dumps(seen))] if seen else []
    if ended is not None:
        statements.append(db.prepare(SQL["no_earlier_funder"]).bind(ended, *ABOVE_ALL))
    return statements


def _nonce(row: Transaction) -> int | None:
    """Return how many transactions its sender had made before."""
    return next((used.nonce for used in row.nonces if used.account == row.sender), None)


async def first_funders(db: Database, wallets: Iterable[str]) -> dict[str, str]:
    """Return the first funder by wallet, where it is known for certain and is not a service."""
    rows = (await db.prepare(SQL["first_funders"]).bind(json.dumps(list(wallets)), SERVICE_NONCE).all()).results
    return {row["wallet"]: row["funder"] for row in rows}


class ListReader:
    """Reads lists for one run. `marks` are those of the current rules, and advance with reading."""

    def __init__(self, context: TaskContext, rules: Rules, tiers: Mapping[str, Tier], marks: dict[str, Mark]) -> None:
        self._context = context
        self._hiro = context.upstream("hiro", HiroClient)
        self._rules = rules
        self._tiers = tiers
        self._marks = marks
        self._pages = PageQueue(context, rules)
        self._tip = 0  # the highest block seen in this run
        self._shown: dict[str, int] = {}  # the highest nonce that each wallet's list showed
        # Lists that have more pages than `pages_max` allowed to read.
        self.unfinished: set[str] = set()

    async def pages(self, principal: str, *, pages_max: int | None = None) -> AsyncIterator[PageRead]:
        """Read one list: first the rest of an interrupted reading, then what is new."""
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
            if mark.gap and resumed and isinstance(answer, BadRequest):  # an outdated cursor: start at the head again
                mark = replace(mark, position=mark.position.without(mark.gap))
                resumed = leaves_new = False
                continue
            page = value_or_raise(answer)
            if page is None:
                raise NoAnswer(Malformed(NOT_A_LIST))
            pages += 1
            taken = self._take(mark, page)
            mark = after(mark, taken, self._context.clock.now())
            read = await self._queue(principal, mark, taken, page)
            self._marks[principal] = mark
            yield read
            if taken.done:
                if not leaves_new:
                    return
                resumed = leaves_new = False
        self.unfinished.add(principal)

    def _take(self, mark: Mark, page: Page[Transaction]) -> Step:
        for row in page.items[:1]:
            self._tip = max(self._tip, row.mined.height if row.mined else 0)
        tip, now = self._tip, self._context.clock.now()
        taken = take_page(mark.position, page, mark.gap, self._rules.start_s, lambda row: is_deep(row, tip, now))
        if taken.wrong is not None:
            raise NoAnswer(Malformed(taken.wrong))
        return taken

    def _began_in_this_run(self, mark: Mark) -> bool:
        """Return whether the reading under way began in this run. If not, there may be newer rows above it."""
        return mark.looked_at is not None and self._context.started_at <= mark.looked_at <= self._context.clock.now()

    async def _queue(self, principal: str, mark: Mark, taken: Step, page: Page[Transaction]) -> PageRead:
        """Queue a page together with the mark after it, its nonces and its funders."""
        db = self._context.db
        kept = [save_mark(db, principal, self._rules, mark)]
        if self._tiers.get(principal) == "eligible":
            kept += await self._nonces(principal, taken, page)
            ended = principal if page.next_cursor is None and not page.unreadable else None
            kept += record_funders(db, page.items, (principal,), ended=ended)
        return await self._pages.add(page, taken, self._tiers, kept, principal=principal)

    async def _nonces(self, wallet: str, taken: Step, page: Page[Transaction]) -> list[Statement]:
        """Record the nonces of a page. At the end of the list, those missing below the highest stay missing."""
        on_page = [nonce for nonce, _ in nonces.seen_in(page.items, {wallet}).get(wallet, [])]
        self._shown[wallet] = max(self._shown.get(wallet, -1), *on_page, -1)
        seen = {wallet: nonces.seen_in(taken.fresh, {wallet}).get(wallet, [])}
        shown = self._shown[wallet] if taken.done else None
        return await nonces.record_seen(db=self._context.db, seen=seen, shown=shown)
