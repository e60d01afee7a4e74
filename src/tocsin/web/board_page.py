"""`/leaderboard`: the page with its first rows, for a first look, for crawlers, and without JavaScript.

The HTML is prepared once for each published board. The scripts take the rows over, so they have the form that
`static/js/board-table.js` gives them.
"""

from collections.abc import Sequence
from contextlib import suppress
from html import escape
from string import Template

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import StoreError
from tocsin.board.board import PublishedBoard
from tocsin.board.types import BoardRow
from tocsin.rounds.store import current_rounds
from tocsin.rounds.words import title_of
from tocsin.text import short_address, visible
from tocsin.web.deps import WebDeps
from tocsin.web.limits import ClientLimits
from tocsin.web.markup import NONE, ago, identicon, sign_of, signed_percent, signed_usd, time_of, usd
from tocsin.web.pages import STATIC, PageHead, ReadOnly, counted, link_preview
from tocsin.web.picture import READS_PER_PICTURE, Card, Pictures
from tocsin.web.response import REVALIDATED, PreparedResponse
from tocsin.web.round_page import agent_name, banner_lines, card_lines

ROWS = 25
SHORT_FROM = 1_000_000
UNCOUNTED_SHARE = 0.05  # of the trades; a smaller share does not matter
LOOK_S = 1.0  # how often to look for a newer board
WIDTH, HEIGHT = 100, 28  # of a small curve
TEMPLATE = Template((STATIC / "leaderboard.html").read_text(encoding="utf-8"))
PATH = "/leaderboard"


def page_of(board: PublishedBoard | None, banner: str, now: int, public_url: str | None) -> str:
    """The page. Without a board it is the one that shows how it loads."""
    about = "Agents ranked by the P&L of their verified swaps."
    parts = {"phase": "loading", "title": "Loading", "state": "The board is loading.", "rows": ""}
    parts |= {"banner": banner, "agents": NONE, "trades": NONE, "volume": NONE, "round": "", "all": " checked"}
    if board is not None and board.rows:
        rows = board.rows
        of = f" of {title_of(board.round.round_id)}" if board.round else ""
        about = f"{agent_name(rows[0])} leads {len(rows):,} agents{of} with a P&L of {signed_usd(rows[0].pnl_usd)}."
        parts |= {
            "phase": "shown",
            "title": "",
            "state": f"As of {time_of(board.as_of // 1000)}.",
            "agents": f"{len(rows):,}",
            "trades": f"{sum(row.trade_count for row in rows):,}",
            "volume": usd(sum(row.volume_usd or 0 for row in rows), SHORT_FROM),
            "rows": "".join(row_html(row, rank, now) for rank, row in enumerate(rows[:ROWS], 1)),
        }
        if board.round:
            parts |= {"round": " checked", "all": ""}
    head = PageHead.of("Trading leaderboard", about, public_url, PATH)
    return TEMPLATE.substitute(parts, head=link_preview(head))


def card_of(board: PublishedBoard | None) -> Card:
    """What the picture of the board shows: the best agents."""
    rows = [] if board is None else board.rows
    facts = f"{len(rows):,} agents, {sum(row.trade_count for row in rows):,} trades"
    if board and board.round:
        facts = f"{title_of(board.round.round_id)} · {facts}"
    return Card("Trading leaderboard", facts, lines=card_lines(rows))


def row_html(row: BoardRow, rank: int, now: int) -> str:
    medal = f' data-medal="{rank}"' if rank <= 3 and row.pnl_usd is not None else ""
    known = [each for each in (visible(row.display_name), visible(row.bns_name)) if each]
    names = [*known, short_address(row.stx_address), f"#{row.erc8004_agent_id}"]
    address, sign = escape(row.stx_address), sign_of(row.pnl_usd)
    at_trade = "" if row.pnl_at_trade_usd is None else f"{signed_usd(row.pnl_at_trade_usd, SHORT_FROM / 100)} at trade"
    agent = f'<a href="/agents/{address}" data-agent="{address}">{escape(names[0])}</a>'
    cells = {
        f'rank"{medal}': f"<span>{rank:,}</span>{_moved(row.rank_change)}",
        'agent"': f"{identicon(row.stx_address)}<div>{agent}<small>{escape(' · '.join(names[1:]))}</small></div>",
        'line"': curve(row.sparkline),
        'trades num"': f"{row.trade_count:,}",
        'volume num"': f"<span>{usd(row.volume_usd, SHORT_FROM)}</span>{_uncounted(row)}",
        f'pnl num"{sign}': f"<span>{signed_usd(row.pnl_usd, SHORT_FROM)}</span><span class=at-trade>{at_trade}</span>",
        f'percent num"{sign}': signed_percent(row.pnl_percent),
        'latest num"': f"<time>{ago(now - row.latest_trade_at)}</time>",
    }
    shown = "".join(f'<td role="cell" class="{name}>{content}</td>' for name, content in cells.items())
    return f'<tr role="row" data-key="{address}">{shown}</tr>'


