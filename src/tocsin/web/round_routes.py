"""The public routes of rounds: those with a result, and the current ones. Everything is read from the database."""

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from tocsin.competition.trades import check_address
from tocsin.errors import UsageError
from tocsin.rounds import round_reader
from tocsin.web.competition_routes import BOARD_AGE_S, STATUS_AGE_S, aged, leading_number, page_limit
from tocsin.web.deps import WebDeps
from tocsin.web.respond import json_response

ROUND_AGE_S = 60
COUNT_MAX = 1_000_000
FILE_TYPE = "application/x-ndjson"


class RoundRoutes:
    """The routes that the site published, and three of our own: what runs now, and the file of a round."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def listed(self, request: Request) -> ASGIApp:
        query = request.query_params
        limit = page_limit(query, round_reader.PAGE_DEFAULT, round_reader.PAGE_MAX)
        page = await round_reader.published_rounds(self._deps.db, limit, _count(query, "offset"))
        return json_response(page.to_json(), headers=aged(STATUS_AGE_S))

    async def current(self, _request: Request) -> ASGIApp:
        rounds = await round_reader.current_rounds(self._deps.db, self._deps.clock.now() // 1000)
        return json_response(rounds.to_json(), headers=aged(BOARD_AGE_S))

    async def one(self, request: Request) -> ASGIApp:
        detail = await round_reader.round_detail(self._deps.db, request.path_params["roundId"])
        return json_response(detail.to_json(), headers=aged(ROUND_AGE_S))

    async def placed(self, request: Request) -> ASGIApp:
        address = request.path_params["stxAddress"]
        check_address(address)
        placed = await round_reader.placed_agent(self._deps.db, request.path_params["roundId"], address)
        return json_response(placed.to_json(), headers=aged(ROUND_AGE_S))

    async def file(self, request: Request) -> ASGIApp:
        round_id, query = request.path_params["roundId"], request.query_params
        wanted = _count(query, "version") or None
        version = await round_reader.file_version(self._deps.db, round_id, wanted)
        headers = {
            **aged(ROUND_AGE_S),
            "Content-Disposition": f'attachment; filename="{round_id}-{version}.jsonl"',
        }
        if request.method == "HEAD":
            return Response(headers=headers, media_type=FILE_TYPE)
        text = round_reader.file_text(self._deps.db, round_id, version)
        return StreamingResponse(text, headers=headers, media_type=FILE_TYPE)


def _count(query: QueryParams, name: str) -> int:
    """The number in a parameter, 0 without it; at most what the database can take."""
    count = leading_number(query, name, 0)
    if count < 0:
        raise UsageError(f"{name} is a whole number such as 1, not {count}.")
    return min(count, COUNT_MAX)
