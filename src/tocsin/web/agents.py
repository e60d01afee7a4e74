"""The routes for participating programs: one agent, a verdict, and the board for a spreadsheet."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.board.agents import BoardRanks, agent_view
from tocsin.board.board import SORT_DEFAULT, PublishedBoard, ranked
from tocsin.board.types import AgentView, BoardRow
from tocsin.errors import RequestRefused
from tocsin.rounds.capture import live_inputs
from tocsin.rounds.round import AgentFlag
from tocsin.rounds.score import scoring, with_pauses
from tocsin.rounds.store import rounds_of_agent, the_round
from tocsin.stacks import canonical_txid
from tocsin.swaps.explain import known_verdict
from tocsin.swaps.rules import MEANINGS, Code
from tocsin.swaps.submit import VERDICT
from tocsin.swaps.types import TradeVerdict, VerdictAnswer
from tocsin.text import without_formulas
from tocsin.web.cache import SharedResults
from tocsin.web.competition import retry_after
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.parameters import ADDRESS, TXID
from tocsin.web.response import aged
from tocsin.web.route import get

AGE_S = 5
ROUNDS_SHOWN = 12
FLAGS_AGE_S = 60
FLAGGED_SWAPS_MAX = 20_000  # of the running round
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
        self._ranks = BoardRanks()
        self._csv: tuple[PublishedBoard, bytes] | None = None  # the text of the newest board
        self._flagged: SharedResults[str, list[AgentFlag] | None] = SharedResults(deps, FLAGS_AGE_S)

    @get(
        "/api/competition/agents/{address}",
        "getAgent",
        "the agent; an address that is not registered has that tier",
        max_age_s=AGE_S,
    )
    async def agent(self, _request: Request, address: Annotated[str, ADDRESS.in_path()]) -> AgentView:
        """One agent: its tier, missing steps, ranks, values, flags, latest refusals and rounds."""
        return await self.view(address)

    @get(
        "/api/competition/trades/{txid}",
        "getVerdict",
        "the verdict",
        max_age_s=AGE_S,
        errors={
            404: "tx_not_found: Hiro does not know it; if it was just broadcast, try again",
            429: "too_many_requests: too many reads, or this client has used its share of the calls to Hiro",
            502: "tx_fetch_failed: Hiro cannot be reached now",
        },
    )
    async def verdict(self, request: Request, txid: Annotated[str, TXID.in_path()]) -> TradeVerdict:
        """Whether a transaction counts, and why, step by step. Nothing is stored.

        Recorded, refused and queued transactions are answered from the database. For any other, the service asks the
        chain, with calls from your share.
        """
        return await self.verdict_on(txid, networks_of(request.scope))

    @get(
        "/api/competition/leaderboard.csv",
        "getBoardCsv",
        "a line for each agent; unknown values are empty",
        media_type="text/csv",
    )
    async def table(self, _request: Request) -> ASGIApp:
        """The whole leaderboard by P&L, as CSV for a spreadsheet."""
        board = await self._deps.newest_board()
        if self._csv is None or self._csv[0] is not board:
            self._csv = board, csv_of(board)
        headers = {**aged(AGE_S), "Content-Disposition": 'attachment; filename="leaderboard.csv"'}
        return Response(self._csv[1], headers=headers, media_type="text/csv; charset=utf-8")

    async def view(self, address: str) -> AgentView:
        db, of_round = self._deps.db, await self._deps.round_board.read()
        view = await agent_view(db, await self._deps.newest_board(), self._ranks, address, of_round)
        if view.agent_id is None:
            return view
        wallets = [address] if view.row is None else view.row.wallets
        rounds = await rounds_of_agent(db, view.agent_id, wallets, ROUNDS_SHOWN)
        flags = await self._flags(of_round)
        own = None if flags is None else [flag for flag in flags if flag.erc8004_agent_id == view.agent_id]
        return replace(view, rounds=rounds, flags=own)

    async def _flags(self, of_round: PublishedBoard | None) -> list[AgentFlag] | None:
        """The flags of all agents if the running round ended now; those of the last minute may be returned."""
        if of_round is None or of_round.round is None or of_round.round.final:
            return None
        if sum(row.trade_count for row in of_round.rows) > FLAGGED_SWAPS_MAX:
            return None
        round_id = of_round.round.round_id
        return await self._flagged.get(round_id, partial(self._find_flags, round_id))

    async def _find_flags(self, round_id: str) -> list[AgentFlag] | None:
        """The flags; None if prices or rules cannot be read."""
        db, now = self._deps.db, self._deps.clock.now()
        rules = (await the_round(db, round_id)).rules
        try:
            outcome = await with_pauses(scoring(await live_inputs(db, rules, now // 1000)))
        except UsageError:
            return None
        return [flag for flag in outcome.flags if not flag.cleared]

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
        code = Code(answer.code or "")
        meaning = MEANINGS[code]
        headers = retry_after(code, answer.retry_at, self._deps.clock.now()) if meaning.retryable else {}
        return RequestRefused(
            meaning.status, code, meaning.sentence, retryable=meaning.retryable, headers=headers, reason=answer.reason
        )


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
