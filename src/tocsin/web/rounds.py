"""The routes of rounds: results and current rounds for everybody, and actions on rounds for operators.

What is shown comes from the database. Every action is in the audit log.

Emits `round.refresh_failed`.
"""

from dataclasses import fields, replace
from typing import Annotated, TypeAlias

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from holdfast.errors import HoldfastError, UsageError
from holdfast.types import JSON
from tocsin.errors import MalformedShape, RequestRefused
from tocsin.rounds import store
from tocsin.rounds.actions import ROUND
from tocsin.rounds.round import CurrentRounds, PlacedAgent, RoundAction, RoundAnswer, RoundDetail, RoundList, RoundPage
from tocsin.rounds.store import all_rounds, refused
from tocsin.scheduler.audit import audited
from tocsin.scheduler.types import AuditEntry
from tocsin.text import camel_case
from tocsin.web.admin import TARGET_MAX, checked_reason
from tocsin.web.competition import BOARD_AGE_S, STATUS_AGE_S
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.parameters import ADDRESS, Parameter, count, nearest, text
from tocsin.web.response import PRIVATE, aged, json_bytes, json_response
from tocsin.web.route import get, json_body, key_of, post

ROUND_AGE_S = 60
FILE_TYPE = "application/x-ndjson"
TASK = "rounds"
REFRESHED_AFTER = ("add", "reopen", "price", "rule")  # they may make something due before the next run of the task
_FIELDS = [camel_case(each.name) for each in fields(RoundAction)]
_TYPES = "/openapi.json has the type of each field of RoundAction."


_ID = "week-1-2026-05-13"
RoundId: TypeAlias = Annotated[str, replace(text("a round"), place="path", example=_ID)]


def _truth(_name: str, sent: str) -> bool:
    if sent not in {"true", "false", "1", "0"}:
        raise RequestRefused(400, "bad_dry_run", "dry-run is true or false.")
    return sent in {"true", "1"}


_DRY_RUN = Parameter(
    "true: compute and respond, but write nothing", {"enum": ["true", "false"]}, _truth, "dry-run", strict=True
)

_NO_ROUND = "round_not_found: there is no such round"
_NO_RESULT = f"{_NO_ROUND}, or it has no result yet"
_PATH = "/api/competition/rounds"
_ADMIN_PATH = "/api/admin/competition/finalize"


