"""The routes of the competition for agents and visitors, with their documentation, and refusals for operators."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import ceil
from typing import Annotated, get_args

from starlette.requests import Request
from starlette.types import ASGIApp

from holdfast.errors import BindingMissing, StoreError
from holdfast.types import JSON
from tocsin.board import board
from tocsin.board.board import PeriodRows, PublishedBoard
from tocsin.board.history import DAY_MS, history_of, published_curves
from tocsin.board.types import Board, BoardPeriod, Curves, HistoryView, Period
from tocsin.prices.store import STATIC_TOKENS, TRADED_MAX, published_tokens
from tocsin.rounds.round import AgentStatus
from tocsin.rounds.store import latest_result
from tocsin.scheduler.health import health_of
from tocsin.scheduler.types import Completeness, Status
from tocsin.swaps import trades
from tocsin.swaps.proof import completeness
from tocsin.swaps.rules import MEANINGS, Code
from tocsin.swaps.submit import SUBMIT
from tocsin.swaps.trades import PAGE_DEFAULT as TRADES_DEFAULT
from tocsin.swaps.trades import PAGE_MAX as TRADES_MAX
from tocsin.swaps.trades import REFUSALS_DEFAULT, REFUSALS_MAX
from tocsin.swaps.types import (
    AllowListView,
    PendingTrade,
    RefusalPage,
    RefusedTrade,
    SubmitAnswer,
    SweepProgress,
    TrackedTokens,
    Trade,
    TradePage,
    TradeSubmission,
)
from tocsin.web.cache import SharedResults
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.parameters import ADDRESS, CURSOR, EXAMPLE_SENDER, EXAMPLE_TXID, nearest, one_of, text
from tocsin.web.response import (
    NO_STORE,
    RETRY_S,
    SECURITY_HEADERS,
    ErrorBody,
    PreparedResponse,
    RawHeaders,
    json_bytes,
    json_response,
)
from tocsin.web.route import ResponseDoc, get, json_body, post

PERIODS: tuple[Period, ...] = get_args(Period)
PERIOD_DEFAULT: Period = "7d"
HISTORY_AGE_S = 60
LENGTH_MS: dict[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS, "90d": 90 * DAY_MS}
BOARD_AGE_S = 5
STATUS_AGE_S = 10
AGENTS_MAX = 1_000  # cached statuses, 1 kB each
RESPONSES_MAX = 64
LIST_AGE_S = 3600
PROOF_AGE_S = 5.0
NO_SCHEDULER = Completeness(None, None, None, "the scheduler does not answer")
NO_DATABASE = Completeness(None, None, None, "the database does not answer")
FINAL_CODES = tuple(str(code) for code, meaning in MEANINGS.items() if meaning.final)


_PERIOD = "the period of the figures: `all` by default; `round` is the current round, or else the last one"


_STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
_TRADE = Trade(
    txid=EXAMPLE_TXID,
    sender=EXAMPLE_SENDER,
    contract_id="SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M.stableswap-stx-ststx-v-1-2",
    function_name="swap-x-for-y",
    token_in="stx",  # noqa: S106 - not a password
    amount_in="1000000",
    token_out=_STSTX,
    amount_out="859839",
    burn_block_time=1778787000,
    block_height=7929497,
    tx_status="success",
    source="agent",
    provider=None,
)


def _submit_errors() -> dict[int, ResponseDoc | str]:
    """One entry per status, with every code that has it."""
    responses: dict[int, ResponseDoc | str] = {}
    for status in sorted({meaning.status for meaning in MEANINGS.values()} - {500}):
        codes = [(code, meaning) for code, meaning in MEANINGS.items() if meaning.status == status]
        text = " · ".join(f"{code}: {meaning.sentence}" for code, meaning in codes)
        shape = PendingTrade if codes[0][0] is Code.PENDING else RefusedTrade
        responses[status] = ResponseDoc(text, (shape, ErrorBody) if status in {400, 429, 503} else (shape,))
    return responses


class ProofReader:
    """How far the record is proven complete, as of some seconds ago. Without an answer, nothing is proven."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._proofs: SharedResults[bool, Completeness] = SharedResults(deps, PROOF_AGE_S)

    async def read(self, tasks: Collection[str] | None) -> Completeness:
        """`tasks` are those of the scheduler; None when it does not answer."""
        if tasks is None:
            return NO_SCHEDULER
        deps, feed_runs = self._deps, "feed" in tasks
        try:
            return await self._proofs.get(feed_runs, lambda: completeness(deps.db, deps.rules, feed_runs=feed_runs))
        except (StoreError, BindingMissing):
            return NO_DATABASE


