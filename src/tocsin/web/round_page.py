"""`/rounds` and `/rounds/{id}`: what there is to win, who leads or won, who is excluded and why, how to recount it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from html import escape

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from holdfast.errors import UsageError
from tocsin.board.publish import rows_of_result
from tocsin.board.types import BoardRow
from tocsin.rounds import store
from tocsin.rounds.round import CATEGORIES, AgentFlag, CurrentRounds, RewardRow, RoundDetail, RoundRow, RoundWinner
from tocsin.rounds.words import is_excluded, name_of, title_of, why
from tocsin.text import visible
from tocsin.web.deps import WebDeps
from tocsin.web.limits import ClientLimits
from tocsin.web.markup import (
    NONE,
    day_of,
    identicon,
    section,
    sign_of,
    signed_percent,
    signed_usd,
    soon,
    table,
    tiles,
    time_of,
    usd,
)
from tocsin.web.pages import AGED, SCRIPT, PageHead, counted, html_page
from tocsin.web.picture import LINES, READS_PER_PICTURE, Card, CardLine, Pictures

SHOWN_MAX = 200  # agents in the standings
LISTED_MAX = 50  # rounds with a result
PRIZES = {"overall_pnl": "Best P&L", "volume": "Most volume", "return": "Best return"}
PAYMENTS = {"pending": "not paid yet", "paid": "paid", "failed": "payment failed", "void": "not awarded"}


def agent_name(row: BoardRow) -> str:
    return name_of(visible(row.display_name) or row.bns_name, row.stx_address)


def card_lines(rows: Sequence[BoardRow]) -> tuple[CardLine, ...]:
    """The best agents, for a picture."""
    known = [row for row in rows if row.pnl_usd is not None][:LINES]
    return tuple(
        CardLine(rank, row.stx_address, agent_name(row), signed_usd(row.pnl_usd, 1_000_000))
        for rank, row in enumerate(known, 1)
    )


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """Everything that a round's page shows. `detail` has its result, if it has one."""

    round: RoundRow
    standings: Sequence[BoardRow]  # best first
    detail: RoundDetail | None
    now: int  # unix ms
    public_url: str | None = None

    @property
    def title(self) -> str:
        return title_of(self.round.round_id)

    @property
    def flags(self) -> Sequence[AgentFlag]:
        return () if self.detail is None else self.detail.flags

    @property
    def names(self) -> dict[int | None, str]:
        return {row.erc8004_agent_id: agent_name(row) for row in self.standings}

    @property
    def is_over(self) -> bool:
        return self.now >= self.round.ends_at * 1000

    @property
    def won(self) -> str:
        """Who won the prize for the best P&L."""
        rewards = () if self.detail is None else self.detail.rewards
        best = next((each.erc8004_agent_id for each in rewards if each.category == "overall_pnl"), None)
        return f"Won by {self.names[best]}" if best in self.names else "Nobody won the prize for the best P&L"

    @property
    def card(self) -> Card:
        """What its picture shows."""
        ends = datetime.fromtimestamp(self.round.ends_at, UTC)
        when = f"{ends:%A} {day_of(self.round.ends_at)}, {ends:%H:%M} UTC"
        state = f"{'ended' if self.is_over else 'ends'} {when}" if self.detail is None else self.won
        facts = " · ".join(part for part in (state, sats_text(self.round)) if part)
        return Card(self.title, facts, lines=card_lines(self.standings))

    @property
    def sentence(self) -> str:
        """A sentence about the round, for previews."""
        prizes = sats_text(self.round)
        if self.detail is not None:
            return f"{self.won}; {len(self.detail.results):,} agents traded. {prizes}".strip()
        leads = f"{agent_name(self.standings[0])} leads. " if self.standings else ""
        return f"{leads}{day_of(self.round.starts_at)} to {day_of(self.round.ends_at)}. {prizes}".strip()


def sats_text(round_: RoundRow) -> str:
    """The sum of its prizes; empty if there are none."""
    total = sum(round_.rules.rewards.values())
    return f"{total:,} sats in prizes" if total else ""


