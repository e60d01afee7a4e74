"""The documentation of the operations on rounds, for `/openapi.json` and `/api/docs`."""

from typing import Any

from tocsin.rounds import round_reader
from tocsin.shapes.responses import ErrorBody
from tocsin.shapes.round_views import (
    CurrentRounds,
    LatestRound,
    PlacedAgent,
    RoundAction,
    RoundAnswer,
    RoundDetail,
    RoundList,
    RoundPage,
    RoundRow,
    RoundWinner,
)
from tocsin.shapes.rounds import RoundRules
from tocsin.stacks_address import ADDRESS_PATTERN
from tocsin.web.operations import OperationDoc, Parameter, ResponseDoc
from tocsin.web.round_admin import DRY_RUN
from tocsin.web.round_routes import FILE_TYPE

_ID = "week-1-2026-05-13"
_SENDER = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 9_999_999}
_ROUND_ID = Parameter(
    "roundId", {"type": "string"}, "a round, such as week-1-2026-05-13", "path", example=_ID
)
_NOT_FOUND = ResponseDoc("round_not_found: there is no such round, or it has no result yet", (ErrorBody,))
_RULES = RoundRules(
    _ID, 1778630400, 1779235200, 1779238800, rewards={"overall_pnl": 50000, "volume": 25000, "return": 25000}
)
_ROUND = RoundRow(
    round_id=_ID,
    starts_at=1778630400,
    ends_at=1779235200,
    grace_ends_at=1779238800,
    status="finalized",
    min_volume_usd=50.0,
    min_priced_trade_count=3,
    created_at="2026-05-12T09:00:00.000Z",
    finalized_at="2026-05-20T01:01:07.000Z",
    version=1,
    digest="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    closed_at="2026-05-20T01:00:00.004Z",
    captured_at="2026-05-20T01:01:06.000Z",
    allowlist_version="2026-05-13",
    complete_until_block=7_912_345,
    waiting_reason=None,
    waiting_since=None,
    note=None,
    rules=_RULES,
)

ROUNDS = OperationDoc(
    operation_id="listRounds",
    tag="competition",
    summary="Rounds with a result, newest first.",
    parameters=(
        Parameter(
            "limit",
            {"type": "number"},
            f"{round_reader.PAGE_DEFAULT} by default; the nearest whole number from 1 to {round_reader.PAGE_MAX}",
        ),
        Parameter("offset", _NUMBER, "how many to skip; 0 by default"),
    ),
    responses={200: ResponseDoc("a page", (RoundPage,))},
)
CURRENT = OperationDoc(
    operation_id="getCurrentRounds",
    tag="competition",
    summary="The current round, the next one, rounds that wait for their result, and the newest result.",
    responses={
        200: ResponseDoc(
            "times are unix seconds; `waiting_reason` tells why a round that is over has no result yet",
            (CurrentRounds,),
            CurrentRounds(
                1779240000,
                None,
                None,
                [],
                LatestRound(_ROUND, [RoundWinner("overall_pnl", _SENDER, 12, "Sly Fox", 50000)]),
            ),
        )
    },
)
ROUND = OperationDoc(
    operation_id="getRound",
    tag="competition",
    summary="A round with its results, prizes, prices of the end, flags and discrepancies.",
    parameters=(_ROUND_ID,),
    responses={200: ResponseDoc("the round", (RoundDetail,)), 404: _NOT_FOUND},
)
PLACED = OperationDoc(
    operation_id="getRoundResult",
    tag="competition",
    summary="An agent's result in a round, by the address of any of its wallets.",
    parameters=(
        _ROUND_ID,
        Parameter(
            "stxAddress",
            {"type": "string", "pattern": ADDRESS_PATTERN},
            "a Stacks mainnet address",
            "path",
            example=_SENDER,
        ),
    ),
    responses={
        200: ResponseDoc("the result", (PlacedAgent,)),
        404: ResponseDoc(
            "round_not_found: there is no such round, or it has no result yet."
            " agent_not_placed: the agent did not trade in it",
            (ErrorBody,),
        ),
    },
)
FILE = OperationDoc(
    operation_id="getRoundFile",
    tag="competition",
    summary="The inputs of a result, and the result: `tocsin recount` computes it again.",
    parameters=(_ROUND_ID, Parameter("version", _NUMBER, "an earlier version; the newest by default")),
    responses={
        200: ResponseDoc("JSON lines; the last one has the digest", media_type=FILE_TYPE),
        404: _NOT_FOUND,
    },
)
ALL = OperationDoc(
    operation_id="listAllRounds",
    tag="scheduler",
    summary="Rounds of every status, newest first, and the rule that adds them.",
    key="X-Admin-Key",
    responses={200: ResponseDoc("the rounds", (RoundList,))},
)
ACT = OperationDoc(
    operation_id="controlRounds",
    tag="scheduler",
    summary="Add, close, capture (snapshot), finalize, void, reopen or pay a round; set prices and decide on flags.",
    description=(
        "The scheduler closes, captures and finalizes rounds itself. Do it by hand only when a round waits."
        " The audit log records each action."
    ),
    key="X-Admin-Key",
    parameters=(
        Parameter(DRY_RUN, {"enum": ["true", "false"]}, "true: compute and respond, but write nothing"),
    ),
    body=RoundAction,
    body_example={"roundId": _ID, "action": "close"},
    responses={
        200: ResponseDoc(
            "what was done",
            (RoundAnswer,),
            RoundAnswer(ok=True, action="close", dry_run=False, detail="closed"),
        ),
        403: ResponseDoc("read_only_key: a viewer's key may not act", (ErrorBody,)),
        404: ResponseDoc("round_not_found: there is no such round", (ErrorBody,)),
        409: ResponseDoc(
            "wrong_status: the round has another status. grace_period_active: it cannot be closed yet."
            " data_incomplete: not everything is recorded. wrong_decimals: the token's prices have other decimals."
            " round_exists, already_paid, no_open_reward",
            (ErrorBody,),
        ),
        503: ResponseDoc(
            "empty_price_cache: prices of the end are unknown; or the store is unavailable", (ErrorBody,)
        ),
    },
)
