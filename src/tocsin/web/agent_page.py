"""`/agents/{address or id}`: one agent as a page, as a card for other sites, and as a picture for previews."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from holdfast.errors import UsageError
from tocsin.board.agents import REFUSALS_MAX, TradingStats, ValuedSwap, draw_down, token_flows, trading_stats
from tocsin.board.history import history_of
from tocsin.board.types import AgentView
from tocsin.prices.price import Price
from tocsin.prices.store import prices_of
from tocsin.rounds.round import AgentRound
from tocsin.rounds.words import title_of
from tocsin.swaps.trades import refusals, trades_of
from tocsin.swaps.types import RecentRefusal, Trade
from tocsin.text import short_address, short_duration, visible
from tocsin.web.agents import AgentRoutes
from tocsin.web.deps import WebDeps
from tocsin.web.drawing import CurvePoint, columns_svg, curve_svg
from tocsin.web.limits import ClientLimits
from tocsin.web.markup import (
    NONE,
    day_of,
    exact_amount,
    identicon,
    section,
    short_amount,
    sign_of,
    signed_percent,
    signed_usd,
    table,
    tiles,
    time_of,
    transaction,
    usd,
)
from tocsin.web.pages import AGED, SCRIPT, PageHead, counted, html_page
from tocsin.web.picture import READS_PER_PICTURE, Card, Pictures
from tocsin.web.round_page import PAYMENTS, PRIZES

# By contract, so that no other token can pass for one of them.
SYMBOLS: Final = {
    "stx": "STX",
    "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token": "sBTC",
    "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token": "stSTX",
    "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx": "USDCx",
    "SP3Y2ZSH8P7D50B0VBTSX11S7XSG24M1VB9YFQA4K.token-aeusdc": "aeUSDC",
    "SP3K8BC0PPEVCV7NZ6QSRWPQ2JE9E5B6N3PA0KBR9.token-susdt": "sUSDT",
    "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token": "USDA",
    "SP102V8P0F7JX67ARQ77WEA3D3CFB5XW39REDT0AM.token-alex": "ALEX",
    "SP3NE50GEXFG9SZGTT51P40X2CKYSZ5CC4ZTZ7A2G.welshcorgicoin-token": "WELSH",
    "SP1AY6K3PQV5MRT6R4S671NWW2FRVPKM0BR162CT6.leo-token": "LEO",
    "SP1Y5YSTAHZ88XYK1VPDH24GY0HPX5J4JECTMY4A1.velar-token": "VELAR",
    "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.arkadiko-token": "DIKO",
}
CURVE_DAYS = 30
SWAPS_MAX = 1_000  # win rate and holding time are computed from these
TABLE_POINTS = 48
DAY_MS = 86_400_000
CURVE_MS = CURVE_DAYS * DAY_MS
WEEK_MS = 7 * DAY_MS
TRADES_SHOWN = 20
_ID = re.compile(r"[0-9]{1,12}")
_BY_ID = """
SELECT a.stx_address FROM agents a LEFT JOIN sender_totals t ON t.sender = a.stx_address
WHERE a.erc8004_agent_id = ? ORDER BY t.last_trade_at DESC, a.stx_address LIMIT 1"""
_NEWEST_SWAPS = """
SELECT s.txid, s.burn_block_time, s.token_in, s.amount_in, s.token_out, s.amount_out,
  v.given_micros, v.received_micros, x.txid IS NOT NULL AS is_excess