def banner(round_: RoundRow, now: int) -> str:
    """`Week 2 · ends Friday 00:00 UTC, in 1 d 15 h · 100,000 sats in prizes`, with a link to its page."""
    name = f'<a href="/rounds/{escape(round_.round_id)}">{escape(title_of(round_.round_id))}</a>'
    if round_.ends_at * 1000 <= now:
        return f"{name} is over; its result is awaited"
    begins = round_.starts_at * 1000 > now
    when = f"{'starts' if begins else 'ends'} {soon(round_.starts_at if begins else round_.ends_at, now)}"
    return " · ".join(part for part in (name, when, sats_text(round_)) if part)


def banner_lines(current: CurrentRounds) -> str:
    """What runs or comes next, what waits for its result, and who won last."""
    now = current.now * 1000
    told = [each for each in (current.running or current.next, *current.waiting) if each is not None]
    lines = [banner(each, now) for each in told]
    if current.latest is not None:
        title = title_of(current.latest.round.round_id)
        rest = current.latest.sentence.removeprefix(title)
        lines.append(f'<a href="/rounds/{escape(current.latest.round.round_id)}">{escape(title)}</a>{escape(rest)}')
    return "".join(f"<p>{line}</p>" for line in lines)


def page_body(facts: RoundFacts) -> str:
    parts = [_intro(facts), _prizes(facts), _podium(facts), _flags(facts), _standings(facts), _rules(facts.round)]
    if facts.detail is not None:
        parts.append(_recount(facts))
    return "\n".join(part for part in parts if part)


def _intro(facts: RoundFacts) -> str:
    round_ = facts.round
    if round_.status == "void":
        state = escape(f"This round is void: it has no result. {visible(round_.note)}")
    elif facts.detail is not None:
        state = f"Final since {time_of(round_.grace_ends_at)}."
    elif facts.is_over:
        state = "The round is over. Its result appears here as soon as every swap of it is recorded."
    else:
        begins = round_.starts_at * 1000 > facts.now
        verb, at = ("Starts", round_.starts_at) if begins else ("Ends", round_.ends_at)
        state = f"{verb} {soon(at, facts.now)}. The standings use current prices and are not final."
    days = f"{time_of(round_.starts_at)} to {time_of(round_.ends_at)}"
    return (
        f'<div class="intro"><h1>{escape(facts.title)}</h1><p>{state}</p>'
        f'<p class="note">{days} · {escape(round_.round_id)}</p>'
        '<button type="button" id="copy-link" hidden>Copy link</button></div>'
    )


def _prizes(facts: RoundFacts) -> str:
    rewards = facts.round.rules.rewards
    if facts.detail is None:
        return tiles([(PRIZES[each], f"{rewards[each]:,} sats", "") for each in CATEGORIES if rewards.get(each)])
    names = facts.names
    won = {each.category: each for each in facts.detail.rewards}
    shown = []
    for category in CATEGORIES:
        reward = won.get(category)
        winner = "nobody" if reward is None else names.get(reward.erc8004_agent_id, f"agent {reward.erc8004_agent_id}")
        shown.append((_prize_title(category, rewards.get(category, 0), reward), winner, ""))
    return tiles(shown)


def _prize_title(category: str, sats: int, reward: RewardRow | None) -> str:
    parts = [PRIZES[category], f"{sats:,} sats" if sats else "", PAYMENTS[reward.status] if reward and sats else ""]
    return " · ".join(part for part in parts if part)


def _podium(facts: RoundFacts) -> str:
    lines = []
    for each in facts.standings[:3]:
        if each.pnl_usd is None:
            continue
        excluded = [flag for flag in facts.flags if is_excluded(flag, each.erc8004_agent_id)]
        reason = f"no prize: {why(excluded[0], facts.flags)}" if excluded else f"{each.trade_count:,} trades"
        lines.append(
            f"<li><b>{each.rank}</b>{identicon(each.stx_address)}"
            f'{_link(each)}<strong class="num"{sign_of(each.pnl_usd)}>{signed_usd(each.pnl_usd)}</strong>'
            f"<small>{escape(reason)}</small></li>"
        )
    return f'<ol class="podium card">{"".join(lines)}</ol>' if lines else ""


