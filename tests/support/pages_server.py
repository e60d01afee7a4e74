"""The pages on loopback, with an API whose data a test may change at any time.

Run it by hand to see the pages: `cd tests && ../.venv/bin/python -m support.pages_server 8788`.
"""

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast_testing.captured_log import CapturedLog
from support.pages_rounds import no_rounds, sample_rounds
from support.pages_world import (
    Json,
    prices_result,
    refused_with,
    sample_board,
    sample_history,
    sample_prices,
    sample_refusals,
    sample_runs,
    sample_status,
    shaped,
    tagged,
)
from support.patience import PATIENCE_S
from support.processes import held_port
from support.statuses import refresh_result, run_record
from tocsin.board.types import Board
from tocsin.local.server import HttpServer
from tocsin.prices.price import PriceHistory, PriceList
from tocsin.rounds.round import CurrentRounds, RoundList
from tocsin.scheduler.audit import EVENT_FIELDS
from tocsin.scheduler.health import HealthSnapshot, TaskFacts, health_of, task_health
from tocsin.scheduler.history import counted, day_of
from tocsin.scheduler.types import (
    AuditList,
    AuditRecord,
    Caller,
    Completeness,
    DayList,
    DayTotals,
    Outcome,
    Paused,
    Progress,
    Refreshed,
    Resumed,
    RunDetail,
    RunLine,
    RunLines,
    RunList,
    RunRecord,
    SchedulerEvent,
    SchedulerOverview,
    Status,
    TaskStatus,
)
from tocsin.shape import FreeForm
from tocsin.swaps.types import RefusalPage, TradePage
from tocsin.web.app import ErrorMiddleware
from tocsin.web.board_page import page_of
from tocsin.web.pages import page_routes
from tocsin.web.round_page import banner_lines

RUNS_MAX = 2_000
ENDED_FIELDS = ("trigger", "outcome", "durationMs", "error", "reason", "result")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class World:
    """What the API returns, as JSON of the service's shapes. A test changes it from its own thread."""

    key: str = "operator-key"
    role: Literal["operator", "viewer"] = "operator"  # of that key
    viewer_when_acting: bool = False  # the role is taken away just before the next action
    audit: list[Json] = field(default_factory=list)  # newest first
    rows: list[Json] = field(default_factory=list)
    prices: Json = field(default_factory=dict)
    prices_as_of: int | None = None
    trades: dict[str, list[Json]] = field(default_factory=dict)  # by sender
    status: Json = field(default_factory=dict)
    refusals: Json | None = field(default_factory=dict)
    refused: list[Json] = field(default_factory=list)  # newest first
    simulator: Json | None = None  # the faults of a demo
    price_history: list[Json] = field(default_factory=list)
    lists: Json | None = None
    complete: Json = field(default_factory=lambda: Completeness(7_912_345, now_ms(), 0, None).to_json())
    runs: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    faults: dict[str, tuple[int, str]] = field(default_factory=dict)  # path → status, sentence
    held: dict[str, threading.Event] = field(default_factory=dict)  # path → response waits until it is set
    requests: list[Json] = field(default_factory=list)
    store_error: str | None = None
    current_rounds: Json = field(default_factory=no_rounds)
    rounds: Json = field(default_factory=dict)
    period_rows: dict[str, list[Json]] = field(default_factory=dict)  # where a period has other rows
    board_round: Json | None = None
    refresh_outcome: tuple[Outcome, str | None] = ("ok", None)  # of the next refresh, with its reason

    @classmethod
    def sample(cls, agents: int = 24) -> "World":
        now = now_ms()
        rows, trades = sample_board(agents, now)
        world = cls(rows=rows, trades=trades, prices=sample_prices(now), prices_as_of=now - 120_000)
        world.status, world.runs = sample_status(now), sample_runs(now)
        world.lists = {"SP.one": now - 480_000, "SP.two": now - 60_000}
        world.refusals = {"contract_not_allowlisted": 143, "sender_not_registered": 31, "tx_failed": 12}
        world.refused, world.price_history = sample_refusals(now), sample_history(now)
        world.current_rounds, world.rounds = sample_rounds(now)
        return world

    def health(self) -> Json:
        """Return what the service would report for this status, if its tasks' flags are true."""
        status = Status.from_json(self.status)
        tasks = {name: _judged(name, task, status) for name, task in status.tasks.items()}
        for name, task in tasks.items():
            told = {"condition": task.condition, "sentence": task.sentence, "problem": task.problem}
            self.status["tasks"][name].update(told)
        judged = replace(status, tasks=tasks)
        return health_of(HealthSnapshot(0.1, self.store_error, judged), now_ms()).to_json()

    def hold(self, path: str) -> threading.Event:
        """Make responses to this path wait until the event is set."""
        self.held[path] = threading.Event()
        return self.held[path]

    def release(self) -> None:
        for gate in self.held.values():
            gate.set()

    def emit(self, event: str, **fields: Any) -> None:
        seq = self.events[-1]["seq"] + 1 if self.events else now_ms()
        self.events.append(SchedulerEvent(seq, now_ms(), event, fields).to_json())

    def asked(self, path: str) -> list[Json]:
        return [request for request in self.requests if request["path"] == path]


