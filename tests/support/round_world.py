"""A small competition with a round: a database, three agents, a price series, and a clock that a test sets.

`make_data` fills the data of a real service with rounds that end soon. It needs no upstream: they have all their data.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.types import Database
from holdfast_testing.captured_log import CapturedLog
from support.history_rows import ADD_AGENT, SET_CLAIM, PlainSwap, add_refusal, add_swaps, registered
from support.local_store import open_competition
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.actions import ROUND, round_jobs
from tocsin.rounds.round import RoundAnswer
from tocsin.rounds.steps import RoundWork
from tocsin.rounds.task import rounds_task
from tocsin.scheduler.task import ContextBindings, TaskContext, TaskResult, WorkContext
from tocsin.settings import Settings
from tocsin.swaps.position import set_value
from tocsin.swaps.rules import Rules, rules_of
from tocsin.swaps.values import value_swaps
from tocsin.upstream.limiter import request_session, task_session

START_S = 1_800_000_000
END_S = START_S + 7 * 86_400
GRACE_S = END_S + 3_600
ROUND_ID = "week-1-2027-01-15"
STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
AGENTS = (
    "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR",
    "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE",
    "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG",
)
LATER = "SP3FBR2AGK5H9QBDH3EEN6DF8EK8JY7RX8QJ5SVTE"  # registered, without a claim
STRANGER = "SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7"
OF_ROUND: dict[str, Any] = {
    "competition_start": START_S - 86_400,
    "min_liquidity_usd": 10_000,
    "min_day_volume_usd": 500,
    "feed_enabled": False,
}
SETTINGS = replace(Settings(), **OF_ROUND)
RULES = rules_of(SETTINGS)
LENGTH_S = 7_200  # of the rounds of a real service
ALONE = {
    "TOCSIN_TENERO_ENABLED": "no",
    "TOCSIN_FEED_ENABLED": "no",
    "TOCSIN_SWEEP_ENABLED": "no",
    "HIRO_API_URL": "http://127.0.0.1:9",
    "TENERO_API_URL": "http://127.0.0.1:9",
}

_CANDIDATE = "INSERT INTO candidates (txid, source, added_at, due_at, block_height) VALUES (?, 'cron', 0, 0, ?)"
_OVERRIDE = "INSERT INTO competition_round_price_overrides VALUES (?, ?, '0', 6, '', '', '')"
_READ_WALLETS = """
INSERT INTO marks (principal, rules, walked_at) SELECT stx_address, 'r', ? FROM agent_tiers WHERE tier = 'eligible'
ON CONFLICT (principal) DO UPDATE SET walked_at = excluded.walked_at"""
_TABLES = {
    "competition_rounds": "round_id",
    "competition_round_results": "rank",
    "competition_rewards": "category",
    "competition_round_flags": "erc8004_agent_id, kind",
    "competition_round_price_snapshots": "token_id",
    "competition_round_agents": "stx_address",
    "competition_round_swaps": "txid",
    "competition_round_refusals": "txid",
    "competition_round_files": "version, part",
    "competition_round_changes": "txid",
    "competition_round_discrepancies": "subject",
}


def txid(number: int) -> str:
    return f"0x{number % 2**256:064x}"


class SetClock:
    """A `Clock` that stands still until a test moves it."""

    def __init__(self, at_s: float = START_S) -> None:
        self.at_s = float(at_s)

    def now(self) -> int:
        return int(self.at_s * 1000)

    def monotonic(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds


@dataclass
class RoundWorld:
    """A competition with a round. `run` is one run of the task, `act` an operator's action."""

    db: Database
    clock: SetClock = field(default_factory=SetClock)
    log: CapturedLog = field(default_factory=CapturedLog)
    wrapped: Database | None = None  # what runs and actions use, if not `db`

    def _bindings(self) -> ContextBindings:
        return ContextBindings(self.clock, {}, self.wrapped or self.db)

    @property
    def work(self) -> RoundWork:
        return RoundWork(self.db, self.clock, self.log, RULES, feed_runs=False)

    async def run(self, at_s: float | None = None) -> TaskResult:
        if at_s is not None:
            self.clock.at_s = float(at_s)
        context = TaskContext(self._bindings(), task_session(self.log), slice_ms=240_000)
        return await rounds_task(SETTINGS, RULES).run(context)

    async def act(self, action: str, *, dry_run: bool = False, **fields: Any) -> RoundAnswer:
        context = WorkContext(self._bindings(), request_session(self.log))
        job = round_jobs(RULES, feed_runs=False)[ROUND]
        wanted = {"action": action, **fields}
        answer = await job(context, {"action": wanted, "by": "ann", "dry_run": dry_run})
        return RoundAnswer.from_json(answer)

    async def add_round(self, **fields: Any) -> RoundAnswer:
        wanted = {
            "roundId": ROUND_ID,
            "startsAt": START_S,
            "endsAt": END_S,
            "rewards": {"overall_pnl": 5_000, "volume": 3_000, "return": 2_000},
        }
        return await self.act("add", **{**wanted, **fields})

    async def swept(self, at_s: float, rules: Rules = RULES) -> None:
        """Record that a complete sweep of all contracts' and new wallets' lists began then, and value the swaps."""
        at_ms = int(at_s * 1000)
        await self.db.batch(
            [
                set_value(self.db, "competition_rules", rules.version, at_ms),
                set_value(self.db, "competition_swept_at", str(at_ms), at_ms),
                self.db.prepare(_READ_WALLETS).bind(at_ms),
            ]
        )
        await self.valued(at_ms, rules)

    async def valued(self, at_ms: int, rules: Rules = RULES) -> None:
        """Value the swaps, as every task does that publishes the board."""
        while await value_swaps(self.db, at_ms, rules.floors):
            pass

    async def finalized(self) -> TaskResult:
        """Let the round end with its result, at the end of its grace."""
        await self.swept(GRACE_S)
        result = await self.run(GRACE_S)
        assert await self.status() == "finalized"
        return result

    async def closed(self, *, captured: bool = False) -> None:
        """Close the round by hand at the end of its grace."""
        self.clock.at_s = float(GRACE_S)
        await self.act("close", roundId=ROUND_ID)
        if captured:
            await self.act("snapshot", roundId=ROUND_ID)

    async def swap(
        self, number: int, agent: int | str, given: tuple[str, int], gotten: tuple[str, int], at_s: int = START_S + 60
    ) -> None:
        """Add a swap of an agent, or of another wallet, in units of a millionth."""
        sender = AGENTS[agent] if isinstance(agent, int) else agent
        sides = (given[0], given[1] * 10**6, gotten[0], gotten[1] * 10**6)
        await add_swaps(self.db, [PlainSwap(number, sender, *sides, at_s, 1_000 + number)])

    async def candidate(self, number: int, block: int) -> None:
        """Add a transaction that waits to be verified; block 0: it is not known."""
        await self.execute(_CANDIDATE, txid(number), block)

    async def unswap(self, number: int) -> None:
        await self.execute("DELETE FROM swaps WHERE txid = ?", txid(number))

    async def claim(self, agent: int, status: str) -> None:
        """Make an agent eligible with `verified`, or ineligible with `failed`."""
        await self.execute(SET_CLAIM, f"bc1q{agent}", status)

    async def refuse(self, number: int, sender: str, reason: str = "no swap") -> None:
        await add_refusal(self.db, number, sender, reason=reason, at_s=START_S + 90)

    async def populate(self) -> None:
        """Add a wallet that may become eligible, with a swap; and refusals of it, of an agent and of a stranger."""
        await self.execute(ADD_AGENT, "bc1q3", LATER, 13, None)
        await self.swap(30, LATER, ("stx", 30), (STSTX, 33), at_s=START_S + 70)
        for number, sender in ((101, AGENTS[1]), (102, STRANGER), (103, LATER)):
            await self.refuse(number, sender)

    async def published(self) -> dict[str, list[dict[str, Any]]]:
        """Return every stored column of rounds: results, prizes, flags, file, digest, captured inputs, times."""
        return {
            table: await self.all(f"SELECT * FROM {table} ORDER BY round_id, {order}")
            for table, order in _TABLES.items()
        }

    async def price(self, token: str, price: str, at_s: int) -> None:
        await self.db.batch(append(self.db, [PricePoint(token, at_s * 1000, price, 6, "tenero", "20000", "700")]))

    async def impossible_price(self) -> None:
        """Set a price of 0, which no action accepts: the round cannot be scored."""
        await self.execute(_OVERRIDE, ROUND_ID, STSTX)

    async def prices_around(self, end_s: int, **prices: str) -> None:
        """Put these prices in force during the last hour."""
        for at_s in range(end_s - 3_600, end_s + 1, 600):
            for token, price in prices.items():
                await self.price(STSTX if token == "ststx" else token, price, at_s)

    async def all(self, sql: str, *values: str | int) -> list[dict[str, Any]]:
        return (await self.db.prepare(sql).bind(*values).all()).results

    async def column(self, sql: str, *values: str | int) -> list[Any]:
        """Return the first column of the rows."""
        return [next(iter(row.values())) for row in await self.all(sql, *values)]

    async def results(self, columns: str) -> list[tuple[Any, ...]]:
        """Return these columns of the results, in order of rank."""
        rows = await self.all(f"SELECT {columns} FROM competition_round_results ORDER BY rank")
        return [tuple(row.values()) for row in rows]

    async def round_ids(self) -> list[str]:
        return await self.column("SELECT round_id FROM competition_rounds ORDER BY starts_at, round_id")

    async def file(self) -> list[str]:
        """Return the parts of the files."""
        return await self.column("SELECT text FROM competition_round_files ORDER BY version, part")

    async def execute(self, sql: str, *values: str | int | None) -> None:
        await self.db.prepare(sql).bind(*values).run()

    async def status(self, round_id: str = ROUND_ID) -> str:
        (status,) = await self.column("SELECT status FROM competition_rounds WHERE round_id = ?", round_id)
        return str(status)

    async def everything(self) -> dict[str, list[dict[str, Any]]]:
        """Return what is published, except times and what was found later."""
        return {
            table: [{name: value for name, value in row.items() if not name.endswith("_at")} for row in rows]
            for table, rows in (await self.published()).items()
            if not table.endswith(("_changes", "_discrepancies"))
        }