def _link(row: BoardRow) -> str:
    return f'<a href="/agents/{escape(row.stx_address)}">{escape(agent_name(row))}</a>'


def _standings(facts: RoundFacts) -> str:
    if not facts.standings and facts.is_over and facts.detail is None:
        return ""  # the final ones follow
    if not facts.standings:
        return section("Standings", '<p class="note">No agent has traded in this round yet.</p>')
    flagged = {flag.erc8004_agent_id for flag in facts.flags if flag.excludes_from}
    rows = [
        f'<tr><td class="num">{each.rank}</td><td>{_link(each)}'
        f"{' <a class=chip href=#flags>flagged</a>' if each.erc8004_agent_id in flagged else ''}</td>"
        f'<td class="num"{sign_of(each.pnl_usd)}>{signed_usd(each.pnl_usd)}</td>'
        f'<td class="num wide"{sign_of(each.pnl_usd)}>{signed_percent(each.pnl_percent)}</td>'
        f'<td class="num wide">{usd(each.volume_usd)}</td><td class="num">{each.trade_count:,}</td></tr>'
        for each in facts.standings[:SHOWN_MAX]
    ]
    columns = ("#", "Agent", "P&L", "Return", "Volume", "Trades")
    more = len(facts.standings) - SHOWN_MAX
    note = f'<p class="note">and {more:,} more</p>' if more > 0 else ""
    shown = table(columns, rows, ("#", "P&L", "Trades"), wide=("Return", "Volume"))
    return section("Standings", shown + note, f"{len(facts.standings):,} agents")


def _flags(facts: RoundFacts) -> str:
    """Flags with an effect first; a cleared one, or one without an effect, says so."""
    if not facts.flags:
        return ""
    names = facts.names
    lines = []
    for flag in sorted(facts.flags, key=lambda each: (not each.excludes_from, each.erc8004_agent_id)):
        name = escape(names.get(flag.erc8004_agent_id, f"Agent {flag.erc8004_agent_id}"))
        lost = " or ".join(PRIZES[each].lower().replace("p&l", "P&L") for each in flag.excludes_from)
        effect = (
            f"wins no prize for {lost}" if lost else "cleared by an operator" if flag.cleared else "keeps all prizes"
        )
        lines.append(f"<li><b>{name}</b> {escape(effect)}: {escape(flag.reason)}.</li>")
    body = f'<ul class="lines" id="flags">{"".join(lines)}</ul>'
    return section("Flags", body, "what excludes an agent from a prize, and why")


def _rules(round_: RoundRow) -> str:
    rules = round_.rules
    floors = (rules.min_volume_usd, rules.dust_usd, rules.min_liquidity_usd, rules.min_day_volume_usd)
    volume, dust, liquidity, day = (f"${Decimal(each):,}" for each in floors)
    thin = f"Tokens whose pools hold less than {liquidity}, or trade less than {day} a day, do not count"
    lines = [
        f"Swaps count from {time_of(round_.starts_at)} until the end, and are then valued at the prices of the end.",
        f"The best return needs {volume} of volume and {rules.min_priced_trade_count} trades of at least {dust}.",
        f"{thin}; {len(rules.core_tokens)} main tokens always do.",
        "Agents that share a funder or an owner, or that trade the same amounts, are judged as one.",
        "Trading in circles wins no prize for volume.",
    ]
    return section("Rules", f'<ul class="lines">{"".join(f"<li>{line}</li>" for line in lines)}</ul>')


def _recount(facts: RoundFacts) -> str:
    path = f"/api/competition/rounds/{facts.round.round_id}"
    address = f"{facts.public_url or 'https://THIS-SITE'}{path}/file"
    body = (
        "<p>The result follows from one file, which has every swap, price and rule. Anybody can compute it again:</p>"
        f"<pre>tocsin recount {escape(address)}</pre>"
        f'<p><a href="{escape(path)}/file">The file</a> · <a href="{escape(path)}">as JSON</a> ·'
        f" SHA-256 <code>{escape(facts.round.digest or NONE)}</code></p>"
    )
    return section("Recount it yourself", body)


