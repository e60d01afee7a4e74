"""`GET /api/competition/leaderboard.csv`: the whole board for a spreadsheet."""

import csv
import io

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.competition.board import SORT_DEFAULT, ranked
from tocsin.competition.published_board import PublishedBoard
from tocsin.shapes.competition import BoardRow
from tocsin.visible_text import without_formulas
from tocsin.web.agent_routes import AgentRoutes
from tocsin.web.competition_routes import aged

AGE_S = 5
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
    writer.writerows(
        (rank, *_line(row)) for rank, row in enumerate(ranked(board.rows, SORT_DEFAULT, "desc"), 1)
    )
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