async def seed(world: RoundWorld, start_s: int = START_S, end_s: int = END_S) -> None:
    """Add three eligible agents: the first gains 85 - 75 USD, the second loses, and the third breaks even."""
    for number, address in enumerate(AGENTS):
        agent = registered(world.db, f"bc1q{number}", address, 10 + number, display_name=f"Agent {number}")
        await world.db.batch(agent)
    await world.swap(1, 0, ("stx", 75), (STSTX, 85), start_s + 60)
    await world.swap(2, 1, ("stx", 200), (STSTX, 190), start_s + 60)
    await world.swap(3, 2, ("stx", 10), (STSTX, 10), start_s + 60)
    await world.prices_around(end_s, stx="1", ststx="1")


@asynccontextmanager
async def round_world(directory: Path) -> AsyncIterator[RoundWorld]:
    """Open a world with a running round, in a directory that is made if it does not exist."""
    directory.mkdir(exist_ok=True)  # noqa: ASYNC240 - a file system in memory
    async with open_competition(directory) as db:
        world = RoundWorld(db)
        await seed(world)
        await world.add_round()
        yield world


def make_data(data: Path, ends: Sequence[int]) -> None:
    """Add a round for each end, without a grace. The first is `ROUND_ID`, and a sweep begins exactly at its end."""
    data.mkdir(mode=0o700)
    asyncio.run(_fill(data, ends))


async def _fill(data: Path, ends: Sequence[int]) -> None:
    async with open_competition(data) as db:
        world = RoundWorld(db, SetClock(ends[0] - LENGTH_S))
        await seed(world, ends[-1] - LENGTH_S, ends[0])
        for number, ends_at in enumerate(ends):
            round_id = f"{ROUND_ID}-{number}" if number else ROUND_ID
            await world.add_round(roundId=round_id, startsAt=ends_at - LENGTH_S, endsAt=ends_at, graceS=0)
        await world.swept(ends[0], rules_of(Settings()))
