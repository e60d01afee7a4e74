"""The pages of agents: `/agents/{address or id}`, its card for other sites, and its picture."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.competition.agent_stats import ValuedSwap, trading_stats
from tocsin.competition.agent_view import REFUSALS_MAX
from tocsin.competition.refusal_list import refusals
from tocsin.competition.trades import trades_of
from tocsin.errors import RequestRefused, UsageError
from tocsin.history.agent_days import history_of
from tocsin.prices.pricing import prices_of
from tocsin.shapes.agents import RecentRefusal
from tocsin.shapes.competition import Trade
from tocsin.web.agent_page import CURVE_DAYS, SWAPS_MAX, AgentFacts, card_body, head_of, page_body, preview
from tocsin.web.agent_routes import AgentRoutes
from tocsin.web.client_limits import ClientLimits
from tocsin.web.curve import CurvePoint
from tocsin.web.deps import WebDeps
from tocsin.web.html_page import html_page, not_found_page
from tocsin.web.operations import Handler
from tocsin.web.static_pages import ReadOnly

AGED = {"Cache-Control": "public, max-age=30"}
CURVE_MS = CURVE_DAYS * 86_400_000
TRADES_SHOWN = 20
READS_PER_PICTURE = 10  # it costs as much
SCRIPT = "/static/js/agent.js"

_ID = re.compile(r"[0-9]{1,12}")
_BY_ID = """
SELECT a.stx_address FROM agents a LEFT JOIN sender_totals t ON t.sender = a.stx_address
WHERE a.erc8004_agent_id = ? ORDER BY t.last_trade_at DESC, a.stx_address LIMIT 1"""
_NEWEST_SWAPS = """
SELECT s.txid, s.burn_block_time, s.token_in, s.amount_in, s.token_out, s.amount_out,
  v.given_micros, v.received_micros
FROM swaps s LEFT JOIN swap_values v ON v.txid = s.txid
WHERE s.sender = ? ORDER BY s.burn_block_time DESC, s.txid DESC LIMIT ?"""
# Any site may show the card in a frame; nothing in it can act.
_FRAMED = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors *"


class AgentPages:
    """Reads stored data, as the API's routes do. An agent is one identity: all its wallets count."""

    def __init__(self, deps: WebDeps, agents: AgentRoutes, limits: ClientLimits) -> None:
        self._deps = deps
        self._agents = agents
        self._limits = limits
        self._drawing = asyncio.Lock() if deps.in_one_loop else nullcontext()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/agents/{who}", ReadOnly(_Page(self.page, self._limits))),
            Route("/agents/{who}/card", ReadOnly(_Page(self.card, self._limits))),
            Route("/agents/{who}/card.png", ReadOnly(_Page(self.picture, self._limits, READS_PER_PICTURE))),
        ]

    async def page(self, request: Request) -> ASGIApp:
        facts = await self._facts(request.path_params["who"])
        if facts is None:
            return not_found_page("No agent is registered with this address or number.")
        return html_page(head_of(facts, self._deps.public_url), page_body(facts), headers=AGED, script=SCRIPT)

    async def card(self, request: Request) -> ASGIApp:
        facts = await self._facts(request.path_params["who"])
        if facts is None:
            return not_found_page("No agent is registered with this address or number.")
        headers = {**AGED, "Content-Security-Policy": _FRAMED}
        return html_page(head_of(facts, self._deps.public_url), card_body(facts), headers=headers, bare=True)

    async def picture(self, request: Request) -> ASGIApp:
        facts = await self._facts(request.path_params["who"])
        if facts is None:
            raise RequestRefused(404, "not_found", "No agent is registered with this address or number.")
        async with self._drawing:
            picture = preview(facts.shown)
            await asyncio.sleep(0)  # drawing blocks every request: let others go first before the next one
        return Response(picture, headers=AGED, media_type="image/png")

    async def _facts(self, who: str) -> AgentFacts | None:
        """Everything about the agent; None if no agent is registered with that address or id."""
        deps, now = self._deps, self._deps.clock.now()
        address = await self._address(who)
        if address is None:
            return None
        view = await self._agents.view(address)
        if view.tier == "not_registered":
            return None
        wallets = [address] if view.row is None else view.row.wallets
        trades = await self._newest_trades(wallets)
        tokens = sorted({token for trade in trades for token in (trade.token_in, trade.token_out)})
        points = (
            [] if view.agent_id is None else await history_of(deps.db, view.agent_id, now - CURVE_MS, now)
        )
        return AgentFacts(
            replace(view, last_refusals=await self._newest_refusals(wallets)),
            trades,
            await prices_of(deps.kv, tokens, now),
            [CurvePoint(each.at // 1000, each.pnl_usd) for each in points if each.pnl_usd is not None],
            len(points),
            trading_stats(await self._newest_swaps(wallets)),
        )

    async def _newest_trades(self, wallets: Sequence[str]) -> list[Trade]:
        found = [await trades_of(self._deps.db, wallet, limit=TRADES_SHOWN) for wallet in wallets]
        trades = [trade for page in found for trade in page.trades]
        return sorted(trades, key=lambda trade: (trade.burn_block_time, trade.txid))[: -TRADES_SHOWN - 1 : -1]

    async def _newest_refusals(self, wallets: Sequence[str]) -> list[RecentRefusal]:
        found = [await refusals(self._deps.db, limit=REFUSALS_MAX, sender=wallet) for wallet in wallets]
        refused = [refusal for page in found for refusal in page.refusals]
        return sorted(refused, key=lambda each: (each.refused_at, each.txid))[: -REFUSALS_MAX - 1 : -1]

    async def _newest_swaps(self, wallets: Sequence[str]) -> list[ValuedSwap]:
        """The newest swaps, in the order of the chain."""
        newest = self._deps.db.prepare(_NEWEST_SWAPS)
        found = [await newest.bind(wallet, SWAPS_MAX).all() for wallet in wallets]
        rows = [row for result in found for row in result.results]
        rows.sort(key=lambda row: (row["burn_block_time"], row["txid"]))
        return [
            ValuedSwap(
                row["burn_block_time"],
                row["token_in"],
                int(row["amount_in"]),
                row["token_out"],
                int(row["amount_out"]),
                _usd(row["given_micros"]),
                _usd(row["received_micros"]),
            )
            for row in rows[-SWAPS_MAX:]
        ]

    async def _address(self, who: str) -> str | None:
        if not _ID.fullmatch(who):
            return who
        row = await self._deps.db.prepare(_BY_ID).bind(int(who)).first()
        return None if row is None else row["stx_address"]


class _Page:
    """A page that counts as one read of its client, or as several."""

    def __init__(self, handler: Handler, limits: ClientLimits, reads: int = 1) -> None:
        self._handler = handler
        self._limits = limits
        self._reads = reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._limits.before_read(scope, self._reads)
        try:
            response = await self._handler(Request(scope, receive))
        except UsageError as error:
            response = not_found_page(str(error))
        await response(scope, receive, send)


def _usd(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6