FROM swaps s LEFT JOIN swap_values v ON v.txid = s.txid LEFT JOIN excess_swaps x ON x.txid = s.txid
WHERE s.sender = ? ORDER BY s.burn_block_time DESC, s.txid DESC LIMIT ?"""
# Any site may show the card in a frame; nothing in it can act.
_FRAMED = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors *"


def token_name(token: str) -> str:
    """Its symbol, or else its asset's name, followed by its contract's name if it looks like a symbol."""
    contract, _, asset = token.partition("::")
    if contract in SYMBOLS:
        return SYMBOLS[contract]
    name = asset or contract.rpartition(".")[2]
    is_taken = name.lower() in {symbol.lower() for symbol in SYMBOLS.values()}
    return token.partition(".")[2] if is_taken else name


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """Everything that an agent's page shows."""

    view: AgentView
    trades: Sequence[Trade]
    prices: Mapping[str, Price]
    curve: Sequence[CurvePoint]  # P&L at the prices of each hour, where it is known
    hours: int  # that have a point, whether or not its P&L is known
    stats: TradingStats  # of its newest `SWAPS_MAX` swaps
    swaps: Sequence[ValuedSwap] = ()  # these, in the order of the chain

    @property
    def worth(self) -> Mapping[str, float | None]:
        """The value given in each swap, by transaction."""
        return {swap.txid: swap.given_usd for swap in self.swaps}

    @property
    def name(self) -> str:
        view = self.view
        return visible(view.display_name) or visible(view.bns_name) or short_address(view.address)

    @property
    def sentence(self) -> str:
        """A sentence about the agent, for previews."""
        row, ranks = self.view.row, self.view.ranks
        if row is None or ranks is None:
            return f"{self.name} has no trade that counts yet."
        pnl = "unknown" if row.pnl_usd is None else signed_usd(row.pnl_usd)
        return f"Rank {ranks['pnl']} of {self.view.ranked}, P&L {pnl}, {row.trade_count:,} trades."

    @property
    def card(self) -> Card:
        """What its picture shows."""
        view, row, ranks = self.view, self.view.row, self.view.ranks
        if row is None or ranks is None:
            return Card(self.name, "No trade that counts yet", view.address)
        facts = [f"Rank {ranks['pnl']} of {view.ranked}", f"{row.trade_count:,} trades"]
        in_round = view.period_ranks.get("round", {}).get("pnl")
        if in_round is not None:
            facts.insert(1, f"rank {in_round} in the round")
        week = [point for point in self.curve if point.at_s * 1000 > view.as_of - WEEK_MS]
        gained = f"7 days: {signed_usd(week[-1].value - week[0].value)}" if len(week) > 1 else ""
        pnl = "" if row.pnl_usd is None else signed_usd(row.pnl_usd, 1_000_000)
        return Card(self.name, " · ".join(facts), view.address, pnl, gained, tuple(week))


def head_of(facts: AgentFacts, public_url: str | None) -> PageHead:
    return PageHead.of(facts.name, facts.sentence, public_url, f"/agents/{facts.view.address}")


def page_body(facts: AgentFacts) -> str:
    view = facts.view
    parts = [
        f'<div class="intro"><h1>{identicon(view.address)}{escape(facts.name)}</h1>{_identity(view)}',
        '<button type="button" id="copy-link" hidden>Copy link</button></div>',
        _missing(view),
        _tiles(facts),
        _curve(facts),
        _rounds(view),
        _trades(facts),
        _flows(facts),
        _activity(facts),
        _refusals(view),
    ]
    return "\n".join(part for part in parts if part)


def card_body(facts: AgentFacts) -> str:
    """The card: a small part of the page, for other sites."""
    address = facts.view.address
    link = f'<a href="/agents/{escape(address)}" target="_blank" rel="noopener">{escape(facts.name)}</a>'
    curve = curve_svg(facts.curve, f"P&L of {facts.name}") if len(facts.curve) > 1 else ""
    return f'<main class="card agent-card"><h1>{link}</h1><p>{escape(facts.sentence)}</p>{curve}</main>'


def _tiles(facts: AgentFacts) -> str:
    row, ranks = facts.view.row, facts.view.ranks
    if row is None or ranks is None:
        return '<p class="note">This agent has no trade that counts yet.</p>'
    stats = facts.stats
    newest = f", newest {SWAPS_MAX:,} trades" if row.trade_count > SWAPS_MAX else ""
    fallen = usd(draw_down([point.value for point in facts.curve])) if facts.curve else NONE
    known = f"P&L at trade ({row.valued_trade_count:,} of {row.trade_count:,} trades)"
    return tiles(
        [
            ("Rank by P&L", f"{ranks['pnl']} of {facts.view.ranked}", ""),
            ("P&L at current prices", signed_usd(row.pnl_usd), sign_of(row.pnl_usd)),
            ("P&L % of the capital used", signed_percent(row.pnl_percent), sign_of(row.pnl_usd)),
            (known, signed_usd(row.pnl_at_trade_usd), sign_of(row.pnl_at_trade_usd)),
            ("Volume", usd(row.volume_usd), ""),
            ("Capital used", usd(row.capital_usd), ""),
            ("Trades", f"{row.trade_count:,}", ""),
            (f"Largest P&L drawdown in {CURVE_DAYS} days", fallen, ""),
            (
                f"Closed trades won, where the value is known{newest}",
                NONE if stats.win_rate is None else f"{stats.win_rate:.0%} of {stats.valued:,}",
                "",
            ),
            (
                f"Mean holding time{newest}",
                NONE if stats.holding_s is None else short_duration(stats.holding_s * 1000),
                "",
            ),
        ]
    )


