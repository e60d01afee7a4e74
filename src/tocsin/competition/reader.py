"""Reads the lists of contracts and wallets back to their marks, and queues what they show.

Each page is one batch: its new transactions, the recorded swaps that it should show and does not, and the mark after
it. So reading may stop after any page and continue there.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from tocsin.bindings import Statement
from tocsin.chain_model import Page, Transaction
from tocsin.competition.eligibility import Tier
from tocsin.competition.funders import record_funders
from tocsin.competition.nonces import record_seen, seen_in
from tocsin.competition.page_queue import PageQueue, PageRead
from tocsin.competition.rules import Rules
from tocsin.competition.triage import relevant_to
from tocsin.competition.walk import Mark, Step, save_mark, step
from tocsin.errors import NoAnswer
from tocsin.scheduler.work_context import TaskContext
from tocsin.upstream.answer import BadRequest, Malformed, value_or_raise
from tocsin.upstream.hiro import HiroClient

NOT_A_LIST = "hiro answered 404 for a list; the list of an unused principal should be empty"

_OF_CONTRACT = """
SELECT txid FROM swaps WHERE contract_id = ?
  AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?)"""
_OF_WALLET = """
SELECT txid FROM swaps WHERE sender = ?
  AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?)"""


class ListReader:
    """Reads lists for one run. `marks` are those of the current rules, and advance with reading."""

    def __init__(
        self, context: TaskContext, rules: Rules, tiers: Mapping[str, Tier], marks: dict[str, Mark]
    ) -> None:
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
        on_page = [nonce for nonce, _ in seen_in(page.items, {wallet: None}).get(wallet, [])]
        self._shown[wallet] = max(self._shown.get(wallet, -1), *on_page, -1)
        seen = {wallet: seen_in(taken.fresh, {wallet: None}).get(wallet, [])}
        return await record_seen(
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
