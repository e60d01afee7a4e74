"""The routes of the competition, for agents and visitors."""

import asyncio
import re
from collections.abc import Sequence
from math import ceil

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.competition import board, trades
from tocsin.competition.board import BoardQuery
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.published_board import ROUND_KEY, BoardReader, PeriodRows, PublishedBoard
from tocsin.competition.request_jobs import SUBMIT
from tocsin.errors import UsageError
from tocsin.prices.tracked_tokens import STATIC_TOKENS, TRADED_MAX, published_tokens
from tocsin.rounds.round_reader import latest_result
from tocsin.scheduler.service_health import health_of
from tocsin.shapes.competition import (
    Board,
    BoardPeriod,
    PendingTrade,
    RefusedTrade,
    SubmitAnswer,
    SweepProgress,
    TrackedTokens,
)
from tocsin.shapes.round_views import AgentStatus
from tocsin.shapes.scheduler import Status
from tocsin.tasks.publish_board import board_at
from tocsin.web.body import json_body
from tocsin.web.deps import WebDeps
from tocsin.web.history_routes import history_cache
from tocsin.web.proof import ProofReader
from tocsin.web.request_limits import networks_of
from tocsin.web.respond import RETRY_S, json_response
from tocsin.web.response_cache import ResponseCache
from tocsin.web.security import RawHeaders

BOARD_AGE_S = 5
STATUS_AGE_S = 10
AGENTS_MAX = 1_000  # cached statuses, 1 kB each
LIST_AGE_S = 3600
NO_STORE = {"Cache-Control": "no-store"}

_NUMBER = re.compile(r"[+-]?[0-9]+")


class CompetitionRoutes:
    """Reads the database; only `submit` calls the object, which asks the chain."""

    def __init__(self, deps: WebDeps, headers: RawHeaders) -> None:
        self._deps = deps
        self._published = BoardReader(deps.kv)
        self._of_round = BoardReader(deps.kv, ROUND_KEY)
        self._rows = PeriodRows()
        self._proof = ProofReader(deps)
        self.board = ResponseCache(
            deps.clock,
            BOARD_AGE_S,
            _board_query,
            self._board,
            in_one_loop=deps.in_one_loop,
            headers=headers,
            compress=deps.compress,
        )
        self.status = ResponseCache(
            deps.clock,
            STATUS_AGE_S,
            _address,
            self._status,
            in_one_loop=deps.in_one_loop,
            headers=headers,
            compress=deps.compress,
            responses_max=AGENTS_MAX,
        )
        self.history = history_cache(deps, headers)

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
