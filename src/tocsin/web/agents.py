"""The routes for participating programs: one agent, a verdict, how to take part, and the board for a spreadsheet."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.types import JSON
from tocsin.board.agents import BoardRanks, agent_view
from tocsin.board.board import SORT_DEFAULT, ranked
from tocsin.board.publish import board_at
from tocsin.board.published import ROUND_KEY, BoardReader, PublishedBoard
from tocsin.board.types import AgentView, BoardRow
from tocsin.errors import RequestRefused
from tocsin.rounds.store import rounds_of_agent
from tocsin.stacks import canonical_txid
from tocsin.swaps.codes import MEANINGS, Code
from tocsin.swaps.submit import VERDICT, known_verdict
from tocsin.swaps.types import TradeVerdict, VerdictAnswer
from tocsin.text import without_formulas
from tocsin.web.agent_guide import agent_card, guide
from tocsin.web.competition import aged
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.response import RETRY_S, json_response

AGE_S = 5
GUIDE_AGE_S = 300
ROUNDS_SHOWN = 12
COLUMNS = (
    "rank",
    "name",
    "stxAddress",
    "erc8004AgentId",
    "tradeCount",
    "volumeUsd",
    "pnlUsd",
    "pnlPercent",
    "pnlAtTradeUsd",
    "latestTradeAt",
)


class AgentRoutes:
    """Reads stored data. Only for a verdict on an unknown transaction does the object ask the chain."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._published = BoardReader(deps.kv)
        self._of_round = BoardReader(deps.kv, ROUND_KEY)
        self._ranks = BoardRanks()

    async def agent(self, request: Request) -> ASGIApp:
        view = await self.view(request.path_params["address"])
        return json_response(view.to_json(), headers=aged(AGE_S))

    async def verdict(self, request: Request) -> ASGIApp:
        verdict = await self.verdict_on(request.path_params["txid"], networks_of(request.scope))
        return json_response(verdict.to_json(), headers=aged(AGE_S))

    async def board(self) -> PublishedBoard:
        """The board that the object published; computed here only until it has published one."""
        deps = self._deps
        return await self._published.read() or await board_at(deps.db, deps.kv, deps.clock.now(), deps.rules)

    async def view(self, address: str) -> AgentView:
        db, of_round = self._deps.db, await self._of_round.read()
        view = await agent_view(db, await self.board(), self._ranks, address, of_round)
        if view.agent_id is None:
            return view
        wallets = [address] if view.row is None else view.row.wallets
        rounds = await rounds_of_agent(db, view.agent_id, wallets, ROUNDS_SHOWN)
        return replace(view, rounds=rounds)

    async def verdict_on(self, text: str, client: Sequence[str]) -> TradeVerdict:
        """The verdict on a transaction. Raises `RequestRefused` when there is none."""
        deps, txid = self._deps, canonical_txid(text)
        known = await known_verdict(deps.db, txid, deps.rules)
        if known is None:
            argument: JSON = {"txid": txid, "client": list(client)}
            answer = VerdictAnswer.from_json(await deps.scheduler().run_job(VERDICT, argument))
            if answer.verdict is None:
                raise self._refusal(answer)
            known = answer.verdict
        return known

    def _refusal(self, answer: VerdictAnswer) -> RequestRefused:
        """Why there is no verdict."""
        meaning, now = MEANINGS[Code(answer.code or "")], self._deps.clock.now()
        wait_s = meaning.retry_s if answer.retry_at is None else ceil((answer.retry_at - now) / 1000)
        headers = {"Retry-After": str(max(1, wait_s or RETRY_S))} if meaning.retryable else {}
        return RequestRefused(
            meaning.status,
            answer.code or "",
            meaning.sentence,
            retryable=meaning.retryable,
            headers=headers,
            reason=answer.reason,
        )

    async def guide(self, _request: Request) -> ASGIApp:
        text = guide(self._deps.rules)
        return Response(text, media_type="text/plain; charset=utf-8", headers=aged(GUIDE_AGE_S))

    async def card(self, _request: Request) -> ASGIApp:
        card = agent_card(self._deps.rules, self._deps.version)
        return json_response(card.to_json(), headers=aged(GUIDE_AGE_S))


class CsvRoute:
    """The text is made once for each published board."""

    def __init__(self, agents: AgentRoutes) -> None:
        self._agents = agents
        self._newest: tuple[PublishedBoard, bytes] | None = None

    async def show(self, _request: Request) -> ASGIApp:
        board = await self._agents.board()
        if self._newest is None or self._newest[0] is not board:
            self._newest = board, csv_of(board)
        headers = {**aged(AGE_S), "Content-Disposition": 'attachment; filename="leaderboard.csv"'}
        return Response(self._newest[1], headers=headers, media_type="text/csv; charset=utf-8")


def csv_of(board: PublishedBoard) -> bytes:
    """A line for each agent, best first; unknown values are empty."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows((rank, *_line(row)) for rank, row in enumerate(ranked(board.rows, SORT_DEFAULT, "desc"), 1))
    return out.getvalue().encode()


def _line(row: BoardRow) -> tuple[str | int | float | None, ...]:
    return (
        without_formulas(row.display_name or row.bns_name or ""),
        row.stx_address,
        row.erc8004_agent_id,
        row.trade_count,
        row.volume_usd,
        row.pnl_usd,
        row.pnl_percent,
        row.pnl_at_trade_usd,
        row.latest_trade_at,
    )