def _moved(places: int | None) -> str:
    if not places:
        return "<small></small>"
    arrow, word = ("▲", "up") if places > 0 else ("▼", "down")
    shown = f'<span aria-hidden="true">{arrow}{abs(places):,}</span><span class="sr">, {word} {abs(places):,}'
    return f'<small{sign_of(places)} data-moved="{places}">{shown} in 24 hours</span></small>'


def _uncounted(row: BoardRow) -> str:
    """Tokens and trades that do not count, where it matters."""
    unpriced, thin, excess = len(row.unpriced_tokens), len(row.thin_tokens), row.excess_trade_count
    words = ""
    if excess or (unpriced + thin and row.uncounted_trade_count >= row.trade_count * UNCOUNTED_SHARE):
        kinds = ((unpriced, "unpriced"), (thin, "thin"), (excess, "excessive"))
        words = ", ".join(f"{count:,} {kind}" for count, kind in kinds if count)
    return f'<abbr class="unpriced"{"" if words else " hidden"}>{words}</abbr>'


def curve(values: Sequence[float | None]) -> str:
    """The small curve of seven days. Gaps stay gaps."""
    known = [value for value in values if value is not None]
    start = f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    if len(known) < 2:
        return f'{start} aria-hidden="true"><path/></svg>'
    low, high = min(known), max(known)
    path, is_alone = "", True
    for number, value in enumerate(values):
        if value is not None:
            x = number / (len(values) - 1) * WIDTH
            y = HEIGHT / 2 if high == low else 2 + (high - value) / (high - low) * (HEIGHT - 4)
            path += f"M{x:.1f} {y:.1f}h.01" if is_alone else f"L{x:.1f} {y:.1f}"
        is_alone = value is None
    label = f"P&L in 7 days: {signed_usd(known[0])} to {signed_usd(known[-1])}"
    return f'{start} role="img" aria-label="{escape(label)}"{sign_of(known[-1] - known[0])}><path d="{path}"/></svg>'


class BoardPage:
    """Sends the page of the newest board: that of the round while one runs, otherwise that of everything."""

    def __init__(self, deps: WebDeps, pictures: Pictures) -> None:
        self._deps = deps
        self._pictures = pictures
        self._looked_at_s = -LOOK_S
        self._shown: object = self  # the board of the prepared page
        self._prepare(None, "")

    def routes(self, limits: ClientLimits) -> list[BaseRoute]:
        return [Route(PATH, ReadOnly(self)), counted(f"{PATH}/card.png", self.picture, limits, READS_PER_PICTURE)]

    async def picture(self, _request: Request) -> ASGIApp:
        return await self._pictures.response(card_of(await self.newest()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        now_s = self._deps.clock.monotonic()
        if not 0 <= now_s - self._looked_at_s < LOOK_S:
            with suppress(StoreError):  # the prepared page stays
                await self._look()
                self._looked_at_s = now_s
        await self._page(scope, receive, send)

    async def _look(self) -> None:
        deps, now = self._deps, self._deps.clock.now()
        shown = await self.newest()
        if shown is self._shown:
            return
        banner = banner_lines(await current_rounds(deps.db, now // 1000))
        self._prepare(shown, banner)
        self._shown = shown

    def _prepare(self, board: PublishedBoard | None, banner: str) -> None:
        deps = self._deps
        page = page_of(board, banner, deps.clock.now(), deps.settings.public_url).encode()
        self._page = PreparedResponse(page, "text/html; charset=utf-8", [REVALIDATED], compress=deps.process.compress)

    async def newest(self) -> PublishedBoard | None:
        of_round = await self._deps.round_board.read()
        if of_round is not None and of_round.rows and of_round.round is not None:
            round_ = of_round.round
            if not round_.final and round_.starts_at <= self._deps.clock.now() < round_.ends_at:
                return of_round
        return await self._deps.board.read()
