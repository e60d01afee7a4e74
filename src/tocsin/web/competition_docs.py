"""The documentation of the competition's operations, for `/openapi.json` and `/api/docs`."""

from dataclasses import replace

from tocsin.competition import board, page_token, trades
from tocsin.competition.codes import MEANINGS, Code
from tocsin.shapes.competition import (
    AllowListView,
    Board,
    BoardRow,
    PendingTrade,
    PushCounts,
    RefusedTrade,
    TrackedTokens,
    Trade,
    TradePage,
    TradeSubmission,
)
from tocsin.shapes.completeness import Completeness
from tocsin.shapes.history import AgentCurve, Curves, HistoryPoint, HistoryView
from tocsin.shapes.responses import ErrorBody
from tocsin.shapes.round_views import AgentStatus
from tocsin.shapes.scheduler import Health
from tocsin.stacks_address import ADDRESS_PATTERN
from tocsin.web.history_routes import PERIOD_DEFAULT, PERIODS
from tocsin.web.operations import OperationDoc, Parameter, ResponseDoc

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
_ADDRESS = Parameter(
    "address",
    {"type": "string", "pattern": ADDRESS_PATTERN},
    "a Stacks mainnet address",
    required=True,
    example=EXAMPLE_SENDER,
)
_CURSOR = Parameter(
    "cursor", {"type": "string", "pattern": page_token.PATTERN}, "the cursor from the previous page"
)


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
    parameters=(
        _ADDRESS,
        Parameter("period", {"enum": list(PERIODS)}, f"{PERIOD_DEFAULT} by default"),
    ),
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
        replace(_ADDRESS, required=False, description="only swaps of this agent"),
        _limit(trades.PAGE_DEFAULT, trades.PAGE_MAX),
        _CURSOR,
    ),
    responses={
        200: ResponseDoc(
            "a page; amounts are exact, in the token's smallest unit", (TradePage,), TradePage([_TRADE], None)
        )
    },
)
SUBMIT = OperationDoc(
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
    parameters=(_ADDRESS,),
    responses={
        200: ResponseDoc(
            "the counts; times are seconds, as on chain; `latestRoundResult` if the agent has one",
            (AgentStatus,),
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
    responses={
        200: ResponseDoc("the tokens; `source` is static-fallback until the first refresh", (TrackedTokens,))
    },
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
