"""The competition: what agents ask, what they send, and what visitors see."""

from math import ceil

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from tocsin.bindings import JSON
from tocsin.competition import board, trades
from tocsin.competition.codes import Code
from tocsin.competition.request_jobs import SUBMIT
from tocsin.errors import UsageError
from tocsin.prices.pricing import prices_of
from tocsin.prices.tracked_tokens import STATIC_TOKENS, TRADED_MAX, active_tokens, published_tokens
from tocsin.web.body import json_body
from tocsin.web.deps import WebDeps
from tocsin.web.respond import RETRY_S, json_response
from tocsin.web.response_cache import ResponseCache

BOARD_AGE_S = 5
STATUS_AGE_S = 10
LIST_AGE_S = 3600
NO_STORE = {"Cache-Control": "no-store"}


class CompetitionRoutes:
    """Reads come from the database; only `submit` reaches the object, which asks the chain."""

    def __init__(self, site: WebDeps) -> None:
        self._site = site
        self.board = ResponseCache(site.clock, BOARD_AGE_S, self._board)

    async def status(self, request: Request) -> ASGIApp:
        standing = await trades.trade_counts(self._site.db, request.query_params.get("address", ""))
        return json_response(standing, headers=_aged(STATUS_AGE_S))

    async def trades(self, request: Request) -> ASGIApp:
        query = request.query_params
        page = await trades.trades_of(
            self._site.db,
            query.get("address", ""),
            limit=_limit(query, trades.PAGE_DEFAULT),
            after=query.get("cursor"),
        )
        return json_response(page, headers=_aged(BOARD_AGE_S))

    async def submit(self, request: Request) -> ASGIApp:
        body = await json_body(request)
        txid = body.get("txid") if isinstance(body, dict) else None
        told = await self._site.scheduler().perform(SUBMIT, {"txid": txid if isinstance(txid, str) else None})
        self.board.forget()
        return _told(told, self._site.clock.now())

    async def allowlist(self, _request: Request) -> ASGIApp:
        return json_response(self._site.rules.allowlist.to_json(), headers=_aged(LIST_AGE_S))

    async def tracked_tokens(self, _request: Request) -> ASGIApp:
        published = await published_tokens(self._site.kv)
        tokens = STATIC_TOKENS if published is None else published
        told = {
            "tokens": list(tokens),
            "count": len(tokens),
            "source": "static-fallback" if published is None else "dynamic",
            "staticCore": list(STATIC_TOKENS),
            "maxTracked": len(STATIC_TOKENS) + TRADED_MAX,
        }
        return json_response(told, headers=_aged(STATUS_AGE_S))

    async def _board(self, query: QueryParams) -> dict[str, JSON]:
        site, now = self._site, self._site.clock.now()
        prices = await prices_of(site.kv, await active_tokens(site.db), now)
        page = await board.leaderboard(
            site.db,
            prices,
            sort=query.get("sort", "trades"),
            direction=query.get("dir", "desc"),
            limit=_limit(query, board.PAGE_DEFAULT),
            after=query.get("cursor"),
        )
        fetched = [price.fetched_at for price in prices.values() if price.fetched_at is not None]
        return {
            "rows": page["rows"],
            "asOf": now,
            "pricesAsOf": max(fetched, default=None),
            "next": page["next"],
        }


def _told(told: JSON, now: int) -> ASGIApp:
    """The object's word as an answer. A new swap is told as its row, as the reference's clients expect."""
    status: int = told["httpStatus"]
    if status == 200:
        return json_response(told["row"], headers=NO_STORE)
    headers = dict(NO_STORE)
    body = {name: told[name] for name in ("error", "code", "reason", "retryable")}
    if told["code"] == Code.PENDING:  # no error, so no such field
        accepted = told["obstacle"] is None
        note = body.pop("error") + ("" if accepted else f" This one would not: {told['obstacle']}.")
        body = {"accepted": accepted, "note": note, **body}
    if "row" in told:
        body["existing_row"] = told["row"]
    if told["retryable"]:
        wait_s = ceil((told["retryAt"] - now) / 1000) if "retryAt" in told else RETRY_S
        headers["Retry-After"] = str(max(1, wait_s))
    return json_response(body, status, headers)


def _limit(query: QueryParams, default: int) -> int:
    text = query.get("limit", str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UsageError(f"limit is a number such as {default}, not {text[:40]!r}.")
    return int(text)


def _aged(seconds: int) -> dict[str, str]:
    return {"Cache-Control": f"public, max-age={seconds}"}
