"""The routes of rounds: results and current rounds for everybody, and actions on rounds for operators.

What is shown comes from the database. Every action is in the audit log.

Emits `round.look_failed`.
"""

from dataclasses import MISSING, fields, replace
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from starlette.background import BackgroundTask
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from holdfast.errors import HoldfastError, UsageError
from holdfast.types import JSON
from tocsin.errors import RequestRefused
from tocsin.rounds import store
from tocsin.rounds.actions import ROUND
from tocsin.rounds.round import (
    CurrentRounds,
    LatestRound,
    PlacedAgent,
    RoundAction,
    RoundAnswer,
    RoundDetail,
    RoundList,
    RoundPage,
    RoundRow,
    RoundRules,
    RoundWinner,
)
from tocsin.rounds.store import all_rounds, refused
from tocsin.scheduler.audit import audited
from tocsin.scheduler.types import AuditEntry
from tocsin.shape import camel_case
from tocsin.swaps.trades import check_address
from tocsin.web.admin import TARGET_MAX, checked_reason, require_operator, require_viewer
from tocsin.web.competition import ADDRESS, BOARD_AGE_S, EXAMPLE_SENDER, STATUS_AGE_S, aged, leading_number, page_limit
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.response import PRIVATE, ErrorBody, json_response
from tocsin.web.route import OperationDoc, Parameter, ResponseDoc, json_body

ROUND_AGE_S = 60
COUNT_MAX = 1_000_000
FILE_TYPE = "application/x-ndjson"
DRY_RUN = "dry-run"
TASK = "rounds"
LOOK_AT = ("add", "reopen", "price", "rule")  # they may make something due before the task looks again
_FIELDS = {camel_case(each.name): each for each in fields(RoundAction)}
_WORDS: dict[Any, str] = {str: "text", int: "a whole number", bool: "true or false"}


