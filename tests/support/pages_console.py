"""The data of the console's views: runs, one run, refusals, the audit log, past prices, a demo's simulator."""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from support.pages_world import refused_with, shaped
from tocsin.prices.price import PastPrice, PriceHistory
from tocsin.scheduler.history import counted, day_of
from tocsin.scheduler.types import AuditList, DayList, DayTotals, RunDetail, RunLine, RunLines, RunList, RunRecord
from tocsin.swaps.rules import MEANINGS, Code
from tocsin.swaps.types import RecentRefusal, RefusalPage

Json = dict[str, Any]
RUNS_MAX = 2_000
MINUTE_MS = 60_000
SENDER = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR"


class ConsoleWorld(Protocol):
    """The part of the pages' world that the views show."""

    runs: list[Json]
    audit: list[Json]
    refused: list[Json]
    simulator: Json | None
    price_history: list[Json]


def sample_refusals(now: int) -> list[Json]:
    """Return refusals for three reasons, newest first."""
    codes = (Code.CONTRACT_NOT_ALLOWLISTED, Code.SENDER_NOT_REGISTERED, Code.TX_FAILED)
    return [
        RecentRefusal(
            txid=f"0x{number:064x}",
            code=str(codes[number % 3]),
            reason=f"<b>what was found</b> of number {number}",
            sentence=MEANINGS[codes[number % 3]].sentence,
            sender=SENDER,
            contract_id="SP1.a-pool",
            function_name="swap-x-for-y",
            burn_block_time=now // 1000 - number * 600,
            refused_at=now - number * 10 * MINUTE_MS,
        ).to_json()
        for number in range(1, 121)
    ]


def sample_history(now: int) -> list[Json]:
    """Return a day of prices with a gap and a time without any."""
    random, price, points = Random(5), 0.85, []
    for number in range(288, 0, -1):
        price *= 1 + random.uniform(-0.004, 0.0042)
        if not 100 < number < 130:
            points.append(PastPrice(now - number * 5 * MINUTE_MS, None if number == 60 else round(price, 6)))
    return [point.to_json() for point in points]


class ConsoleApi:
    """The routes. Each responds with the current data."""

    def __init__(self, world: Callable[[], ConsoleWorld]) -> None:
        self._world = world

    async def runs(self, request: Request) -> Response:
        query, limit = request.query_params, int(request.query_params.get("limit", "50"))
        if limit > RUNS_MAX:
            return refused_with(400, "bad_limit", f"limit is 1 to {RUNS_MAX}.")
        found = [run for run in self._world().runs if _fits(run, query)]
        more = found[limit - 1]["id"] if len(found) > limit else None
        return JSONResponse(shaped(RunList, {"name": "v1", "runs": found[:limit], "next": more}))

    async def run(self, request: Request) -> Response:
        number = request.path_params["number"]
        found = next((run for run in self._world().runs if str(run["id"]) == number), None)
        if found is None:
            return refused_with(404, "unknown_run", f"there is no run {number[:20]}")
        record = RunRecord.from_json(found)
        failed = RunLine(record.started_at + 80, "WARN", "sweep.unit_unanswered", "unit=<b>SP.one</b> reason=HTTP 503")
        done = RunLine(record.started_at + 90, "INFO", "prices.refreshed", "succeeded=13 failed=0")
        lines = RunLines([failed, done], 4)
        return JSONResponse(shaped(RunDetail, RunDetail("v1", record, None, lines).to_json()))

    async def days(self, _request: Request) -> Response:
        days: dict[str, DayTotals] = {}
        for run in map(RunRecord.from_json, self._world().runs):
            day = day_of(run.started_at)
            days[day] = counted(days.get(day, DayTotals(day)), run)
        return JSONResponse(shaped(DayList, DayList("v1", list(days.values())).to_json()))

    async def audit(self, _request: Request) -> Response:
        return JSONResponse(shaped(AuditList, {"name": "v1", "records": self._world().audit}))

    async def refusals(self, request: Request) -> Response:
        query = request.query_params
        start, limit = int(query.get("cursor", "0")), int(query.get("limit", "50"))
        found = [
            each
            for each in self._world().refused
            if query.get("code", each["code"]) == each["code"] and query.get("sender", each["sender"]) == each["sender"]
        ]
        more = str(start + limit) if start + limit < len(found) else None
        return JSONResponse(shaped(RefusalPage, {"refusals": found[start : start + limit], "next": more}))

    async def history(self, request: Request) -> Response:
        points, query = self._world().price_history, request.query_params
        body = {"token": query["token"], "period": query["period"], "asOf": points[-1]["at"] if points else 1}
        return JSONResponse(shaped(PriceHistory, {**body, "points": points}))

    async def control(self, request: Request) -> Response:
        simulator = self._world().simulator
        assert simulator is not None
        if request.method == "POST":
            command = request.path_params["command"]
            simulator.setdefault("commands", []).append(command)
            values = await request.json()
            if command not in {"calm", "fault", "limits"}:
                return JSONResponse({})
            if command == "calm":
                simulator["faults"], simulator["otherPlans"] = [], []
            elif command == "limits":
                simulator["otherPlans"] = [values["upstream"]]
            else:
                simulator["faults"].insert(0, {"kind": values["kind"], "upstream": values["upstream"]})
        return JSONResponse({**simulator})

    def routes(self) -> list[Route]:
        return [
            Route("/api/admin/scheduler/runs", self.runs),
            Route("/api/admin/scheduler/runs/{number}", self.run),
            Route("/api/admin/scheduler/days", self.days),
            Route("/api/admin/scheduler/audit", self.audit),
            Route("/api/admin/competition/refusals", self.refusals),
            Route("/api/admin/prices/history", self.history),
            Route("/simulator/_control", self.control),
            Route("/simulator/_control/{command}", self.control, methods=["POST"]),
        ]


def _fits(run: Json, query: Any) -> bool:
    return (
        all(query.get(name, run[name]) == run[name] for name in ("task", "outcome", "trigger"))
        and run["startedAt"] >= int(query.get("since", 0))
        and run["id"] < int(query.get("cursor", 10**9))
    )
