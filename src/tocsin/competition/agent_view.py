"""What an agent can learn about itself: its tier and what is missing, its ranks, and its last refusals."""

from collections.abc import Sequence

from tocsin.bindings import Database
from tocsin.competition.board import PERIODS, SORTS, ranked, value_by
from tocsin.competition.published_board import PeriodRows, PublishedBoard
from tocsin.competition.refusal_list import refusals
from tocsin.competition.trades import check_address
from tocsin.shapes.agents import AgentTier, AgentView
from tocsin.shapes.competition import BoardRow

REFUSALS_MAX = 10

# What is left to do before an agent's swaps count, in order.
STEPS = {
    "register": "register the wallet as an agent at AIBTC; its earlier swaps count as well",
    "claim": "have the claim verified: it must be verified or rewarded",
    "identity": "get an on-chain identity (ERC-8004)",
}
MISSING: dict[AgentTier, list[str]] = {
    "not_registered": list(STEPS.values()),
    "registered": [STEPS["claim"], STEPS["identity"]],
    "genesis": [STEPS["identity"]],
    "eligible": [],
}

_AGENT = """
SELECT a.display_name, a.bns_name, a.erc8004_agent_id, t.tier
FROM agents a JOIN agent_tiers t ON t.stx_address = a.stx_address WHERE a.stx_address = ?"""


class BoardRanks:
    """Ranks in every order and period, computed once for each published board."""

    def __init__(self) -> None:
        self._board: PublishedBoard | None = None
        self._ranks: dict[str, dict[str, int]] = {}  # by the displayed address, then by order
        self._rows: dict[str, BoardRow] = {}  # by every wallet
        self._of_round: PublishedBoard | None = None
        self._in_periods: dict[str, dict[int, dict[str, int]]] = {}  # by period, by agent, by order

    def find(self, board: PublishedBoard, address: str) -> tuple[BoardRow, dict[str, int]] | None:
        """The row of a wallet, and its ranks."""
        if board is not self._board:
            self._board, self._ranks = board, ranks_of(board.rows)
            self._rows = {wallet: row for row in board.rows for wallet in row.wallets}
            rows, kept = PeriodRows(), self._in_periods.get("round", {})
            self._in_periods = {
                period: _known_ranks(rows.of(board, period)) for period in PERIODS if period in board.periods
            }
            self._in_periods["round"] = kept
        row = self._rows.get(address)
        return None if row is None else (row, self._ranks[row.stx_address])

    def in_periods(self, agent_id: int, of_round: PublishedBoard | None) -> dict[str, dict[str, int]]:
        """Return the ranks of an agent in each period of the board that was last asked for."""
        if of_round is not self._of_round:
            self._of_round = of_round
            rows = [] if of_round is None else of_round.rows
            self._in_periods["round"] = _known_ranks(rows, by_place=True)
        return {period: ranks[agent_id] for period, ranks in self._in_periods.items() if ranks.get(agent_id)}


def _known_ranks(rows: Sequence[BoardRow], *, by_place: bool = False) -> dict[int, dict[str, int]]:
    """Return every agent's rank in each order in which it has a value, best first."""
    ranks: dict[int, dict[str, int]] = {}
    for sort in SORTS:
        value_of = value_by(sort)
        for rank, row in enumerate(ranked(rows, sort, "desc", by_place=by_place), 1):
            if value_of(row) is not None:
                ranks.setdefault(row.erc8004_agent_id, {})[sort] = rank
    return ranks


def ranks_of(rows: Sequence[BoardRow]) -> dict[str, dict[str, int]]:
    """Return every row's rank in each order, best first."""
    ranks: dict[str, dict[str, int]] = {row.stx_address: {} for row in rows}
    for sort in SORTS:
        for rank, row in enumerate(ranked(rows, sort, "desc"), 1):
            ranks[row.stx_address][sort] = rank
    return ranks


async def agent_view(
    db: Database,
    board: PublishedBoard,
    ranks: BoardRanks,
    address: str,
    of_round: PublishedBoard | None = None,
) -> AgentView:
    """Describe one wallet. An unregistered address also gets an answer."""
    check_address(address)
    row = await db.prepare(_AGENT).bind(address).first() or {}
    refused = await refusals(db, limit=REFUSALS_MAX, sender=address)
    tier: AgentTier = row.get("tier", "not_registered")
    placed = ranks.find(board, address)
    return AgentView(
        address=address,
        tier=tier,
        missing=MISSING[tier],
        agent_id=row.get("erc8004_agent_id"),
        display_name=row.get("display_name"),
        bns_name=row.get("bns_name"),
        ranks=None if placed is None else placed[1],
        ranked=len(board.rows),
        row=None if placed is None else placed[0],
        period_ranks={} if placed is None else ranks.in_periods(placed[0].erc8004_agent_id, of_round),
        last_refusals=refused.refusals,
        as_of=board.as_of,
        links={
            "trades": f"/api/competition/trades?address={address}",
            "submit": "/api/competition/trades",
            "allowlist": "/api/competition/allowlist",
        },
    )
