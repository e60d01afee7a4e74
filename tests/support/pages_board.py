"""The scripted leaderboard, page by page."""

from typing import Protocol

from starlette.datastructures import QueryParams

from support.pages_world import Json

PAGE_MAX = 200
HOUR_MS = 3_600_000
HOURS = {"24h": 24, "7d": 168, "30d": 720}


class HasBoard(Protocol):
    """The part of the pages' world that is about the board."""

    rows: list[Json]
    period_rows: dict[str, list[Json]]
    board_round: Json | None
    prices_as_of: int | None
    status: Json
    complete: Json


def board_body(query: QueryParams, world: HasBoard, health: Json, now: int) -> Json:
    """A page of the board of a period, as JSON of `Board`."""
    period = query.get("period", "all")
    rows = world.period_rows.get(period, world.rows)
    rows = sorted(rows, key=lambda row: (-row["tradeCount"], -row["latestTradeAt"]))
    start, limit = int(query.get("cursor", "0")), min(PAGE_MAX, int(query.get("limit", "50")))
    page = [{**row, "rank": start + index + 1} for index, row in enumerate(rows[start : start + limit])]
    since = now // HOUR_MS * HOUR_MS - HOURS[period] * HOUR_MS if period in HOURS else None
    round_ = world.board_round if period == "round" else None
    as_of = world.prices_as_of
    return {
        "rows": page,
        "asOf": as_of or now,
        "pricesAsOf": as_of,
        "next": str(start + limit) if start + limit < len(rows) else None,
        "sweptAt": world.status["tasks"]["sweep"]["lastSuccessAt"],
        "service": health,
        "complete": world.complete,
        "sweepComplete": True,
        "final": False,
        "firstSweep": None,
        "period": period,
        "since": round_["startsAt"] if round_ else since,
        "round": round_,
    }
