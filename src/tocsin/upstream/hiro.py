"""The Hiro Stacks API: v3 endpoints, and `tx/multiple` for what v3 does not have.

v3 lists canonical transactions only. Pending, dropped and reorged ones come from `tx/multiple`, the only v1 endpoint
that is not deprecated; it also returns many transactions in one call.

Emits `upstream.amounts_ignored`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.stacks import (
    BalanceChange,
    EventPage,
    HookStatus,
    Page,
    Transaction,
    TransactionWithEvents,
    TransferEvent,
    canonical_txid,
)
from tocsin.upstream import hiro_parse
from tocsin.upstream.answer import Answer, Malformed, NotFound, Ok
from tocsin.upstream.budget import LimitReading, Quota, WindowReading
from tocsin.upstream.client import Upstream, UpstreamClient, header_number
from tocsin.upstream.hiro_parse import Parsed
from tocsin.upstream.limiter import CallSession

T = TypeVar("T")

COST_MAX = 10  # a higher price of a call is noise
LIST_PAGE = 50  # Hiro's maximum, for lists and for balance changes
EVENTS_PAGE = 100  # Hiro's maximum
FEWEST_EVENTS = 1  # 0 means Hiro's default, which is 20
BALANCE_TXIDS_MAX = 20  # Hiro's maximum
ANONYMOUS_MINUTE_MAX = 50  # calls a minute that Hiro grants to a client without a key
NO_QUOTA = Quota()
EVENTS_TXIDS_MAX = 20  # ours: a hundred events each are about 1 MB
AHEAD_MAX_S = 86_400  # a block's time may be hours ahead of ours; a later time is not in seconds
PAGES_MAX = 50  # for one transaction's events or one batch's balance changes
EVENTS_MAX = PAGES_MAX * EVENTS_PAGE  # of one transaction, read page by page
NO_EVENTS = EventPage(0, 0, ())


def hiro_upstream(base_url: str, key: str | None, quota: Quota = NO_QUOTA) -> Upstream:
    """What a client must know about Hiro."""
    probe = "/extended/v3/transactions?limit=1"
    return Upstream("hiro", base_url, "HIRO_API_URL", key, "HIRO_API_KEY", read_hiro_limits, HiroClient, probe, quota)


def read_hiro_limits(headers: Mapping[str, str]) -> LimitReading:
    """Hiro's `stacks` quota. Its `ratelimit-remaining` repeats the second's window."""
    minute = _window(headers, "minute")
    return LimitReading(
        second=_window(headers, "second"),
        minute=minute,
        month=_window(headers, "month"),
        anonymous=None if minute.limit is None else minute.limit <= ANONYMOUS_MINUTE_MAX,
        cost=min(COST_MAX, max(1, header_number(headers, "x-ratelimit-cost-stacks") or 1)),
    )


def _window(headers: Mapping[str, str], name: str) -> WindowReading:
    limit = header_number(headers, f"x-ratelimit-limit-stacks-{name}")
    return WindowReading(
        limit=None if limit == 0 else limit, remaining=header_number(headers, f"x-ratelimit-remaining-stacks-{name}")
    )


class HiroClient:
    """The calls that Tocsin makes to Hiro. Every method returns an `Answer`."""

    def __init__(self, client: UpstreamClient) -> None:
        self.client = client

    async def transactions_with_events(
        self, txids: Sequence[str], session: CallSession
    ) -> Answer[dict[str, TransactionWithEvents | None]]:
        """Get up to 20 transactions of any senders in one call, each with its arguments and its first 100 events.

        If the answer is too large, the batch is split in halves; a single transaction is then requested with its first
        event only, and without its arguments.

        A transaction whose row cannot be read is missing: nothing is known about it, so ask again later.
        """
        asked = _batch(txids, EVENTS_TXIDS_MAX)
        return await self._in_halves(asked, 0, session)

    async def all_events(
        self, found: Sequence[TransactionWithEvents], session: CallSession
    ) -> Answer[dict[str, tuple[TransferEvent, ...] | None]]:
        """Get all transfers, mints and burns of up to 20 transactions whose first events are known.

        Each call reads the next 100 events of each. A value is None if the transaction has changed: it was reorged in
        between, so ask for it again later. Transactions with more than `EVENTS_MAX` events are missing, and so are
        those with unreadable events. If there is no result because of unreadable events, the answer is `Malformed`.
        """
        before = {each.transaction.tx_id: each.transaction for each in found}
        unread = {
            each.transaction.tx_id: each.page or NO_EVENTS
            for each in found
            if (each.transaction.event_count or EVENTS_MAX + 1) <= EVENTS_MAX
        }
        whole: dict[str, tuple[TransferEvent, ...] | None] = {}
        refused: Malformed | None = None
        while unread:
            offset = min(page.stop for page in unread.values())
            asked = _batch([txid for txid in unread if unread[txid].stop == offset], EVENTS_TXIDS_MAX)
            answer = await self._in_halves(asked, offset, session)
            if not isinstance(answer, Ok | Malformed):
                return answer
            if isinstance(answer, Malformed):
                refused = answer
            for txid in asked:
                known = unread.pop(txid)
                if isinstance(answer, Malformed) or txid not in answer.value:
                    continue
                now, count = answer.value[txid], before[txid].event_count
                if now is None or now.transaction != before[txid]:
                    whole[txid] = None
                elif now.page is None or not _follows(known, now.page, count or 0):
                    reason = f"{txid}: its events from {offset} on are missing, repeated or unreadable"
                    refused = self.client.contract_broken(_events_target(asked, offset), reason, session)
                elif now.page.stop == count:
                    whole[txid] = known.transfers + now.page.transfers
                else:
                    unread[txid] = EventPage(0, now.page.stop, known.transfers + now.page.transfers)
        return Ok(whole) if whole or refused is None else refused

    async def _in_halves(
        self, asked: Sequence[str], offset: int, session: CallSession
    ) -> Answer[dict[str, TransactionWithEvents | None]]:
        """Get transactions with a page of their events in one call, or in several if the answer is too large."""
        answer = await self._with_events(_events_target(asked, offset), asked, session)
        if not (isinstance(answer, Malformed) and answer.too_large):
            return answer
        if len(asked) == 1:
            fewer = _events_target(asked, offset, limit=FEWEST_EVENTS)
            return answer if offset else await self._with_events(fewer, asked, session)
        found: dict[str, TransactionWithEvents | None] = {}
        half = len(asked) // 2
        for part in (asked[:half], asked[half:]):
            answer = await self._in_halves(part, offset, session)
            if not isinstance(answer, Ok):
                return answer
            found |= answer.value
        return Ok(found)

    async def _with_events(
        self, target: str, asked: Sequence[str], session: CallSession
    ) -> Answer[dict[str, TransactionWithEvents | None]]:
        answer = await self._readable(
            target, lambda body, latest_s: hiro_parse.transactions_with_events_v1(body, asked, latest_s), session
        )
        if isinstance(answer, NotFound):  # it reports unknown transactions one by one
            return self.client.contract_broken(target, "tx/multiple itself was not found", session)
        if isinstance(answer, Ok):
            pages = (found.page for found in answer.value.values() if found and found.page)
            _report_unread_amounts((event for page in pages for event in page.transfers), target, session)
        return answer

    async def principal_transactions(
        self, principal: str, session: CallSession, cursor: str | None = None
    ) -> Answer[Page[Transaction]]:
        """Get a page of a wallet's or contract's canonical transactions, newest first.

        A cursor points at a row and includes it, so pages may overlap by one row but skip none. Unreadable rows are
        reported by their ids.
        """
        target = f"/extended/v3/principals/{quote(principal, safe='')}/transactions?limit={LIST_PAGE}{_at(cursor)}"
        return await self._readable(
            target, lambda body, latest_s: hiro_parse.principal_page_v3(body, latest_s, principal), session
        )

    async def network_transactions(self, session: CallSession, cursor: str | None = None) -> Answer[Page[Transaction]]:
        """Get a page of all canonical transactions, newest first: like `principal_transactions`, but of everybody.

        No ETag is sent. A 304 costs the same call, and a wrong one would hide everything. Besides, a block comes every
        few seconds, so the list has nearly always changed.
        """
        target = f"/extended/v3/transactions?limit={LIST_PAGE}{_at(cursor)}"
        return await self._readable(target, hiro_parse.network_page_v3, session)

    async def balance_changes(
        self, principal: str, txids: Sequence[str], session: CallSession
    ) -> Answer[tuple[BalanceChange, ...]]:
        """Get the changes of a principal's STX and fungible balances by up to 20 transactions, from all pages."""
        asked = _batch(txids, BALANCE_TXIDS_MAX)
        target = (
            f"/extended/v3/principals/{quote(principal, safe='')}/balance-changes"
            f"?limit={LIST_PAGE}&tx_id={','.join(asked)}"
        )
        changes: list[BalanceChange] = []
        rows = 0
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            answer = await self.client.get(
                target + _at(cursor), lambda body: hiro_parse.balance_changes_v3(body, asked), session
            )
            if not isinstance(answer, Ok):
                return answer
            page = answer.value
            changes += page.changes
            rows += page.rows
            cursor = page.next_cursor
            if cursor is None:
                break
        else:
            return self.client.contract_broken(target, f"a list that does not end after {PAGES_MAX} pages", session)
        if rows != page.total:
            return self.client.contract_broken(target, f"{page.total} rows announced, {rows} sent", session)
        if len({(row.tx_id, row.asset) for row in changes}) < len(changes):
            return self.client.contract_broken(target, "a transaction's asset is listed twice", session)
        return Ok(tuple(changes))

    async def hook_status(self, path: str, session: CallSession) -> Answer[HookStatus]:
        """Get the status of one of our hooks; `path` is the hook's path, such as /chainhooks/v1/me/UUID."""
        return await self.client.get(path, hiro_parse.hook_status, session)

    async def enable_hook(self, path: str, session: CallSession) -> Answer[None]:
        return await self.client.patch(f"{path}/enabled", {"enabled": True}, session)

    async def _readable(self, target: str, parse: Callable[[JSON, int], Parsed[T]], session: CallSession) -> Answer[T]:
        """Get the readable part of an answer; the rest is logged. `parse` gets the latest time of a block."""
        latest_s = self.client.now() // 1000 + AHEAD_MAX_S
        answer = await self.client.get(target, lambda body: parse(body, latest_s), session)
        if not isinstance(answer, Ok):
            return answer
        reasons = [f"{tx_id}: {reason}" for tx_id, reason in answer.value.refused.items()]
        self.client.rows_refused(target, reasons, session)
        return Ok(answer.value.value)


