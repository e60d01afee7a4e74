"""The output of the commands about agents, refusals and events."""

import json
from collections.abc import Iterable

from rich.console import RenderableType

from tocsin.commands.render import escape, shown_name, table_of
from tocsin.commands.times import shown_instant
from tocsin.shapes.agents import AgentView, RecentRefusal, RefusalPage

_LEFT_OUT = {"seq", "at", "event"}


def agent(view: AgentView) -> Iterable[RenderableType]:
    name = shown_name(view.address, view.display_name, view.bns_name)
    identity = "" if view.agent_id is None else f", agent {view.agent_id}"
    yield f"[bold]{name}[/] ({escape(view.address)}{identity}): {view.tier}"
    for step in view.missing:
        yield f"  missing: {escape(step)}"
    if view.row is not None and view.ranks is not None:
        ranks = ", ".join(f"{order} #{rank}" for order, rank in view.ranks.items())
        yield f"Rank of {view.ranked:,}: {ranks}"
        row = view.row
        values = {"volume": row.volume_usd, "P&L": row.pnl_usd}
        shown = ", ".join(
            f"{name} {'-' if usd is None else f'{usd:,.2f} USD'}" for name, usd in values.items()
        )
        yield f"{row.trade_count:,} trades, {shown}; the latest {shown_instant(row.latest_trade_at)}"
    if view.last_refusals:
        yield _refusals(view.last_refusals)


def refusals(page: RefusalPage) -> Iterable[RenderableType]:
    yield _refusals(page.refusals) if page.refusals else "Nothing was refused."


def _refusals(listed: Iterable[RecentRefusal]) -> RenderableType:
    table = table_of("refused", "transaction", "code", "reason")
    for refusal in listed:
        table.add_row(shown_instant(refusal.refused_at), refusal.txid, refusal.code, escape(refusal.reason))
    return table


def event(text: str) -> str:
    """One line for an event in JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return escape(text)
    if not isinstance(value, dict):
        return escape(text)
    at = value.get("at")
    fields = " ".join(
        f"{name}={content if isinstance(content, str) else json.dumps(content)}"
        for name, content in value.items()
        if name not in _LEFT_OUT and content is not None
    )
    when = shown_instant(at if isinstance(at, int) else None)
    return escape(f"{when} {value.get('event')} {fields}")
