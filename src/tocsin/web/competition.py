"""The routes of the competition for agents and visitors, with their documentation, and refusals for operators."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import get_args

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.board import board
from tocsin.board.board import BoardQuery
from tocsin.board.history import DAY_MS, history_of
from tocsin.board.past import are_curves, published_curves
from tocsin.board.publish import board_at
from tocsin.board.published import ROUND_KEY, BoardReader, PeriodRows, PublishedBoard
from tocsin.board.types import AgentCurve, Board, BoardPeriod, BoardRow, Curves, HistoryPoint, HistoryView, Period
from tocsin.prices.store import STATIC_TOKENS, TRADED_MAX, published_tokens
from tocsin.rounds.round import AgentStatus
from tocsin.rounds.store import latest_result
from tocsin.scheduler.health import health_of
from tocsin.scheduler.types import Completeness, Health, Status
from tocsin.stacks import ADDRESS_PATTERN
from tocsin.swaps import trades
from tocsin.swaps.codes import MEANINGS, Code
from tocsin.swaps.submit import SUBMIT
from tocsin.swaps.trades import REFUSALS_DEFAULT, REFUSALS_MAX, check_address, refusals
from tocsin.swaps.types import (
    AllowListView,
    PendingTrade,
    PushCounts,
    RefusedTrade,
    SubmitAnswer,
    SweepProgress,
    TrackedTokens,
    Trade,
    TradePage,
    TradeSubmission,
)
from tocsin.web.cache import cache_for
from tocsin.web.deps import ProofReader, WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.response import (
    NO_STORE,
    PRIVATE,
    RETRY_S,
    SECURITY_HEADERS,
    ErrorBody,
    PreparedResponse,
    RawHeaders,
    json_bytes,
    json_response,
)
from tocsin.web.route import OperationDoc, Parameter, ResponseDoc, json_body, require_key

PERIODS: tuple[Period, ...] = get_args(Period)
PERIOD_DEFAULT: Period = "7d"
HISTORY_AGE_S = 60
LENGTH_MS: dict[str, int] = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS, "90d": 90 * DAY_MS}
BOARD_AGE_S = 5
STATUS_AGE_S = 10
AGENTS_MAX = 1_000  # cached statuses, 1 kB each
LIST_AGE_S = 3600
_NUMBER = re.compile(r"[+-]?[0-9]+")


class CurvesRoute:
    """`GET /api/competition/curves`: the curves that the object published, prepared once for each publication."""

    def __init__(self, deps: WebDeps, headers: RawHeaders) -> None:
        self._deps = deps
        self._headers = [(b"cache-control", f"public, max-age={HISTORY_AGE_S}".encode()), *SECURITY_HEADERS, *headers]
        self._published: str | None = None  # the newest usable text
        self._refused: str | None = None  # the newest unusable one
        self._prepared: PreparedResponse | None = None

    async def show(self, _request: Request) -> ASGIApp:
        text = await published_curves(self._deps.kv)
        if self._prepared is not None and text == self._published:
            return self._prepared
        if text is None or text == self._refused or not are_curves(text):  # nothing that can be sent yet
            self._refused = text
            now = self._deps.clock.now()
            return self._response(json_bytes(Curves(now, now // DAY_MS * DAY_MS, 0, []).to_json()))
        self._published, self._prepared = text, self._response(text.encode())
        return self._prepared

    def _response(self, body: bytes) -> PreparedResponse:
        return PreparedResponse(body, "application/json", self._headers, compress=self._deps.compress)


class CompetitionRoutes:
    """Reads the database; only `submit` calls the object, which asks the chain."""

    def __init__(self, deps: WebDeps, headers: RawHeaders) -> None:
        self._deps = deps
        self._published = BoardReader(deps.kv)
        self._of_round = BoardReader(deps.kv, ROUND_KEY)
        self._rows = PeriodRows()
        self._proof = ProofReader(deps)
        self.board = cache_for(deps, headers, BOARD_AGE_S, _board_query, self._board)
        self.status = cache_for(deps, headers, STATUS_AGE_S, _address, self._status, AGENTS_MAX)
        self.history = cache_for(deps, headers, HISTORY_AGE_S, _history_query, self._history)

    async def trades(self, request: Request) -> ASGIApp:
        query = request.query_params
        limit, after = page_limit(query, trades.PAGE_DEFAULT, trades.PAGE_MAX), query.get("cursor") or None
        if "address" in query:
            page = await trades.trades_of(self._deps.db, query["address"], limit=limit, after=after)
        else:
            page = await trades.newest_trades(self._deps.db, limit=limit, after=after)
        return json_response(page.to_json(), headers=aged(BOARD_AGE_S))

    async def submit(self, request: Request) -> ASGIApp:
        body = await json_body(request)
        txid = body.get("txid") if isinstance(body, dict) else None
        answer = await self.submit_trade(txid if isinstance(txid, str) else None, networks_of(request.scope))
        return _submit_response(answer, self._deps.clock.now())

    async def submit_trade(self, txid: str | None, client: Sequence[str]) -> SubmitAnswer:
        argument: JSON = {"txid": None if txid is None else txid.strip(), "client": list(client)}
        answer = SubmitAnswer.from_json(await self._deps.scheduler().run_job(SUBMIT, argument))
        self.board.forget()
        self.status.forget()
        return answer

    async def allowlist(self, _request: Request) -> ASGIApp:
        return json_response(self._deps.rules.allowlist.view().to_json(), headers=aged(LIST_AGE_S))

    async def tracked_tokens(self, _request: Request) -> ASGIApp:
        published = await published_tokens(self._deps.kv)
        tokens = STATIC_TOKENS if published is None else published
        tracked = TrackedTokens(
            tokens=list(tokens),
            count=len(tokens),
            source="static-fallback" if published is None else "dynamic",
            static_core=list(STATIC_TOKENS),
            max_tracked=TRADED_MAX,
        )
        return json_response(tracked.to_json(), headers=aged(STATUS_AGE_S))

    async def _status(self, address: str) -> AgentStatus:
        db = self._deps.db
        counts, result = await asyncio.gather(trades.trade_counts(db, address), latest_result(db, address))
        newest = {} if result is None else {"latestRoundResult": result.to_json()}
        return AgentStatus.from_json({**counts.to_json(), **newest})

    async def _history(self, asked: tuple[str, Period]) -> HistoryView:
        (address, period), deps, now = asked, self._deps, self._deps.clock.now()
        agent_id = (await trades.trade_counts(deps.db, address)).agent_id
        first_ms = 0 if period == "all" else now - LENGTH_MS[period]
        points = [] if agent_id is None else await history_of(deps.db, agent_id, first_ms, now)
        return HistoryView(address, agent_id, period, now, points)

    async def _board(self, query: BoardQuery) -> Board:
        """A page of the board that the object published."""
        deps, now, period = self._deps, self._deps.clock.now(), query.period
        published = await self._read(period, now)
        page = board.page_of(self._rows.of(published, period), query)
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

    async def _read(self, period: BoardPeriod, now: int) -> PublishedBoard:
        """The board that the object published; computed here only until it has published one, and never for a round."""
        if period == "round":
            return await self._of_round.read() or PublishedBoard([], now, None, final=False)
        deps = self._deps
        return await self._published.read() or await board_at(deps.db, deps.kv, now, deps.rules)


def _history_query(query: QueryParams) -> tuple[str, Period]:
    address, asked = query.get("address", ""), query.get("period") or PERIOD_DEFAULT
    check_address(address)
    for period in PERIODS:
        if asked == period:
            return address, period
    raise UsageError(f"period is one of {', '.join(PERIODS)}, not {asked[:40]!r}.")


def _address(query: QueryParams) -> str:
    address = query.get("address", "")
    trades.check_address(address)
    return address


def _board_query(query: QueryParams) -> BoardQuery:
    return board.board_query(
        query.get("sort", board.SORT_DEFAULT),
        query.get("dir", "desc"),
        page_limit(query, board.PAGE_DEFAULT, board.PAGE_MAX),
        query.get("cursor") or None,
        query.get("period") or board.PERIOD_DEFAULT,
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


def _submit_response(answer: SubmitAnswer, now: int) -> ASGIApp:
    """The object's answer as a response. For a new swap this is its row, as the site's clients expect."""
    headers = dict(NO_STORE)
    if answer.retryable:
        usual_s = MEANINGS[Code(answer.code)].retry_s if answer.code else RETRY_S
        wait_s = usual_s if answer.retry_at is None else ceil((answer.retry_at - now) / 1000)
        headers["Retry-After"] = str(max(1, wait_s))
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


def page_limit(query: QueryParams, default: int, largest: int) -> int:
    """The allowed limit nearest to the number that was sent: clients of the site rely on that."""
    return min(largest, max(1, leading_number(query, "limit", default)))


def leading_number(query: QueryParams, name: str, default: int) -> int:
    """The whole number that a parameter begins with, as JavaScript's `parseInt` reads it for the site's clients."""
    text = query.get(name, "").strip() or str(default)
    found = _NUMBER.match(text)
    if found is None:
        raise UsageError(f"{name} is a number such as {default or 1}, not {text[:40]!r}.")
    return int(found[0][:30])


def aged(seconds: int) -> dict[str, str]:
    return {"Cache-Control": f"public, max-age={seconds}"}


EXAMPLE_TXID = "0x46bc5587ae56e5bd4453daa2bf63c2a9e0414953fd21a82eb44f2f926f0ee0e4"
EXAMPLE_SENDER = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
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
ADDRESS = Parameter(
    "address",
    {"type": "string", "pattern": ADDRESS_PATTERN},
    "a Stacks mainnet address",
    required=True,
    example=EXAMPLE_SENDER,
)
_CURSOR = Parameter("cursor", {"type": "string", "pattern": trades.PATTERN}, "the cursor from the previous page")


def _limit(default: int, largest: int) -> Parameter:
    text = f"{default} by default; the nearest whole number from 1 to {largest} is used"
    return Parameter("limit", {"type": "number"}, text)


def _submit_responses() -> dict[int, ResponseDoc]:
    """One entry per status, with every code that has it."""
    responses = {200: ResponseDoc("it counts, and is new", (Trade,), _TRADE)}
    for status in sorted({meaning.status for meaning in MEANINGS.values()} - {500}):
        codes = [(code, meaning) for code, meaning in MEANINGS.items() if meaning.status == status]
        text = " · ".join(f"{code}: {meaning.sentence}" for code, meaning in codes)
        shape = PendingTrade if codes[0][0] is Code.PENDING else RefusedTrade
        responses[status] = ResponseDoc(text, (shape, ErrorBody) if status in {400, 429, 503} else (shape,))
    return responses


BOARD = OperationDoc(
    operation_id="getLeaderboard",
    tag="competition",
    summary=(
        "The leaderboard. `pnlUsd` is unrealised, at current prices or, after the competition, at those of its end;"
        " `pnlAtTradeUsd` values each trade at the prices of its own time."
    ),
    parameters=(
        Parameter(
            "period",
            {"enum": list(board.PERIODS)},
            "the period of the figures: `all` by default; `round` is the current round, or else the last one",
        ),
        Parameter("sort", {"enum": list(board.SORTS)}, f"{board.SORT_DEFAULT} by default"),
        Parameter("dir", {"enum": list(board.DIRECTIONS)}, "desc by default"),
        _limit(board.PAGE_DEFAULT, board.PAGE_MAX),
        _CURSOR,
    ),
    responses={
        200: ResponseDoc(
            "a page; `next` is the cursor of the next page",
            (Board,),
            Board(
                rows=[
                    BoardRow(
                        rank=1,
                        stx_address=EXAMPLE_SENDER,
                        btc_address="bc1qexample",
                        display_name="Sly Fox",
                        bns_name="slyfox.btc",
                        erc8004_agent_id=12,
                        trade_count=34,
                        latest_trade_at=1778787000000,
                        volume_usd=1204.5,
                        capital_usd=310.4,
                        pnl_usd=-3.1,
                        pnl_percent=-0.26,
                        pnl_at_trade_usd=2.4,
                        valued_trade_count=12,
                        unpriced_tokens=[_STSTX],
                        thin_tokens=[],
                        wallets=[EXAMPLE_SENDER],
                    )
                ],
                as_of=1778787060000,
                prices_as_of=1778787010000,
                next=None,
                swept_at=1778786400000,
                service=Health(ready=True, state="ready", reasons=[], notes=[]),
                complete=Completeness(7_912_345, 1778787050000, 0, None),
            ),
        ),
        304: ResponseDoc("unchanged since the ETag that was sent"),
    },
)
HISTORY = OperationDoc(
    operation_id="getHistory",
    tag="competition",
    summary="An agent's history: its row of the board at each hour. Hours without a point are left out.",
    parameters=(ADDRESS, Parameter("period", {"enum": list(PERIODS)}, f"{PERIOD_DEFAULT} by default")),
    responses={
        200: ResponseDoc(
            "the points, oldest first; old days have only their last one",
            (HistoryView,),
            HistoryView(
                address=EXAMPLE_SENDER,
                erc8004_agent_id=12,
                period="24h",
                as_of=1778787060000,
                points=[HistoryPoint(1778785200000, 1, 34, 1204.5, -3.1, 2.4)],
            ),
        ),
        304: ResponseDoc("unchanged since the ETag that was sent"),
    },
)
CURVES = OperationDoc(
    operation_id="getCurves",
    tag="competition",
    summary="The P&L of all agents at the end of each of the last 90 UTC days. Days without a point are null.",
    responses={
        200: ResponseDoc(
            "one curve for each agent that has one, in the order of the board; computed every hour",
            (Curves,),
            Curves(
                as_of=1778787060000,
                first_day_at=1778630400000,
                days=2,
                agents=[AgentCurve(12, EXAMPLE_SENDER, "Sly Fox", [None, -3.1])],
            ),
        ),
        304: ResponseDoc("unchanged since the ETag that was sent"),
    },
)
TRADES = OperationDoc(
    operation_id="listTrades",
    tag="competition",
    summary="Swaps that count, newest first: those of one agent, or of all.",
    parameters=(
        replace(ADDRESS, required=False, description="only swaps of this agent"),
        _limit(trades.PAGE_DEFAULT, trades.PAGE_MAX),
        _CURSOR,
    ),
    responses={
        200: ResponseDoc(
            "a page; amounts are exact, in the token's smallest unit", (TradePage,), TradePage([_TRADE], None)
        )
    },
)
SUBMIT_DOC = OperationDoc(
    operation_id="submitTrade",
    tag="competition",
    summary="Submit a swap. It is verified on chain while you wait. The service would also find it without this.",
    body=TradeSubmission,
    body_example={"txid": EXAMPLE_TXID},
    responses=_submit_responses(),
)
COUNTS = OperationDoc(
    operation_id="getTradeCounts",
    tag="competition",
    summary="An agent's counts, and its newest result. An address that is not registered has zeros.",
    parameters=(ADDRESS,),
    responses={
        200: ResponseDoc(
            "the counts; times are seconds, as on chain; `latestRoundResult` if the agent has one", (AgentStatus,)
        )
    },
)
ALLOWLIST = OperationDoc(
    operation_id="getAllowlist",
    tag="competition",
    summary="The contracts and functions that count.",
    responses={200: ResponseDoc("the list; its version changes with it", (AllowListView,))},
    store=False,
)
TRACKED = OperationDoc(
    operation_id="getTrackedTokens",
    tag="competition",
    summary="The tokens whose prices are kept fresh.",
    responses={200: ResponseDoc("the tokens; `source` is static-fallback until the first refresh", (TrackedTokens,))},
)
CHAINHOOK = OperationDoc(
    operation_id="receiveChainhook",
    tag="competition",
    summary="Blocks that Hiro's Chainhook pushes, 2.0 or v1.",
    key="Authorization",
    body_schema={"type": "object"},
    body_example={"event": {"apply": [], "rollback": []}},
    responses={
        200: ResponseDoc(
            "its transactions are stored and will be verified; `refused` ones did not fit into the queue;"
            " with `tooLarge` nothing of it was read, and the lists are looked at instead",
            (PushCounts,),
            PushCounts(queued=1, already_known=0, ignored=3, rolled_back=0),
        ),
        422: ResponseDoc(
            "malformed_push: not a push from Chainhook; the sentence names the place."
            " wrong_network: about another network than Stacks mainnet",
            (ErrorBody,),
        ),
    },
)


class RefusalRoutes:
    """Reads the database."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def show(self, request: Request) -> ASGIApp:
        require_key(request, "X-Admin-Key", self._deps.keys.admin, "ADMIN_KEY")
        query = request.query_params
        found = await refusals(
            self._deps.db,
            limit=page_limit(query, REFUSALS_DEFAULT, REFUSALS_MAX),
            code=query.get("code") or None,
            sender=query.get("sender") or None,
            after=query.get("cursor") or None,
        )
        return json_response(found.to_json(), headers=PRIVATE)