def _at(cursor: str | None) -> str:
    return "" if cursor is None else f"&cursor={quote(cursor, safe='')}"


def _report_unread_amounts(events: Iterable[TransferEvent], target: str, session: CallSession) -> None:
    """Log unreadable amounts in one line. They move between other accounts, so no verdict depends on them."""
    count = sum(event.amount is None for event in events)
    if count:
        session.logger.warning("upstream.amounts_ignored", upstream="hiro", path=target[:300], count=count)


def _events_target(asked: Iterable[str], offset: int, *, limit: int = EVENTS_PAGE) -> str:
    """Arguments come with the first page: others are read for their events alone."""
    without_arguments = "&exclude_function_args=true" if offset or limit < EVENTS_PAGE else ""
    return (
        f"/extended/v1/tx/multiple?event_limit={limit}{f'&event_offset={offset}' if offset else ''}"
        f"{without_arguments}&tx_id={','.join(asked)}"
    )


def _follows(known: EventPage, page: EventPage, count: int) -> bool:
    """Whether this is the next page: it begins where the known events end, and is as long as possible."""
    return (page.start, page.stop) == (known.stop, min(known.stop + EVENTS_PAGE, count))


def _batch(txids: Sequence[str], count_max: int) -> tuple[str, ...]:
    """Distinct ids in canonical form, in the given order."""
    asked = tuple(dict.fromkeys(canonical_txid(txid) for txid in txids))
    if not 0 < len(asked) <= count_max:
        raise UsageError(f"Ask for 1 to {count_max} transactions at once, not {len(asked)}.")
    return asked
