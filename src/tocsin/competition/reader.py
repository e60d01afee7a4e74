"""Reads the lists of contracts and wallets back to their marks, and queues what they show.

A page is one batch: what it shows that is new, what it should show and does not, and the mark after it. So
a walk may be cut off after any page, and goes on there.

Emits `contract.unlisted`: an agent's call that looks like a swap of a contract that does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tocsin.chain_model import ContractCall, Transaction
from tocsin.competition import swap_store
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import Tier
from tocsin.competition.rules import Rules
from tocsin.competition.swap_store import Candidate
from tocsin.competition.triage import Triaged, relevant_to, triage
from tocsin.competition.unit_pool import SweepDesk, UnitPool
from tocsin.competition.walk import Mark, Step, save_mark, step
from tocsin.errors import NoAnswer
from tocsin.upstream.answer import BadRequest, Malformed, value_or_raise

_OF_CONTRACT = """
SELECT txid FROM swaps WHERE contract_id = ?
  AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?)"""
_OF_WALLET = """
SELECT txid FROM swaps WHERE sender = ?
  AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?)"""


@dataclass(slots=True)
class Reading:
    """What one visit found."""

    absent: bool = False  # Hiro says that there is no such principal
    finished: bool = False  # read to the mark or to the end, or as far as one visit goes
    found: int = 0
    already_known: int = 0
    queued: int = 0
    refused: tuple[str, ...] = ()


class Reader:
    """Reads lists for one run. `marks` are those of the rules in force."""

    def __init__(
        self, desk: SweepDesk, rules: Rules, tiers: Mapping[str, Tier], marks: dict[str, Mark], crew: UnitPool
    ) -> None:
        self._desk = desk
        self._rules = rules
        self._tiers = tiers
        self._marks = marks
        self._crew = crew
        self._told: set[ContractCall] = set()
        self._tip = 0  # the greatest height seen in this run

    async def read(self, principal: str, reading: Reading, *, pages_max: int | None = None) -> None:
        """Walk one list; first what an interrupted walk left over, then what is new."""
        mark = self._marks.get(principal, Mark())
        resumed = mark.gap is not None
        pages = 0
        while pages_max is None or pages < pages_max:
            cursor = mark.gap.cursor if mark.gap else None
            answer = await self._desk.hiro.principal_transactions(principal, self._desk.session, cursor)
            if resumed and isinstance(answer, BadRequest):
                mark, resumed = (
                    replace(mark, gap=None),
                    False,
                )  # a cursor that was no good: from the head again
                continue
            page = value_or_raise(answer)
            if page is None:
                reading.absent = True  # it never did anything
                break
            pages += 1
            for row in page.items[:1]:
                self._tip = max(self._tip, row.mined.height if row.mined else 0)
            now = self._desk.clock.now()
            taken = step(mark, page, start_s=self._rules.start_s, tip=self._tip, now=now)
            _check_progress(mark, taken)
            await self._take(principal, taken, {row.tx_id for row in page.items}, reading)
            mark = self._marks[principal] = taken.mark
            if taken.done and not resumed:
                break
            resumed = resumed and not taken.done
            if not self._crew.may_go_on():
                return
        reading.finished = True

    async def _take(self, principal: str, taken: Step, listed: set[str], reading: Reading) -> None:
        """Queue what a page shows, and what it should show and does not, together with the mark."""
        db, now = self._desk.db, self._desk.clock.now()
        rows = relevant_to(principal, taken.fresh, self._tiers, self._rules)
        known = await swap_store.known(db, [row.tx_id for row in rows])
        sifted = triage(rows, known, self._tiers, self._rules)
        gone = [txid for txid in await self._recorded(principal, taken) if txid not in listed]
        await db.batch(
            [
                *swap_store.enqueue(
                    db, [*sifted.candidates, *(Candidate(txid, "cron") for txid in gone)], now
                ),
                *swap_store.refuse(db, sifted.refusals, self._rules, now),
                save_mark(db, principal, self._rules.for_principal(principal), taken.mark),
            ]
        )
        _add(reading, sifted)
        for refusal in sifted.refusals:
            if refusal.code is Code.CONTRACT_NOT_ALLOWLISTED:
                self._tell_unlisted(refusal.transaction)

    def _tell_unlisted(self, transaction: Transaction) -> None:
        """Once per call and run."""
        call = transaction.contract_call
        if call is None or call in self._told:
            return
        self._told.add(call)
        self._desk.logger.warn(
            "contract.unlisted",
            contract=call.contract_id,
            function=call.function_name,
            txid=transaction.tx_id,
        )

    async def _recorded(self, principal: str, taken: Step) -> list[str]:
        """The swaps that we have in the stretch of the chain that a page speaks for."""
        sql = _OF_CONTRACT if "." in principal else _OF_WALLET
        statement = self._desk.db.prepare(sql).bind(principal, *taken.above, *taken.below)
        return [row["txid"] for row in (await statement.all()).results]


def _add(reading: Reading, sifted: Triaged) -> None:
    reading.found += sifted.found
    reading.already_known += sifted.already_known
    reading.queued += len(sifted.candidates)
    reading.refused += tuple(refusal.code for refusal in sifted.refusals)


def _check_progress(mark: Mark, taken: Step) -> None:
    """A cursor must lead down the list, or a broken upstream could keep us for ever."""
    if mark.gap is not None and taken.mark.gap is not None and taken.mark.gap.bottom >= mark.gap.bottom:
        raise NoAnswer(Malformed("hiro broke its contract: a cursor that does not lead on"))
