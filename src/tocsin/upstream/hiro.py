"""The Hiro Stacks API: v3 endpoints, and `tx/multiple` for what v3 does not know.

v3 knows canonical transactions only. What is pending, dropped or reorged is asked of `tx/multiple`, the
one v1 endpoint that is not deprecated; it also answers for many ids in one call. A transaction's ETag is
its status and block, so a 304 confirms it. A principal's ETag is only its newest id and would hide a
reorg below it: lists are always read afresh.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import quote

from tocsin.bindings import JSON
from tocsin.budget.call_session import CallSession
from tocsin.chain_model import (
    BalanceChange,
    Page,
    Transaction,
    TransactionWithEvents,
    TransferEvent,
    canonical_txid,
)
from tocsin.errors import UsageError
from tocsin.upstream import hiro_parse
from tocsin.upstream.answer import Answer, BadRequest, NotFound, Ok
from tocsin.upstream.client import Upstream, UpstreamClient
from tocsin.upstream.hiro_parse import Counted
from tocsin.upstream.limit_headers import read_hiro

T = TypeVar("T")

PRINCIPAL_PAGE = 50  # Hiro's maximum, for lists and for balance changes
EVENTS_PAGE = 100  # Hiro's maximum
BALANCE_TXIDS_MAX = 20  # Hiro's maximum
MULTIPLE_TXIDS_MAX = 50  # ours: 3.4 kB of URL
EVENTS_TXIDS_MAX = 20  # ours: a hundred events each are about 1 MB
PAGES_MAX = 50  # of one transaction's events or one batch's balance changes


def hiro_upstream(base_url: str, key: str | None) -> Upstream:
    """Hiro, as a client must know it."""
    return Upstream("hiro", base_url, "HIRO_API_URL", key, "HIRO_API_KEY", read_hiro)


class HiroClient:
    """What Tocsin asks of Hiro. Every method ends as an `Answer`."""

    def __init__(self, client: UpstreamClient) -> None:
        self.client = client

    async def transaction(self, txid: str, session: CallSession) -> Answer[Transaction]:
        """A transaction as it stands: mined and canonical by v3, anything else by `tx/multiple`.

        Right after a broadcast `NotFound` is normal: ask again.
        """
        tx_id = canonical_txid(txid)
        target = f"/extended/v3/transactions/{tx_id}"
        answer = await self.client.get(
            target, lambda body: hiro_parse.asked_transaction_v3(body, tx_id), session, remember=True
        )
        return await self._unmined(tx_id, session) if isinstance(answer, NotFound) else answer

    async def transactions(
        self, txids: Sequence[str], session: CallSession
    ) -> Answer[dict[str, Transaction | None]]:
        """Up to 50 transactions in one call, by id in its one spelling; None is "not known to Hiro"."""
        asked = _batch(txids, MULTIPLE_TXIDS_MAX)
        target = f"/extended/v1/tx/multiple?event_limit=0&exclude_function_args=true&tx_id={','.join(asked)}"
        return await self._multiple(target, lambda body: hiro_parse.transactions_v1(body, asked), session)

    async def transactions_with_events(
        self, txids: Sequence[str], session: CallSession
    ) -> Answer[dict[str, TransactionWithEvents | None]]:
        """Up to 20 transactions of any senders in one call, with the events of all but the longest."""
        asked = _batch(txids, EVENTS_TXIDS_MAX)
        target = (
            f"/extended/v1/tx/multiple?event_limit={EVENTS_PAGE}&exclude_function_args=true"
            f"&tx_id={','.join(asked)}"
        )
        return await self._multiple(
            target, lambda body: hiro_parse.transactions_with_events_v1(body, asked), session
        )

    async def call_argument(
        self, txids: Sequence[str], name: str, session: CallSession
    ) -> Answer[dict[str, str | None]]:
        """One argument of up to 50 contract calls, as Clarity prints it; None where there is no such.

        Only v1 tells the names of arguments.
        """
        asked = _batch(txids, MULTIPLE_TXIDS_MAX)
        target = f"/extended/v1/tx/multiple?event_limit=0&tx_id={','.join(asked)}"
        return await self._multiple(target, lambda body: hiro_parse.arguments_v1(body, asked, name), session)

    async def _multiple(self, target: str, parse: Callable[[JSON], T], session: CallSession) -> Answer[T]:
        """It says of each transaction whether it is known, so a 404 of its own says nothing of any."""
        answer = await self.client.get(target, parse, session)
        if isinstance(answer, NotFound):
            return self.client.refuse(target, "tx/multiple itself was not found", session)
        return answer

    async def transfer_events(self, txid: str, session: CallSession) -> Answer[tuple[TransferEvent, ...]]:
        """Every transfer, mint and burn of STX and fungible tokens, of all pages; complete or no answer."""
        target = f"/extended/v3/transactions/{canonical_txid(txid)}/events?limit={EVENTS_PAGE}"
        answer = await self._all_pages(target, hiro_parse.events_page_v3, session, _no_such_transaction)
        if not isinstance(answer, Ok):
            return answer
        if sorted(index for index, _ in answer.value) != list(range(len(answer.value))):
            return self.client.refuse(target, "its event pages overlap or leave events out", session)
        return Ok(tuple(event for _, event in answer.value if event is not None))

    async def principal_transactions(
        self, principal: str, session: CallSession, cursor: str | None = None
    ) -> Answer[Page[Transaction]]:
        """A page of a wallet's or contract's canonical transactions, newest first.

        A cursor names a position and includes it, so that pages may overlap by one row but leave none out.
        """
        target = f"/extended/v3/principals/{quote(principal, safe='')}/transactions?limit={PRINCIPAL_PAGE}"
        if cursor is not None:
            target += f"&cursor={quote(cursor, safe='')}"
        return await self.client.get(target, hiro_parse.principal_page_v3, session)

    async def balance_changes(
        self, principal: str, txids: Sequence[str], session: CallSession
    ) -> Answer[tuple[BalanceChange, ...]]:
        """What up to 20 transactions did to a principal's STX and fungible balances, of all pages."""
        asked = _batch(txids, BALANCE_TXIDS_MAX)
        target = (
            f"/extended/v3/principals/{quote(principal, safe='')}/balance-changes"
            f"?limit={PRINCIPAL_PAGE}&tx_id={','.join(asked)}"
        )
        answer = await self._all_pages(
            target, lambda body: hiro_parse.balance_changes_v3(body, asked), session
        )
        if isinstance(answer, Ok) and len({(row.tx_id, row.asset) for row in answer.value}) < len(
            answer.value
        ):
            return self.client.refuse(target, "a transaction's asset is listed twice", session)
        return answer

    async def _unmined(self, tx_id: str, session: CallSession) -> Answer[Transaction]:
        answer = await self.transactions([tx_id], session)
        if not isinstance(answer, Ok):
            return answer
        transaction = answer.value[tx_id]
        return NotFound() if transaction is None else Ok(transaction)

    async def _all_pages(
        self,
        target: str,
        parse: Callable[[JSON], Counted[T]],
        session: CallSession,
        absent_if: Callable[[BadRequest], bool] = lambda _: False,
    ) -> Answer[tuple[T, ...]]:
        """All rows of a paged list; `Malformed` when their number is not what the list itself says."""
        items: list[T] = []
        rows = 0
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            suffix = "" if cursor is None else f"&cursor={quote(cursor, safe='')}"
            answer = await self.client.get(target + suffix, parse, session, absent_if=absent_if)
            if not isinstance(answer, Ok):
                return answer
            counted = answer.value
            items += counted.page.items
            rows += counted.rows
            cursor = counted.page.next_cursor
            if cursor is None:
                if rows != counted.total:
                    reason = f"{counted.total} rows announced, {rows} sent"
                    return self.client.refuse(target, reason, session)
                return Ok(tuple(items))
        return self.client.refuse(target, f"a list that does not end after {PAGES_MAX} pages", session)


def _no_such_transaction(mistake: BadRequest) -> bool:
    """For the events of an unknown transaction Hiro answers 400; a refused parameter names its place."""
    return mistake.status == 400 and not mistake.message.startswith(
        ("querystring", "params", "headers", "body")
    )


def _batch(txids: Sequence[str], count_max: int) -> tuple[str, ...]:
    """Distinct ids in their one spelling, in the order given."""
    asked = tuple(dict.fromkeys(canonical_txid(txid) for txid in txids))
    if not 0 < len(asked) <= count_max:
        raise UsageError(f"Ask for 1 to {count_max} transactions at once, not {len(asked)}.")
    return asked