def _curve(facts: AgentFacts) -> str:
    if len(facts.curve) < 2:
        note = _no_curve(facts)
        return note and section("P&L over time", f'<p class="note">{note}</p>')
    rows = [
        f'<tr><td>{time_of(point.at_s)}</td><td class="num">{signed_usd(point.value)}</td></tr>'
        for point in reversed(facts.curve[-TABLE_POINTS:])
    ]
    return section(
        f"P&L over {CURVE_DAYS} days",
        f"{curve_svg(facts.curve, f'P&L of {facts.name} over time')}"
        f"<details><summary>The newest {TABLE_POINTS} points as a table</summary>"
        f"{table(('Time', 'P&L'), rows, ('P&L',))}</details>",
        "at the prices of each hour",
    )


def _no_curve(facts: AgentFacts) -> str:
    """Why there is no curve; empty for an agent without a trade, because the page already says so."""
    if facts.view.row is None:
        return ""
    if facts.hours == 0:
        return "The history starts at the next full hour."
    if facts.hours == 1:
        return "The curve starts with the second hour of history."
    return "The P&amp;L of these hours is not known: a token that the agent traded had no price."


def _activity(facts: AgentFacts) -> str:
    """Trades per day, the last one being today."""
    if not facts.swaps:
        return ""
    today = facts.view.as_of // DAY_MS
    counts = Counter(swap.time_s * 1000 // DAY_MS for swap in facts.swaps)
    days = [(day * DAY_MS // 1000, counts[day]) for day in range(today - CURVE_DAYS + 1, today + 1)]
    total = sum(count for _, count in days)
    note = f"{total:,} in {CURVE_DAYS} days"
    bars = columns_svg([(f"{day_of(at_s)}: {count:,}", count) for at_s, count in days], f"Trades per day, {note}")
    return section(
        "Trade activity", f'{bars}<div class="times"><span>{day_of(days[0][0])}</span><span>today</span></div>', note
    )


def _flows(facts: AgentFacts) -> str:
    """What was received less what was given, of each token."""
    flows = token_flows(facts.swaps, facts.prices)
    if not flows:
        return ""
    rows = []
    for flow in flows:
        price = facts.prices.get(flow.token)
        decimals = None if price is None else price.decimals
        worth = '<span class="chip">unpriced</span>' if flow.usd is None else signed_usd(flow.usd)
        amount = f"{exact_amount(flow.units, 0)} units" if decimals is None else short_amount(flow.units, decimals)
        rows.append(
            f"<li><b>{escape(token_name(flow.token))}</b><span class=num{sign_of(flow.usd)}>{worth}</span>"
            f"<small>net {'+' if flow.units > 0 else ''}{amount} ·"
            f" {flow.trades:,} trade{'s' * (flow.trades != 1)}</small></li>"
        )
    note = "at current prices; not a gain or loss"
    return section("Net flow per token", f'<ul class="flows">{"".join(rows)}</ul>', note)


def _trades(facts: AgentFacts) -> str:
    if not facts.trades:
        return ""
    rows = "".join(
        f"<li><div>{_amount(trade.amount_in, trade.token_in, facts.prices)} <span aria-label=to>→</span>"
        f" {_amount(trade.amount_out, trade.token_out, facts.prices)}</div>"
        f'<span class="num">{usd(facts.worth.get(trade.txid))}</span>'
        f"<small>{time_of(trade.block_time or trade.burn_block_time)} · {transaction(trade.txid)}"
        f"{'' if trade.excess is None else f'<br>has no value: {escape(trade.excess)}'}</small></li>"
        for trade in facts.trades
    )
    return section(
        "Latest trades", f'<ol class="flows">{rows}</ol>', "with the value given, at the prices of that time"
    )


def _refusals(view: AgentView) -> str:
    if not view.last_refusals:
        return ""
    rows = "".join(
        f"<li>{escape(refusal.reason)}"
        f"<br><small>{time_of(refusal.burn_block_time)} · {transaction(refusal.txid)}</small></li>"
        for refusal in sorted(view.last_refusals, key=lambda each: (-each.burn_block_time, each.txid))
    )
    return section("Transactions that do not count", f'<ul class="lines">{rows}</ul>')


def _rounds(view: AgentView) -> str:
    if not view.rounds:
        return ""
    rows = "".join(
        f'<li><a href="/rounds/{escape(each.round_id)}">{escape(title_of(each.round_id))}</a> · '
        f"rank {each.rank} of {each.ranked} · <span{sign_of(each.pnl_usd)}>{signed_usd(each.pnl_usd)}</span> ·"
        f" {each.trade_count:,} trade{'' if each.trade_count == 1 else 's'}{_prizes(each)}</li>"
        for each in view.rounds
    )
    return section("Rounds", f'<ul class="lines">{rows}</ul>')


def _prizes(result: AgentRound) -> str:
    won = [
        f"{PRIZES[prize.category]}: {prize.amount_sats:,} sats ({PAYMENTS[prize.status]})" for prize in result.prizes
    ]
    flagged = [f"flagged: {flag.reason}" for flag in result.flags]
    return "".join(f"<br><small>{escape(line)}</small>" for line in (*won, *flagged))


def _missing(view: AgentView) -> str:
    if not view.missing:
        return ""
    steps = "".join(f"<li>{escape(step)}</li>" for step in view.missing)
    return section("Before its swaps count", f"<ol>{steps}</ol>")


def _identity(view: AgentView) -> str:
    """Its addresses and its number."""
    row = view.row
    lines = [("Stacks", wallet) for wallet in (row.wallets if row else [view.address])]
    if visible(view.bns_name):
        lines.append(("Name", visible(view.bns_name)))
    if row and row.btc_address:
        lines.append(("Bitcoin", row.btc_address))
    tier = "eligible" if view.tier == "eligible" else f"not eligible ({view.tier})"
    lines.append(("Agent", tier if view.agent_id is None else f"#{view.agent_id}, {tier}"))
    shown = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in lines)
    return f'<dl class="identity">{shown}</dl>'


def _amount(text: str, token: str, prices: Mapping[str, Price]) -> str:
    """In whole tokens where the decimals are known; the exact amount is below the pointer."""
    price = prices.get(token)
    name = escape(token_name(token))
    if price is None or price.decimals is None:
        return f"{int(text):,} units of {name}"
    exact, short = exact_amount(int(text), price.decimals), short_amount(int(text), price.decimals)
    return f'<span title="{exact} {name}">{short} <b>{name}</b></span>'


class AgentPages:
    """Reads stored data, as the API's routes do. An agent is one identity: all its wallets count."""

    def __init__(self, deps: WebDeps, agents: AgentRoutes, pictures: Pictures) -> None:
        self._deps = deps
        self._agents = agents
        self._pictures = pictures

    def routes(self, limits: ClientLimits) -> list[BaseRoute]:
        compress = self._deps.process.compress
        return [
            counted("/agents/{who}", self.page, limits, compress=compress),
            counted("/agents/{who}/card", self.card, limits, compress=compress),
            counted("/agents/{who}/card.png", self.picture, limits, READS_PER_PICTURE),
        ]

    async def page(self, request: Request) -> ASGIApp:
        facts = await self._facts(request.path_params["who"])
        return html_page(head_of(facts, self._deps.settings.public_url), page_body(facts), headers=AGED, script=SCRIPT)

    async def card(self, request: Request) -> ASGIApp:
        facts = await self._facts(request.path_params["who"])
        headers = {**AGED, "Content-Security-Policy": _FRAMED}
        return html_page(head_of(facts, self._deps.settings.public_url), card_body(facts), headers=headers, bare=True)

    async def picture(self, request: Request) -> ASGIApp:
        facts = await self._facts(request.path_params["who"])
        return await self._pictures.response(facts.card)

    async def _facts(self, who: str) -> AgentFacts:
        """Everything about the agent. Raises UsageError if no agent is registered with that address or id."""
        deps, now = self._deps, self._deps.clock.now()
        address = await self._address(who)
        view = None if address is None else await self._agents.view(address)
        if address is None or view is None or view.tier == "not_registered":
            raise UsageError("No agent is registered with this address or number.")
        wallets = [address] if view.row is None else view.row.wallets
        trades = await self._newest_trades(wallets)
        swaps = await self._newest_swaps(wallets)
        # The newest trades are the first of these swaps.
        tokens = sorted({token for swap in swaps for token in (swap.token_in, swap.token_out)})
        points = [] if view.agent_id is None else await history_of(deps.db, view.agent_id, now - CURVE_MS, now)
        return AgentFacts(
            replace(view, last_refusals=await self._newest_refusals(wallets)),
            trades,
            await prices_of(deps.kv, tokens, now),
            [CurvePoint(each.at // 1000, each.pnl_usd) for each in points if each.pnl_usd is not None],
            len(points),
            trading_stats(swaps),
            swaps,
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
                row["txid"],
                bool(row["is_excess"]),
            )
            for row in rows[-SWAPS_MAX:]
        ]

    async def _address(self, who: str) -> str | None:
        if not _ID.fullmatch(who):
            return who
        row = await self._deps.db.prepare(_BY_ID).bind(int(who)).first()
        return None if row is None else row["stx_address"]


def _usd(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6
