"""Queues the transactions of a page of a list, in one batch with how far the list was read.

So reading may stop after any page and continue there.

Emits `contract.unlisted`: an agent's call that looks like a swap, to a contract that does not count.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tocsin.bindings import Statement
from tocsin.chain_model import ContractCall, Transaction
from tocsin.competition import swap_store
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import Tier
from tocsin.competition.rules import Rules
from tocsin.competition.swap_store import Candidate
from tocsin.competition.triage import triage
from tocsin.scheduler.work_context import TaskContext


@dataclass(frozen=True, slots=True)
class PageRead:
    """The result of one page."""

    found: int = 0
    already_known: int = 0
    queued: int = 0
    refused: tuple[tuple[str, Code], ...] = ()  # by transaction


class PageQueue:
    """Queues pages for one run."""

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
        candidates = [
            *triaged.candidates,
            *(Candidate(txid, "cron") for txid in gone if txid not in unreadable),
        ]
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
        self._context.logger.warn(
            "contract.unlisted",
            contract=call.contract_id,
            function=call.function_name,
            txid=transaction.tx_id,
        )
