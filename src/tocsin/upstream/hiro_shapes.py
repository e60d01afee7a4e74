"""A transaction in any shape that Hiro answers with: v1, v3, an entry of `tx/multiple`, or in a wrapper.

For bodies that people saved; a client knows what it asked for. The fields are read by `hiro_parse`.
"""

from typing import Any

from tocsin.bindings import JSON
from tocsin.errors import MalformedBody
from tocsin.model import WithEvents
from tocsin.upstream.decode import Record, as_record
from tocsin.upstream.hiro_parse import events_page_v3, transaction_v3, with_events_v1

WRAPPERS = ("tx", "transaction", "result", "body")
WRAPPED_MAX = 4


def any_transaction(body: JSON) -> WithEvents:
    """The transaction and its events; those are None unless all of them are there."""
    row, events = as_record(body, "body"), None
    for _ in range(WRAPPED_MAX):
        events = row.get("events", events)
        if "tx_id" in row:
            break
        row = _inside(row)
    listed = _list(events)
    if "tx_status" in row:
        return with_events_v1({**row, "events": listed})
    return _with_events_v3(row, listed)


def _inside(row: Record) -> Record:
    """What a wrapper holds; `tx/multiple` has the id itself as the name of its entry."""
    if row.get("found") is False:
        raise MalformedBody("found: Hiro did not know this transaction")
    names = [name for name in WRAPPERS if isinstance(row.get(name), dict)] or (
        list(row) if len(row) == 1 else []
    )
    if not names:
        raise MalformedBody("tx_id: expected the body of one transaction, as Hiro answers with it")
    return as_record(row[names[0]], names[0])


def _list(events: Any) -> Any:
    """Events alone, or the page that they came on; none where there is no word of them."""
    page = events if isinstance(events, dict) else {}
    return page.get("results", page.get("events", [] if events is None else events))


def _with_events_v3(row: Record, listed: Any) -> WithEvents:
    transaction = transaction_v3(row)
    found = events_page_v3({"results": listed, "total": 0, "cursor": {}}).page.items
    if len(found) != transaction.event_count:
        return WithEvents(transaction, None)
    if sorted(index for index, _ in found) != list(range(len(found))):
        raise MalformedBody("events: some are there twice")
    return WithEvents(transaction, tuple(event for _, event in found if event is not None))
