"""`/agents/{address or id}`: one agent as a page, as a card for other sites, and as a picture for previews."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from html import escape

from tocsin.competition.agent_stats import TradingStats, draw_down
from tocsin.durations import short_duration
from tocsin.shapes.agents import AgentRound, AgentView
from tocsin.shapes.competition import BoardRow, Trade
from tocsin.shapes.prices import Price
from tocsin.shapes.rounds import RewardCategory, RewardStatus
from tocsin.visible_text import visible
from tocsin.web.curve import CurvePoint, curve_svg, segments, short_usd
from tocsin.web.html_page import PageHead
from tocsin.web.picture import Picture, text_width
from tocsin.web.token_names import token_name

NONE = "\u2013"  # a dash
EXPLORER = "https://explorer.hiro.so/txid/"
INK, MUTED, ACCENT, GOOD, BAD = range(1, 6)  # colours; 0 is the ground
COLOURS = ((19, 17, 16), (243, 239, 235), (170, 161, 154), (245, 176, 76), (95, 211, 139), (255, 138, 128))
IMAGE_WIDTH, IMAGE_HEIGHT = 1200, 630
CURVE_DAYS = 30
SWAPS_MAX = 1_000  # win rate and holding time are computed from these
TABLE_POINTS = 48
NAME_MAX = 26  # characters that fit into the picture
PICTURES_MAX = 100  # of at most 20 kB each
PRIZES: dict[RewardCategory, str] = {
    "overall_pnl": "best P&L",
    "volume": "most volume",
    "return": "best return",
}
PAYMENTS: dict[RewardStatus, str] = {
    "pending": "not paid yet",
    "paid": "paid",
    "failed": "payment failed",
    "void": "not awarded",
}


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """Everything that an agent's page shows."""

    view: AgentView
    trades: Sequence[Trade]
    prices: Mapping[str, Price]
    curve: Sequence[CurvePoint]  # P&L at the prices of each hour, where it is known
    hours: int  # that have a point, whether or not its P&L is known
    stats: TradingStats  # of its newest `SWAPS_MAX` swaps

    @property
    def name(self) -> str:
        view = self.view
        return visible(view.display_name) or visible(view.bns_name) or _short(view.address)

    @property
    def sentence(self) -> str:
        """A sentence about the agent, for previews."""
        row, ranks = self.view.row, self.view.ranks
        if row is None or ranks is None:
            return f"{self.name} has no trade that counts yet."
        pnl = "unknown" if row.pnl_usd is None else _signed(row.pnl_usd)
        return f"Rank {ranks['pnl']} of {self.view.ranked}, P&L {pnl}, {row.trade_count:,} trades."

    @property
    def shown(self) -> "Preview":
        row, ranks = self.view.row, self.view.ranks
        if row is None or ranks is None:
            return Preview(self.name)
        pnl = row.pnl_usd
        text = None if pnl is None else _signed(pnl)
        return Preview(
            self.name,
            (ranks["pnl"], self.view.ranked),
            text,
            pnl is not None and pnl >= 0,
            row.trade_count,
            tuple(self.curve),
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """What the picture of an agent shows. A rank has the number of agents with one."""

    name: str
    rank: tuple[int, int] | None = None
    pnl: str | None = None
    is_gain: bool = False
    trade_count: int = 0
    curve: tuple[CurvePoint, ...] = ()


def head_of(facts: AgentFacts, public_url: str | None) -> PageHead:
    """Link previews need absolute URLs. The `Host` of a request is anybody's, so it makes none."""
    if public_url is None:
        return PageHead(facts.name, facts.sentence)
    url = f"{public_url}/agents/{facts.view.address}"
    return PageHead(facts.name, facts.sentence, url, f"{url}/card.png")


def page_body(facts: AgentFacts) -> str:
    view = facts.view
    parts = [
        f'<div class="intro"><h1>{escape(facts.name)}</h1>',
        f"<p><code>{escape(view.address)}</code>{_identity(view)} · {escape(_tier(view))}</p>",
        '<button type="button" id="copy-link" hidden>Copy link</button></div>',
        _missing(view),
        _tiles(facts),
        _curve(facts),
        _rounds(view),
        _trades(facts),
        _refusals(view),
    ]
    return "\n".join(part for part in parts if part)


def card_body(facts: AgentFacts) -> str:
    """The card: a small part of the page, for other sites."""
    address = facts.view.address
    link = f'<a href="/agents/{escape(address)}" target="_blank" rel="noopener">{escape(facts.name)}</a>'
    curve = curve_svg(facts.curve, f"P&L of {facts.name}") if len(facts.curve) > 1 else ""
    return f'<main class="card agent-card"><h1>{link}</h1><p>{escape(facts.sentence)}</p>{curve}</main>'


@lru_cache(maxsize=PICTURES_MAX)
def preview(shown: Preview) -> bytes:
    """The picture that a shared link shows: name, rank, P&L and curve. One that did not change is not drawn again."""
    picture = Picture(IMAGE_WIDTH, IMAGE_HEIGHT, COLOURS)
    name = shown.name if len(shown.name) <= NAME_MAX else f"{shown.name[: NAME_MAX - 1]}~"
    picture.rectangle(0, 0, IMAGE_WIDTH, 12, ACCENT)
    picture.text(60, 70, "AIBTC TRADING COMPETITION", 4, MUTED)
    picture.text(60, 130, name, 7, INK)
    if shown.rank is None:
        picture.text(60, 240, "NO TRADES YET", 6, MUTED)
        return picture.png()
    picture.text(60, 230, f"#{shown.rank[0]}", 12, ACCENT)
    picture.text(60, 330, f"OF {shown.rank[1]}", 4, MUTED)
    if shown.pnl is not None:
        size = 12 if text_width(shown.pnl, 12) < IMAGE_WIDTH - 480 else 8
        picture.text(420, 230, shown.pnl, size, GOOD if shown.is_gain else BAD)
        picture.text(420, 330, f"P&L, {shown.trade_count:,} TRADES", 4, MUTED)
    _draw_curve(picture, shown.curve)
    return picture.png()


def _draw_curve(picture: Picture, curve: Sequence[CurvePoint]) -> None:
    if len(curve) < 2:
        return
    low, high = min(point.value for point in curve), max(point.value for point in curve)
    first, span_s, span = curve[0].at_s, (curve[-1].at_s - curve[0].at_s) or 1, (high - low) or 1.0
    for segment in segments(curve):
        points = [
            (
                60 + (IMAGE_WIDTH - 120) * (point.at_s - first) // span_s,
                590 - int(190 * (point.value - low) / span),
            )
            for point in segment
        ]
        picture.line(points if len(points) > 1 else points * 2, 6, ACCENT)


def _tiles(facts: AgentFacts) -> str:
    row, ranks = facts.view.row, facts.view.ranks
    if row is None or ranks is None:
        return '<p class="note">This agent has no trade that counts yet.</p>'
    stats = facts.stats
    newest = f", newest {SWAPS_MAX:,} trades" if row.trade_count > SWAPS_MAX else ""
    tiles = [
        ("Rank by P&L", f"{ranks['pnl']} of {facts.view.ranked}"),
        ("P&L at current prices", _optional(row.pnl_usd, _signed)),
        *_more_values(row),
        ("Volume", _optional(row.volume_usd, short_usd)),
        ("Trades", f"{row.trade_count:,}"),
        (
            f"Largest P&L drawdown in {CURVE_DAYS} days",
            short_usd(draw_down([point.value for point in facts.curve])) if facts.curve else NONE,
        ),
        (
            f"Winning closed trades of known value{newest}",
            NONE if stats.win_rate is None else f"{stats.win_rate:.0%} of {stats.valued:,}",
        ),
        (
            f"Mean holding time{newest}",
            NONE if stats.holding_s is None else short_duration(stats.holding_s * 1000),
        ),
    ]
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    return f'<dl class="tiles">{shown}</dl>'


def _more_values(row: BoardRow) -> list[tuple[str, str]]:
    values = []
    if row.pnl_percent is not None:
        values.append(("P&L % of the capital used", f"{row.pnl_percent:+,.2f} %"))
    if row.pnl_at_trade_usd is not None:
        values.append(("P&L at trade time", _signed(row.pnl_at_trade_usd)))
    return values


def _curve(facts: AgentFacts) -> str:
    if len(facts.curve) < 2:
        note = _no_curve(facts)
        return (
            note and f'<section class="card"><h2>P&amp;L over time</h2><p class="note">{note}</p></section>'
        )
    rows = "".join(
        f"<tr><td>{_time(point.at_s)}</td><td>{escape(_signed(point.value))}</td></tr>"
        for point in reversed(facts.curve[-TABLE_POINTS:])
    )
    return (
        f'<section class="card"><h2>P&amp;L of {CURVE_DAYS} days, at the prices of each hour</h2>'
        f"{curve_svg(facts.curve, f'P&L of {facts.name} over time')}"
        f"<details><summary>The newest {TABLE_POINTS} points as a table</summary>"
        "<table><thead><tr><th>Time</th><th>P&amp;L</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></details></section>"
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


def _trades(facts: AgentFacts) -> str:
    if not facts.trades:
        return ""
    rows = "".join(
        f"<tr><td>{_time(trade.burn_block_time)}</td>"
        f'<td class="num">{_amount(trade.amount_in, trade.token_in, facts.prices)}</td>'
        f'<td class="num">{_amount(trade.amount_out, trade.token_out, facts.prices)}</td>'
        f'<td><a href="{EXPLORER}{escape(trade.txid)}?chain=mainnet" rel="noopener">'
        f"{escape(trade.txid[:10])}…</a>{_without_value(trade)}</td></tr>"
        for trade in facts.trades
    )
    return _table("Latest trades", ("Time", "Gave", "Received", "Transaction"), rows)


def _without_value(trade: Trade) -> str:
    return "" if trade.excess is None else f"<br>has no value: {escape(trade.excess)}"


def _refusals(view: AgentView) -> str:
    if not view.last_refusals:
        return ""
    rows = "".join(
        f"<tr><td>{_time(refusal.burn_block_time)}</td><td>{escape(refusal.reason)}</td>"
        f'<td><a href="/api/competition/trades/{escape(refusal.txid)}">{escape(refusal.txid[:10])}…</a></td></tr>'
        for refusal in view.last_refusals
    )
    return _table("Transactions that do not count", ("Time", "Why", "Verdict"), rows)


def _rounds(view: AgentView) -> str:
    if not view.rounds:
        return ""
    rows = "".join(
        f'<tr><td><a href="/api/competition/rounds/{escape(each.round_id)}">{escape(each.round_id)}</a></td>'
        f"<td>{_time(each.ends_at)}</td>"
        f'<td class="num">{each.rank} of {each.ranked}</td>'
        f'<td class="num">{escape(_optional(each.pnl_usd, _signed))}</td>'
        f'<td class="num">{each.trade_count:,}</td>'
        f"<td>{escape(_prizes(each))}</td></tr>"
        for each in view.rounds
    )
    return _table("Rounds", ("Round", "End", "Rank", "P&amp;L", "Trades", "Prizes and flags"), rows)


def _prizes(result: AgentRound) -> str:
    won = [
        f"{PRIZES[prize.category]}: {prize.amount_sats:,} sats ({PAYMENTS[prize.status]})"
        for prize in result.prizes
    ]
    flagged = [f"flagged: {flag.reason}" for flag in result.flags]
    return "; ".join([*won, *flagged]) or NONE


def _table(title: str, columns: Sequence[str], rows: str) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    return (
        f'<section class="card"><h2>{title}</h2><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _missing(view: AgentView) -> str:
    if not view.missing:
        return ""
    steps = "".join(f"<li>{escape(step)}</li>" for step in view.missing)
    return f'<section class="card"><h2>Before its swaps count</h2><ol>{steps}</ol></section>'


def _identity(view: AgentView) -> str:
    return "" if view.agent_id is None else f" · agent {view.agent_id}"


def _tier(view: AgentView) -> str:
    return "eligible" if view.tier == "eligible" else f"not eligible ({view.tier})"


def _amount(text: str, token: str, prices: Mapping[str, Price]) -> str:
    """Exact, in whole tokens where the decimals are known."""
    price = prices.get(token)
    name = escape(token_name(token))
    if price is None or price.decimals is None:
        return f"{int(text):,} units of {name}"
    digits = text.rjust(price.decimals + 1, "0")
    whole, fraction = digits[: len(digits) - price.decimals], digits[len(digits) - price.decimals :]
    shown = fraction.rstrip("0")
    return f"{int(whole):,}{f'.{shown}' if shown else ''} {name}"


def _time(seconds: int) -> str:
    moment = datetime.fromtimestamp(min(seconds, 253_402_300_799), UTC)
    return f'<time datetime="{moment.isoformat()}">{moment.strftime("%b %d, %H:%M UTC")}</time>'


def _signed(usd: float) -> str:
    return f"+{short_usd(usd)}" if usd > 0 else short_usd(usd)


def _optional(usd: float | None, shown: Callable[[float], str]) -> str:
    return NONE if usd is None else shown(usd)


def _short(address: str) -> str:
    return f"{address[:6]}…{address[-4:]}"
