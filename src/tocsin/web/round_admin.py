"""`/api/admin/competition/finalize`: rounds for operators. Every action is in the audit log.

Emits `round.look_failed`.
"""

from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.errors import RequestRefused, TocsinError, UsageError
from tocsin.rounds.round_jobs import ROUND
from tocsin.rounds.round_reader import all_rounds
from tocsin.rounds.round_store import refused
from tocsin.scheduler.audited import audited
from tocsin.shapes.base import camel_case
from tocsin.shapes.operators import AuditEntry
from tocsin.shapes.round_views import RoundAction, RoundAnswer
from tocsin.web.admin import HEADERS, TARGET_MAX, checked_reason, require_operator, require_viewer
from tocsin.web.body import json_body
from tocsin.web.deps import WebDeps
from tocsin.web.request_limits import networks_of
from tocsin.web.respond import json_response

DRY_RUN = "dry-run"
TASK = "rounds"
LOOK_AT = ("add", "reopen", "price", "rule")  # they may make something due before the task looks again

_FIELDS = {camel_case(each.name): each for each in fields(RoundAction)}
_WORDS: dict[Any, str] = {str: "text", int: "a whole number", bool: "true or false"}


class RoundAdminRoutes:
    """A viewer's key may only read, an operator's may act."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def show(self, request: Request) -> ASGIApp:
        require_viewer(request, self._deps)
        rounds = await all_rounds(self._deps.db, self._deps.clock.now() // 1000)
        return json_response(rounds.to_json(), headers=HEADERS)

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
            return json_response((await work()).to_json(), headers=HEADERS)
        target = (action.round_id or "")[:TARGET_MAX] or None
        client = networks_of(request.scope)[0]
        entry = AuditEntry(key.name, "operator", client, f"round {action.action}", target, action.reason)
        done = await audited(deps.scheduler, deps.logger, entry, work, lambda answer: answer.detail)
        response = json_response(done.to_json(), headers=HEADERS)
        if action.action in LOOK_AT:
            response.background = BackgroundTask(self._look)
        return response

    async def _look(self) -> None:
        """Run the task now: it only knows the rounds of its last run."""
        try:
            await self._deps.scheduler().refresh(TASK)
        except TocsinError as error:
            self._deps.logger.warn("round.look_failed", error=str(error)[:300])


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