def _judged(name: str, task: TaskStatus, status: Status) -> TaskStatus:
    """Return the task with the condition that follows from its flags; other conditions stay as set by the test."""
    facts = TaskFacts(
        name,
        task.title or name,
        task.enabled,
        task.effective_cadence_ms,
        3 * task.effective_cadence_ms if task.overdue or task.failing else 1_000,
        None,
        3 if task.failing else 0,
        "limited" if task.condition == "limited" else "partial" if task.condition == "partial" else "ok",
        str(task.last_error) if task.last_error else None,
        status.paused_until,
    )
    health = task_health(facts, now_ms())
    return replace(task, condition=health.condition, sentence=health.sentence, problem=health.problem)


class PagesServer:
    """A server that can stop and start again at the same address."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.running = False
        self._port = 0
        self._held = contextlib.ExitStack()  # while it is stopped, nobody else gets its port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self, port: int = 0) -> None:
        self._port = port or self._port or self._held.enter_context(held_port())
        started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        started.result(PATIENCE_S)

    def stop(self) -> None:
        self.running = False
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self, started: "Future[None]") -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        http = HttpServer("127.0.0.1", self._port)
        self._port, self.running = http.port, True
        await http.start(ScriptedApi(self).app())
        started.set_result(None)
        await self._stop.wait()
        await http.stop()


@contextlib.contextmanager
def serving_pages(world: World) -> Iterator[PagesServer]:
    server = PagesServer(world)
    server.start()
    try:
        yield server
    finally:
        world.release()
        if server.running:
            server.stop()
        server._held.close()


class ScriptedApi:
    """The routes. Each responds with the current data, in the service's shapes."""

    def __init__(self, server: PagesServer) -> None:
        self._server = server

    @property
    def world(self) -> World:
        return self._server.world

    def app(self) -> Starlette:
        routes = [
            Route("/leaderboard", self.board_page),
            Route("/api/competition/leaderboard", self.leaderboard),
            Route("/api/competition/trades", self.trades),
            Route("/llms.txt", self.guide),
            Route("/api/competition/rounds/current", self.current_rounds),
            Route("/api/admin/competition/finalize", self.rounds),
            Route("/api/prices", self.prices),
            Route("/api/admin/scheduler", self.scheduler, methods=["GET"]),
            Route("/api/admin/scheduler", self.act, methods=["POST"]),
            Route("/api/admin/scheduler/runs", self.runs),
            Route("/api/admin/scheduler/runs/{number}", self.run),
            Route("/api/admin/scheduler/days", self.days),
            Route("/api/admin/scheduler/audit", self.audit),
            Route("/api/admin/competition/refusals", self.refusals),
            Route("/api/admin/prices/history", self.history),
            Route("/simulator/_control", self.control),
            Route("/simulator/_control/{command}", self.control, methods=["POST"]),
            Route("/api/admin/scheduler/events", self.events),
        ]
        around = [Middleware(ErrorMiddleware, logger=CapturedLog()), Middleware(Script, server=self._server)]
        return Starlette(routes=[*routes, *page_routes()], middleware=around)

    async def board_page(self, _request: Request) -> Response:
        """Return the page before the first board: the rows then come from the API."""
        banner = banner_lines(CurrentRounds.from_json(self.world.current_rounds))
        return HTMLResponse(page_of(None, banner, now_ms(), None))

    async def leaderboard(self, request: Request) -> Response:
        world = self.world
        return tagged(request, Board, board_body(request.query_params, world, world.health(), now_ms()))

    async def trades(self, request: Request) -> Response:
        trades = self.world.trades.get(request.query_params.get("address", ""), [])
        start, limit = int(request.query_params.get("cursor", "0")), int(request.query_params["limit"])
        more = str(start + limit) if start + limit < len(trades) else None
        return tagged(request, TradePage, {"trades": trades[start : start + limit], "next_cursor": more})

    async def prices(self, request: Request) -> Response:
        body = {"prices": self.world.prices, "missing": [], "supportedTokens": list(self.world.prices)}
        return tagged(request, PriceList, body)

    async def scheduler(self, _request: Request) -> Response:
        health = self.world.health()
        overview = {
            "name": "v1",
            "status": {**self.world.status, "now": now_ms()},
            "health": health,
            "refusals": self.world.refusals,
            "lists": self.world.lists,
            "complete": self.world.complete,
            "caller": Caller("alice", self.world.role).to_json(),
            "simulator": None if self.world.simulator is None else "/simulator",
        }
        return JSONResponse(shaped(SchedulerOverview, overview))

    async def act(self, request: Request) -> Response:
        query, status = request.query_params, self.world.status
        if self.world.viewer_when_acting:
            self.world.role = "viewer"
        if self.world.role == "viewer":
            return refused_with(403, "read_only_key", "The key alice is read-only.")
        record = AuditRecord(
            "alice", "operator", "192.0.2.7", query["action"], query.get("task"), query.get("reason") or None,
            id=f"operator-{len(self.world.audit) + 1}", at=now_ms(), outcome="done", ended_at=now_ms(),
        )  # fmt: skip
        self.world.audit.insert(0, record.to_json())
        self.world.emit("admin.acted", **{name: record.to_json()[name] for name in EVENT_FIELDS})
        if query["action"] == "pause":
            status["pausedUntil"] = int(query["until"])
            self.world.emit("scheduler.paused", until=status["pausedUntil"])
            return JSONResponse(Paused("v1", status["pausedUntil"]).to_json())
        if query["action"] == "resume":
            status["pausedUntil"] = None
            self.world.emit("scheduler.resumed")
            return JSONResponse(Resumed("v1", resumed=True).to_json())
        result = await self._refresh(query["task"])
        return JSONResponse(Refreshed("v1", query["task"], result).to_json())

    async def _refresh(self, task: str) -> FreeForm:
        """Do a run of three steps; the second waits for the event named after the task, if there is one."""
        started, number = now_ms(), 5000 + len(self.world.events)
        outcome, reason = self.world.refresh_outcome
        record = run_record(
            id=number,
            trigger="refresh",
            slot_at=None,
            started_at=started,
            ended_at=started + 900,
            duration_ms=900,
            outcome=outcome,
            reason=reason,
            result=prices_result(),
        )
        names = list(self.world.status["tasks"]) if task == "all" else [task]
        for name in names:
            shown = self.world.status["tasks"][name]
            self.world.emit("run.started", task=name, run=number, trigger="refresh", slotAt=None)
            for done in range(1, 4):
                shown["running"] = Progress(started, done, 3, number).to_json()
                self.world.emit("run.progressed", task=name, run=number, done=done, total=3)
                while done == 2 and name in self.world.held and not self.world.held[name].is_set():
                    await asyncio.sleep(0.01)
            shown["running"] = None
            ended = record.to_json()
            fields = {field: ended[field] for field in ENDED_FIELDS}
            self.world.emit("run.ended", **fields, task=name, run=number)
        result = refresh_result(record, paused_until=self.world.status["pausedUntil"]).to_json()
        return dict.fromkeys(names, result) if task == "all" else result

    async def guide(self, _request: Request) -> Response:
        return PlainTextResponse("# A guide\n\n1. Register the wallet.\n2. Swap <b>one</b> token.\n\n## Routes\n")

    async def current_rounds(self, _request: Request) -> Response:
        return JSONResponse(shaped(CurrentRounds, self.world.current_rounds))

    async def rounds(self, _request: Request) -> Response:
        return JSONResponse(shaped(RoundList, self.world.rounds))

    async def runs(self, request: Request) -> Response:
        query, limit = request.query_params, int(request.query_params.get("limit", "50"))
        if limit > RUNS_MAX:
            return refused_with(400, "bad_limit", f"limit is 1 to {RUNS_MAX}.")
        found = [run for run in self.world.runs if _fits(run, query)]
        more = found[limit - 1]["id"] if len(found) > limit else None
        return JSONResponse(shaped(RunList, {"name": "v1", "runs": found[:limit], "next": more}))

    async def run(self, request: Request) -> Response:
        number = request.path_params["number"]
        found = next((run for run in self.world.runs if str(run["id"]) == number), None)
        if found is None:
            return refused_with(404, "unknown_run", f"there is no run {number[:20]}")
        record = RunRecord.from_json(found)
        failed = RunLine(record.started_at + 80, "WARN", "sweep.unit_unanswered", "unit=<b>SP.one</b> reason=HTTP 503")
        done = RunLine(record.started_at + 90, "INFO", "prices.refreshed", "succeeded=13 failed=0")
        lines = RunLines([failed, done], 4)
        return JSONResponse(shaped(RunDetail, RunDetail("v1", record, None, lines).to_json()))

    async def days(self, _request: Request) -> Response:
        days: dict[str, DayTotals] = {}
        for run in map(RunRecord.from_json, self.world.runs):
            day = day_of(run.started_at)
            days[day] = counted(days.get(day, DayTotals(day)), run)
        return JSONResponse(shaped(DayList, DayList("v1", list(days.values())).to_json()))

    async def audit(self, _request: Request) -> Response:
        return JSONResponse(shaped(AuditList, {"name": "v1", "records": self.world.audit}))

    async def refusals(self, request: Request) -> Response:
        query = request.query_params
        start, limit = int(query.get("cursor", "0")), int(query.get("limit", "50"))
        found = [
            each
            for each in self.world.refused
            if query.get("code", each["code"]) == each["code"] and query.get("sender", each["sender"]) == each["sender"]
        ]
        more = str(start + limit) if start + limit < len(found) else None
        return JSONResponse(shaped(RefusalPage, {"refusals": found[start : start + limit], "next": more}))

    async def history(self, request: Request) -> Response:
        points, query = self.world.price_history, request.query_params
        body = {"token": query["token"], "period": query["period"], "asOf": points[-1]["at"] if points else 1}
        return JSONResponse(shaped(PriceHistory, {**body, "points": points}))

    async def control(self, request: Request) -> Response:
        simulator = self.world.simulator
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

    async def events(self, request: Request) -> Response:
        return StreamingResponse(
            self._stream(int(request.headers.get("last-event-id", "0"))),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    async def _stream(self, seen: int) -> AsyncIterator[str]:
        world = self.world
        yield "retry: 2000\n\n"
        while self._server.running and self.world is world:
            for event in [event for event in world.events if event["seq"] > seen]:
                seen = event["seq"]
                yield f"id: {seen}\nevent: {event['event']}\ndata: {json.dumps(event)}\n\n"
            await asyncio.sleep(0.01)


class Script:
    """Middleware: records the requests, and delays or refuses them as the test wants."""

    def __init__(self, app: ASGIApp, server: PagesServer) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, world = Request(scope), self._server.world
        path = request.url.path
        seen = {"path": path, "url": str(request.url), "method": request.method}
        world.requests.append({**seen, "headers": dict(request.headers)})
        while path in world.held and not world.held[path].is_set() and self._server.running:
            await asyncio.sleep(0.01)
        app = self._app
        if path in world.faults:
            status, sentence = world.faults[path]
            app = refused_with(status, "scripted", sentence)
        elif path.startswith("/api/admin/") and request.headers.get("x-admin-key") != world.key:
            app = refused_with(401, "unauthorised", "That is not the admin key.")
        await app(scope, receive, send)


PAGE_MAX = 200
HOUR_MS = 3_600_000
HOURS = {"24h": 24, "7d": 168, "30d": 720}


def board_body(query: QueryParams, world: World, health: Json, now: int) -> Json:
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


def _fits(run: Json, query: Any) -> bool:
    return (
        all(query.get(name, run[name]) == run[name] for name in ("task", "outcome", "trigger"))
        and run["startedAt"] >= int(query.get("since", 0))
        and run["id"] < int(query.get("cursor", 10**9))
    )


if __name__ == "__main__":
    by_hand = PagesServer(World.sample(int(sys.argv[2]) if len(sys.argv) > 2 else 240))
    by_hand.start(int(sys.argv[1]) if len(sys.argv) > 1 else 8788)
    print(f"{by_hand.url}/leaderboard {by_hand.url}/console key: {by_hand.world.key}")
    threading.Event().wait()