class RoundRoutes:
    """The routes that the site published, and of our own: what runs now, the file of a round, and those with a key."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    @get(_PATH, "listRounds", "a page", max_age_s=STATUS_AGE_S)
    async def listed(
        self,
        _request: Request,
        limit: Annotated[int, nearest(store.PAGE_DEFAULT, store.PAGE_MAX)] = store.PAGE_DEFAULT,
        offset: Annotated[int, count("how many to skip; 0 by default")] = 0,
    ) -> RoundPage:
        """Rounds with a result, newest first."""
        return await store.published_rounds(self._deps.db, limit, offset)

    @get(
        f"{_PATH}/current",
        "getCurrentRounds",
        "times are unix seconds; `waiting_reason` tells why a round that is over has no result yet",
        max_age_s=BOARD_AGE_S,
    )
    async def current(self, _request: Request) -> CurrentRounds:
        """The current round, the next one, rounds that wait for their result, and the newest result."""
        return await store.current_rounds(self._deps.db, self._deps.clock.now() // 1000)

    @get(f"{_PATH}/{{roundId}}", "getRound", "the round", RoundDetail, errors={404: _NO_ROUND})
    async def one(self, _request: Request, round_id: RoundId) -> ASGIApp:
        """A round with its results, prizes, prices of the end, flags and discrepancies.

        The lists are empty while it runs and until it has a result: `status` and `waiting_reason` tell how far it is.
        """
        detail = await store.round_detail(self._deps.db, round_id)
        return json_response(detail.to_json(), headers=aged(ROUND_AGE_S if detail.results else BOARD_AGE_S))

    @get(
        f"{_PATH}/{{roundId}}/results/{{stxAddress}}",
        "getRoundResult",
        "the result",
        max_age_s=ROUND_AGE_S,
        errors={404: f"{_NO_RESULT}. agent_not_placed: the agent did not trade in it"},
    )
    async def placed(
        self, _request: Request, round_id: RoundId, stx_address: Annotated[str, ADDRESS.in_path()]
    ) -> PlacedAgent:
        """An agent's result in a round, by the address of any of its wallets."""
        return await store.placed_agent(self._deps.db, round_id, stx_address)

    @get(
        f"{_PATH}/{{roundId}}/file",
        "getRoundFile",
        "JSON lines; the last one has the digest",
        media_type=FILE_TYPE,
        errors={404: _NO_RESULT},
    )
    async def file(
        self,
        request: Request,
        round_id: RoundId,
        version: Annotated[int, count("an earlier version; the newest by default")] = 0,
    ) -> ASGIApp:
        """The inputs of a result, and the result: `tocsin recount` computes it again."""
        version = await store.file_version(self._deps.db, round_id, version or None)
        headers = {**aged(ROUND_AGE_S), "Content-Disposition": f'attachment; filename="{round_id}-{version}.jsonl"'}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=FILE_TYPE)
        lines = store.file_text(self._deps.db, round_id, version)
        return StreamingResponse(lines, headers=headers, media_type=FILE_TYPE)

    @get(_ADMIN_PATH, "listAllRounds", "the rounds", access="viewer")
    async def show(self, _request: Request) -> RoundList:
        """Rounds of every status, newest first, and the rule that adds them."""
        return await all_rounds(self._deps.db, self._deps.clock.now() // 1000)

    @post(
        _ADMIN_PATH,
        "controlRounds",
        "what was done",
        RoundAnswer,
        example=RoundAnswer(True, "close", False, detail="closed"),
        errors={
            404: "round_not_found: there is no such round",
            409: "wrong_status: the round has another status. grace_period_active: it cannot be closed yet."
            " data_incomplete: not everything is recorded. wrong_decimals: the token's prices have other decimals."
            " round_exists, already_paid, no_open_reward",
            503: "empty_price_cache: prices of the end are unknown; or the store is unavailable",
        },
        access="operator",
        body=RoundAction,
        body_example={"roundId": _ID, "action": "close"},
    )
    async def act(self, request: Request, dry_run: Annotated[bool, _DRY_RUN] = False) -> ASGIApp:
        """Add, close, capture (snapshot), finalize, void, reopen or pay a round; set prices and decide on flags.

        The scheduler closes, captures and finalizes rounds itself. Do it by hand only when a round waits. The audit log
        records each action.
        """
        deps, key = self._deps, key_of(request)
        action = _action(await json_body(request))
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
        if action.action in REFRESHED_AFTER:
            response.background = BackgroundTask(self._refresh)
        return response

    async def _refresh(self) -> None:
        """Run the task now: it only knows the rounds of its last run."""
        try:
            await self._deps.scheduler().refresh(TASK)
        except HoldfastError as error:
            self._deps.logger.warning("round.refresh_failed", error=str(error)[:300])


def _action(body: JSON) -> RoundAction:
    """The action in the body. Refuses a wrong field by its name."""
    if not isinstance(body, dict):
        raise UsageError('The body is an object such as {"action": "close", "roundId": "week-1-2026-05-13"}.')
    foreign = next((name for name in body if name not in _FIELDS), None)
    if foreign is not None:
        raise UsageError(f"There is no field {foreign[:40]!r}. The fields are: {', '.join(_FIELDS)}.")
    try:
        action = RoundAction.from_json(body)
    except MalformedShape as error:
        raise UsageError(f"{error}. {_TYPES}") from None
    read = action.to_json()
    changed = next((name for name, value in body.items() if json_bytes(value) != json_bytes(read[name])), None)
    if changed is not None:  # a text was read as a number, or the like
        raise UsageError(f"{changed} cannot be {body[changed]!r:.60}. {_TYPES}")
    return replace(action, reason=checked_reason(action.reason or ""))
