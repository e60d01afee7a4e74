"""The routes for participating programs: one agent, the verdict on one transaction, and how to take part."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.chain_model import canonical_txid
from tocsin.competition.agent_view import BoardRanks, agent_view
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.published_board import ROUND_KEY, BoardReader, PublishedBoard
from tocsin.competition.request_jobs import VERDICT
from tocsin.competition.verdicts import known_verdict
from tocsin.errors import RequestRefused
from tocsin.rounds.round_reader import rounds_of_agent
from tocsin.shapes.agents import AgentView, TradeVerdict, VerdictAnswer
from tocsin.tasks.publish_board import board_at
from tocsin.web.agent_guide import agent_card, guide
from tocsin.web.competition_routes import aged
from tocsin.web.deps import WebDeps
from tocsin.web.request_limits import networks_of
from tocsin.web.respond import RETRY_S, json_response

AGENT_AGE_S = 5
VERDICT_AGE_S = 5
GUIDE_AGE_S = 300
ROUNDS_SHOWN = 12


class AgentRoutes:
    """Reads stored data. Only for a verdict on an unknown transaction does the object ask the chain."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._published = BoardReader(deps.kv)
        self._of_round = BoardReader(deps.kv, ROUND_KEY)
        self._ranks = BoardRanks()

    async def agent(self, request: Request) -> ASGIApp:
        view = await self.view(request.path_params["address"])
        return json_response(view.to_json(), headers=aged(AGENT_AGE_S))

    async def verdict(self, request: Request) -> ASGIApp:
        verdict = await self.verdict_on(request.path_params["txid"], networks_of(request.scope))
        return json_response(verdict.to_json(), headers=aged(VERDICT_AGE_S))

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