class RoundRoutes:
    """The routes that the site published, and three of our own: what runs now, and the file of a round."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def listed(self, request: Request) -> ASGIApp:
        query = request.query_params
        limit = page_limit(query, store.PAGE_DEFAULT, store.PAGE_MAX)
        page = await store.published_rounds(self._deps.db, limit, _count(query, "offset"))
        return json_response(page.to_json(), headers=aged(STATUS_AGE_S))

    async def current(self, _request: Request) -> ASGIApp:
        rounds = await store.current_rounds(self._deps.db, self._deps.clock.now() // 1000)
        return json_response(rounds.to_json(), headers=aged(BOARD_AGE_S))

    async def one(self, request: Request) -> ASGIApp:
        detail = await store.round_detail(self._deps.db, request.path_params["roundId"])
        return json_response(detail.to_json(), headers=aged(ROUND_AGE_S))

    async def placed(self, request: Request) -> ASGIApp:
        address = request.path_params["stxAddress"]
        check_address(address)
        placed = await store.placed_agent(self._deps.db, request.path_params["roundId"], address)
        return json_response(placed.to_json(), headers=aged(ROUND_AGE_S))

    async def file(self, request: Request) -> ASGIApp:
        round_id, query = request.path_params["roundId"], request.query_params
        wanted = _count(query, "version") or None
        version = await store.file_version(self._deps.db, round_id, wanted)
        headers = {**aged(ROUND_AGE_S), "Content-Disposition": f'attachment; filename="{round_id}-{version}.jsonl"'}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=FILE_TYPE)
        text = store.file_text(self._deps.db, round_id, version)
        return StreamingResponse(text, headers=headers, media_type=FILE_TYPE)


def _count(query: QueryParams, name: str) -> int:
    """The number in a parameter, 0 without it; at most what the database can take."""
    count = leading_number(query, name, 0)
    if count < 0:
        raise UsageError(f"{name} is a whole number such as 1, not {count}.")
    return min(count, COUNT_MAX)


class RoundAdminRoutes:
    """A viewer's key may only read, an operator's may act."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def show(self, request: Request) -> ASGIApp:
        require_viewer(request, self._deps)
        rounds = await all_rounds(self._deps.db, self._deps.clock.now() // 1000)
        return json_response(rounds.to_json(), headers=PRIVATE)

    async def act(self, request: Request) -> ASGIApp:
        deps, key = self._deps, require_operator(request, self._deps)
        action = _action(await json_body(request))
        dry_run = _truth(request.query_params.get(DRY_RUN, "false"))
        argument: JSON = {"action": action.to_json(), "by": key.name, "dry_run": dry_run}

        async def work() -> RoundAnswer:
            answer = RoundAnswer.from_json(await deps.scheduler().run_job(ROUND, argument))
            if not answer.ok:
                raise refused(answer.http_status, answer.code or "refused", answer.detail or "")
            return answer

        if dry_run:
            return json_response((await work()).to_json(), headers=PRIVATE)
        target = (action.round_id or "")[:TARGET_MAX] or None
        client = networks_of(request.scope)[0]
        entry = AuditEntry(key.name, "operator", client, f"round {action.action}", target, action.reason)
        done = await audited(deps.scheduler, deps.logger, entry, work, lambda answer: answer.detail)
        response = json_response(done.to_json(), headers=PRIVATE)
        if action.action in LOOK_AT:
            response.background = BackgroundTask(self._look)
        return response

    async def _look(self) -> None:
        """Run the task now: it only knows the rounds of its last run."""
        try:
            await self._deps.scheduler().refresh(TASK)
        except HoldfastError as error:
            self._deps.logger.warning("round.look_failed", error=str(error)[:300])


def _truth(text: str) -> bool:
    if text not in {"true", "false", "1", "0"}:
        raise RequestRefused(400, "bad_dry_run", "dry-run is true or false.")
    return text in {"true", "1"}


def _action(body: JSON) -> RoundAction:
    """The action in the body. Refuses a wrong field by its name."""
    if not isinstance(body, dict):
        raise UsageError('The body is an object such as {"action": "close", "roundId": "week-1-2026-05-13"}.')
    for name, value in body.items():
        if name not in _FIELDS:
            raise UsageError(f"There is no field {name[:40]!r}. The fields are: {', '.join(_FIELDS)}.")
        _check(name, value, _FIELDS[name].type)
    if any(each.default is MISSING and name not in body for name, each in _FIELDS.items()):
        raise UsageError("The field action is missing: give the action to perform.")
    action = RoundAction.from_json(body)
    reason = checked_reason(action.reason or "")
    return RoundAction.from_json({**body, "reason": reason})


def _check(name: str, value: JSON, hint: object) -> None:
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if not any(_fits(value, option) for option in options):
        named = next(option for option in options if option is not NoneType)
        if get_origin(named) is Literal:
            raise UsageError(f"{name} is one of {', '.join(get_args(named))}.")
        container = {list: "a list of texts", dict: "whole numbers by name"}.get(get_origin(named), "")
        raise UsageError(f"{name} is {_WORDS.get(named, container)}.")


def _fits(value: JSON, hint: object) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin is list:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(type(each) is int for each in value.values())
    return type(value) is hint


_ID = "week-1-2026-05-13"
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 9_999_999}
_ROUND_ID = Parameter("roundId", {"type": "string"}, "a round, such as week-1-2026-05-13", "path", example=_ID)
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
            f"{store.PAGE_DEFAULT} by default; the nearest whole number from 1 to {store.PAGE_MAX}",
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
                LatestRound(_ROUND, [RoundWinner("overall_pnl", EXAMPLE_SENDER, 12, "Sly Fox", 50000)]),
            ),
        )
    },
)
ROUND_DOC = OperationDoc(
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
    parameters=(_ROUND_ID, replace(ADDRESS, name="stxAddress", place="path")),
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
    responses={200: ResponseDoc("JSON lines; the last one has the digest", media_type=FILE_TYPE), 404: _NOT_FOUND},
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
    parameters=(Parameter(DRY_RUN, {"enum": ["true", "false"]}, "true: compute and respond, but write nothing"),),
    body=RoundAction,
    body_example={"roundId": _ID, "action": "close"},
    responses={
        200: ResponseDoc(
            "what was done", (RoundAnswer,), RoundAnswer(ok=True, action="close", dry_run=False, detail="closed")
        ),
        403: ResponseDoc("read_only_key: a viewer's key may not act", (ErrorBody,)),
        404: ResponseDoc("round_not_found: there is no such round", (ErrorBody,)),
        409: ResponseDoc(
            "wrong_status: the round has another status. grace_period_active: it cannot be closed yet."
            " data_incomplete: not everything is recorded. wrong_decimals: the token's prices have other decimals."
            " round_exists, already_paid, no_open_reward",
            (ErrorBody,),
        ),
        503: ResponseDoc("empty_price_cache: prices of the end are unknown; or the store is unavailable", (ErrorBody,)),
    },
)