class CurvesRoute:
    """`GET /api/competition/curves`: the curves that the object published, prepared once for each publication."""

    def __init__(self, deps: WebDeps, headers: RawHeaders) -> None:
        self._deps = deps
        self._headers = [(b"cache-control", f"public, max-age={HISTORY_AGE_S}".encode()), *SECURITY_HEADERS, *headers]
        self._published: str | None = None
        self._prepared: PreparedResponse | None = None

    @get(
        "/api/competition/curves",
        "getCurves",
        "one curve for each agent, in the order of the board; computed every hour",
        Curves,
        prepared=True,
    )
    async def show(self, _request: Request) -> ASGIApp:
        """The P&L of all agents at the end of each of the last 90 UTC days. Days without a point are null."""
        text = await published_curves(self._deps.kv)
        if text is None or not (text == self._published or board.parsed(text, Curves)):  # nothing that can be sent yet
            now = self._deps.clock.now()
            text = json_bytes(Curves(now, now // DAY_MS * DAY_MS, 0, []).to_json()).decode()
        if self._prepared is None or text != self._published:
            body, kind = text.encode(), "application/json"
            self._prepared = PreparedResponse(body, kind, self._headers, compress=self._deps.process.compress)
            self._published = text
        return self._prepared


class CompetitionRoutes:
    """Reads the database; only `submit` calls the object, which asks the chain. `on_submit` is called when it ends."""

    def __init__(self, deps: WebDeps, on_submit: Callable[[], None]) -> None:
        self._deps = deps
        self._on_submit = on_submit
        self._rows = PeriodRows()
        self._proof = ProofReader(deps)

    @get(
        "/api/competition/leaderboard",
        "getLeaderboard",
        "a page; `next` is the cursor of the next page",
        max_age_s=BOARD_AGE_S,
        kept=RESPONSES_MAX,
    )
    async def leaderboard(
        self,
        _request: Request,
        period: Annotated[BoardPeriod, one_of(board.PERIODS, _PERIOD)] = board.PERIOD_DEFAULT,
        sort: Annotated[str, one_of(board.SORTS, f"{board.SORT_DEFAULT} by default")] = board.SORT_DEFAULT,
        direction: Annotated[str, replace(one_of(board.DIRECTIONS, "desc by default"), name="dir")] = "desc",
        limit: Annotated[int, nearest(board.PAGE_DEFAULT, board.PAGE_MAX)] = board.PAGE_DEFAULT,
        cursor: Annotated[str | None, CURSOR] = None,
    ) -> Board:
        """The leaderboard.

        `pnlUsd` is unrealized, at current prices or, after the competition, at those of its end. `pnlAtTradeUsd` values
        each trade at the prices of its own time.
        """
        deps, now = self._deps, self._deps.clock.now()
        wanted = board.BoardQuery(sort, direction, limit, cursor, period)
        if period == "round":
            published = await deps.round_board.read() or PublishedBoard([], now, None, final=False)
        else:
            published = await deps.newest_board()
        page = board.page_of(self._rows.of(published, period), wanted)
        figures, round_ = published.periods.get(period), published.round
        snapshot = await deps.health()
        swept_at = None if snapshot.status is None else _swept_at(snapshot.status)
        return Board(
            page.rows,
            published.as_of,
            published.prices_as_of,
            page.next,
            swept_at=swept_at,
            service=health_of(snapshot, now),
            complete=await self._proof.read(None if snapshot.status is None else snapshot.status.tasks),
            final=published.final,
            sweep_complete=swept_at is not None and _is_complete(snapshot.status),
            first_sweep=_first_sweep(snapshot.status) if swept_at is None else None,
            period=period,
            since=round_.starts_at if round_ else figures.since if figures else None,
            round=round_,
        )

    @get(
        "/api/competition/history",
        "getHistory",
        "the points; old days have only their last",
        max_age_s=HISTORY_AGE_S,
        kept=RESPONSES_MAX,
    )
    async def history(
        self,
        _request: Request,
        address: Annotated[str, ADDRESS],
        period: Annotated[Period, one_of(PERIODS, f"{PERIOD_DEFAULT} by default")] = PERIOD_DEFAULT,
    ) -> HistoryView:
        """An agent's history: its row of the board at each hour. Hours without a point are left out."""
        deps, now = self._deps, self._deps.clock.now()
        agent_id = (await trades.trade_counts(deps.db, address)).agent_id
        first_ms = 0 if period == "all" else now - LENGTH_MS[period]
        points = [] if agent_id is None else await history_of(deps.db, agent_id, first_ms, now)
        return HistoryView(address, agent_id, period, now, points)

    @get(
        "/api/competition/status",
        "getTradeCounts",
        "the counts; times are seconds; `latestRoundResult` if the agent has one",
        max_age_s=STATUS_AGE_S,
        kept=AGENTS_MAX,
    )
    async def counts(self, _request: Request, address: Annotated[str, ADDRESS]) -> AgentStatus:
        """An agent's counts, and its newest result. An address that is not registered has zeros."""
        db = self._deps.db
        counts, result = await asyncio.gather(trades.trade_counts(db, address), latest_result(db, address))
        newest = {} if result is None else {"latestRoundResult": result.to_json()}
        return AgentStatus.from_json({**counts.to_json(), **newest})

    @get(
        "/api/competition/trades",
        "listTrades",
        "a page; amounts are exact, in the token's smallest unit",
        max_age_s=BOARD_AGE_S,
        example=TradePage([_TRADE], None),
    )
    async def trades(
        self,
        _request: Request,
        address: Annotated[str | None, replace(ADDRESS, description="only swaps of this agent")] = None,
        limit: Annotated[int, nearest(TRADES_DEFAULT, TRADES_MAX)] = TRADES_DEFAULT,
        cursor: Annotated[str | None, CURSOR] = None,
    ) -> TradePage:
        """Swaps that count, newest first: those of one agent, or of all."""
        if address is None:
            return await trades.newest_trades(self._deps.db, limit=limit, after=cursor)
        return await trades.trades_of(self._deps.db, address, limit=limit, after=cursor)

    @post(
        "/api/competition/trades",
        "submitTrade",
        "it counts, and is new",
        Trade,
        example=_TRADE,
        errors=_submit_errors(),
        body=TradeSubmission,
        body_example={"txid": EXAMPLE_TXID},
    )
    async def submit(self, request: Request) -> ASGIApp:
        """Submit a swap. It is verified on chain while you wait. The service would also find it without this."""
        body = await json_body(request)
        txid = body.get("txid") if isinstance(body, dict) else None
        answer = await self.submit_trade(txid if isinstance(txid, str) else None, networks_of(request.scope))
        return _submit_response(answer, self._deps.clock.now())

    @get("/api/admin/competition/refusals", "listRefusals", "a page", access="viewer")
    async def refusals(
        self,
        _request: Request,
        code: Annotated[str | None, one_of(FINAL_CODES, "only this reason")] = None,
        sender: Annotated[str | None, text("only refusals of this wallet; not together with code")] = None,
        limit: Annotated[int, nearest(REFUSALS_DEFAULT, REFUSALS_MAX)] = REFUSALS_DEFAULT,
        cursor: Annotated[str | None, CURSOR] = None,
    ) -> RefusalPage:
        """Transactions that do not count, newest first, with the reason."""
        return await trades.refusals(self._deps.db, limit=limit, code=code, sender=sender, after=cursor)

    async def submit_trade(self, txid: str | None, client: Sequence[str]) -> SubmitAnswer:
        argument: JSON = {"txid": None if txid is None else txid.strip(), "client": list(client)}
        answer = SubmitAnswer.from_json(await self._deps.scheduler().run_job(SUBMIT, argument))
        self._on_submit()
        return answer

    @get("/api/competition/allowlist", "getAllowlist", "the list, with its version", store=False, max_age_s=LIST_AGE_S)
    async def allowlist(self, _request: Request) -> AllowListView:
        """The contracts and functions that count."""
        return self._deps.rules.allowlist.view()

    @get(
        "/api/competition/tracked-tokens",
        "getTrackedTokens",
        "the tokens; `source` is static-fallback until the first refresh",
        max_age_s=STATUS_AGE_S,
    )
    async def tracked_tokens(self, _request: Request) -> TrackedTokens:
        """The tokens whose prices are kept fresh."""
        published = await published_tokens(self._deps.kv)
        tokens = STATIC_TOKENS if published is None else published
        return TrackedTokens(
            tokens=list(tokens),
            count=len(tokens),
            source="static-fallback" if published is None else "dynamic",
            static_core=list(STATIC_TOKENS),
            max_tracked=TRADED_MAX,
        )


def _swept_at(status: Status) -> int | None:
    """Until when the board has all swaps: the feed's last complete look, or the last complete sweep if that finds them.

    Before the first complete sweep nothing is known about older swaps.
    """
    feed, sweep = status.tasks.get("feed"), status.tasks.get("sweep")
    if sweep is None or sweep.last_success_at is None:
        return None
    follows = (status.last_result.get("feed") or {}).get("way") == "network"
    if feed is None or feed.last_success_at is None or not follows:
        return sweep.last_success_at
    return max(feed.last_success_at, sweep.last_success_at)


def _is_complete(status: Status | None) -> bool:
    """Whether the newest runs that look for swaps did everything that they set out to do."""
    tasks = {} if status is None else status.tasks
    return all(tasks[name].condition == "ok" for name in ("feed", "sweep") if name in tasks)


def _first_sweep(status: Status | None) -> SweepProgress | None:
    sweep = None if status is None else status.tasks.get("sweep")
    running = None if sweep is None else sweep.running
    return None if running is None or not running.total else SweepProgress(running.done, running.total)


def retry_after(code: str | None, retry_at: int | None, now: int) -> dict[str, str]:
    """When to try again: at that time, or else after the usual time for the code."""
    usual_s = MEANINGS[Code(code)].retry_s if code else RETRY_S
    wait_s = usual_s if retry_at is None else ceil((retry_at - now) / 1000)
    return {"Retry-After": str(max(1, wait_s))}


def _submit_response(answer: SubmitAnswer, now: int) -> ASGIApp:
    """The object's answer as a response. For a new swap this is its row, as the site's clients expect."""
    headers = NO_STORE | (retry_after(answer.code, answer.retry_at, now) if answer.retryable else {})
    if answer.code is None and answer.trade is not None:
        return json_response(answer.trade.to_json(), headers=headers)
    code = answer.code or ""
    if code == Code.PENDING:
        accepted = answer.obstacle is None
        note = answer.sentence + ("" if accepted else f" This one would not: {answer.obstacle}.")
        pending = PendingTrade(accepted, note, code, answer.reason, answer.retryable)
        return json_response(pending.to_json(), answer.http_status, headers)
    refused = RefusedTrade(answer.sentence, code, answer.reason, answer.retryable, answer.trade)
    return json_response(refused.to_json(), answer.http_status, headers)