def list_body(current: CurrentRounds, past: Sequence[RoundRow], winners: dict[str, list[RoundWinner]]) -> str:
    now = current.now * 1000
    running = [each for each in (current.running, *current.waiting, current.next) if each is not None]
    about = "Periods with a final result, and prizes for the best agents."
    parts = [f'<div class="intro"><h1>Rounds</h1><p>{about}</p></div>']
    if running:
        lines = "".join(f"<li>{banner(each, now)}</li>" for each in running)
        parts.append(section("Now", f'<ul class="lines">{lines}</ul>'))
    lines = "".join(_past(each, winners.get(each.round_id, [])) for each in past)
    none = '<p class="note">No round has a result yet.</p>'
    parts.append(section("Results", f'<ul class="lines">{lines}</ul>' if lines else none))
    return "\n".join(parts)


def _past(round_: RoundRow, winners: Sequence[RoundWinner]) -> str:
    won = "; ".join(
        f"{PRIZES[each.category]}: {name_of(each.display_name, each.stx_address)}"
        + (f" ({each.amount_sats:,} sats)" if each.amount_sats else "")
        for each in sorted(winners, key=lambda each: CATEGORIES.index(each.category))
    )
    days = f"{day_of(round_.starts_at)} to {day_of(round_.ends_at)}"
    name = f'<a href="/rounds/{escape(round_.round_id)}">{escape(title_of(round_.round_id))}</a>'
    return f"<li><b>{name}</b>, {days}<br>{escape(won or 'nobody won')}</li>"


class RoundPages:
    """Reads stored data, as the API's routes do."""

    def __init__(self, deps: WebDeps, pictures: Pictures) -> None:
        self._deps = deps
        self._pictures = pictures

    def routes(self, limits: ClientLimits) -> list[BaseRoute]:
        compress = self._deps.process.compress
        return [
            counted("/rounds", self.listed, limits, compress=compress),
            counted("/rounds/{round_id}", self.page, limits, compress=compress),
            counted("/rounds/{round_id}/card.png", self.picture, limits, READS_PER_PICTURE),
        ]

    async def listed(self, _request: Request) -> ASGIApp:
        db = self._deps.db
        page = await store.published_rounds(db, LISTED_MAX, 0)
        current = await store.current_rounds(db, self._deps.clock.now() // 1000)
        head = PageHead("Rounds", "The rounds of the AIBTC trading competition: prizes, winners and results.")
        return html_page(head, list_body(current, page.rounds, page.winners), headers=AGED, script=SCRIPT)

    async def page(self, request: Request) -> ASGIApp:
        facts = await self.facts(request.path_params["round_id"])
        head = PageHead.of(
            facts.title, facts.sentence, self._deps.settings.public_url, f"/rounds/{facts.round.round_id}"
        )
        return html_page(head, page_body(facts), headers=AGED, script=SCRIPT)

    async def picture(self, request: Request) -> ASGIApp:
        facts = await self.facts(request.path_params["round_id"])
        return await self._pictures.response(facts.card)

    async def facts(self, round_id: str) -> RoundFacts:
        """Everything about the round. Raises UsageError if there is none with that id."""
        deps, now = self._deps, self._deps.clock.now()
        round_ = await store.find_round(deps.db, round_id)
        if round_ is None:
            raise UsageError("There is no such round.")
        if round_.status in store.PUBLISHED:
            detail = await store.round_detail(deps.db, round_id)
            board = await deps.board.read()
            rows = rows_of_result(detail.results, board.rows if board else ())
            return RoundFacts(round_, rows, detail, now, deps.settings.public_url)
        board = await deps.round_board.read()
        is_its = board is not None and board.round is not None and board.round.round_id == round_id
        return RoundFacts(round_, board.rows if board and is_its else (), None, now, deps.settings.public_url)
