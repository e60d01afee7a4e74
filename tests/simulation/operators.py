"""Operators at a terminal: they import agents, have transactions explained, and act on rounds, mostly at bad times."""

import asyncio
import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from holdfast_testing.captured_log import CapturedLog
from simulation.answers import with_odd_part
from simulation.plan import Event
from simulation.process import MIGRATIONS, SimulatedProcess
from simulation.users import OPERATOR, Crowds
from stacks_simulator.addresses import address_of
from stacks_simulator.chain_records import ChainTransaction, SimulatedCall
from stacks_simulator.wallets import Wallet
from tocsin.commands.rows import ImportReport, TableCounts, import_file, import_source, opened, write_d1_sql
from tocsin.errors import FileRefused
from tocsin.rounds.round import CATEGORIES
from tocsin.swaps.agents import TABLES
from tocsin.swaps.explain import explain
from tocsin.swaps.rules import SQL as RULES_SQL
from tocsin.swaps.rules import Tier, rules_of
from tocsin.swaps.types import TradeVerdict
from tocsin.swaps.verify import moves_if_needed
from tocsin.upstream.answer import NoAnswer, value_or_raise
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.limiter import BudgetLimiter, CallSession, request_session, restored_budget
from tocsin.upstream.registry import upstreams

ROUNDS_PATH = "/api/admin/competition/finalize"
HEADERS = {**OPERATOR, "content-type": "application/json"}
REWARDS = {"overall_pnl": 50_000, "volume": 25_000, "return": 10_000}
CARE_S = 1_800.0
TXID = "0x" + "ab" * 32
REFUSED = {400, 404, 409}
NO_PRICES = "empty_price_cache"
_FITS = {
    "close": ("open",),
    "snapshot": ("closed",),
    "finalize": ("closed", "finalizing"),
    "void": ("open", "closed", "finalized"),
    "reopen": ("finalized",),
    "price": ("open", "closed"),
    "flag": ("open", "closed"),
    "pay": ("finalized", "partially_paid"),
}
Form: TypeAlias = Literal["lines", "results"]
# Values that a file may hold and that a reader may stumble over.
NAMES = (None, "Ann", "it's", "a;b", "BEGIN TRANSACTION;", "two\nlines", "ünïcode", 'a "name"', "back\\slash", "-- x")
MISTAKES = ("'", '"', "\\", "(", ")", ",", ";", "\n", "/*", "--", "[", "x'0", "\0", "é", "9" * 30, "NULL", "char(")


class RoundOperators(Crowds):
    """Add, void, reopen, price, flag, pay, and every step by hand."""

    def _round_rule(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        """Set a rule that started a part of its period ago, so that its first round ends soon."""
        values = event.values
        starts_at = process.clock.now() // 1000 - int(values["period_s"] * values["begun"])
        self._act(
            process,
            {
                "action": "rule",
                "firstStartsAt": starts_at,
                "periodS": values["period_s"],
                "graceS": values["grace_s"],
                "prefix": values["prefix"],
                "rewards": REWARDS,
            },
        )

    def _round_add(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        values, now = event.values, process.clock.now() // 1000
        starts_at = now + values["starts_in_s"]
        self._act(
            process,
            {
                "action": "add",
                "roundId": f"single-{now}",
                "startsAt": starts_at,
                "endsAt": starts_at + values["length_s"],
                "graceS": values["grace_s"],
                "rewards": REWARDS,
            },
        )

    def _round_act(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        """Do something with one of the rounds, whatever its status."""
        rounds = self._rounds()
        if not rounds:
            return
        wanted = event.values["action"]
        fitting = [each for each in rounds if each["status"] in _FITS.get(wanted, ())]
        chosen = rng.choice(fitting if fitting and rng.random() < 0.8 else rounds)
        action: dict[str, Any] = {"action": wanted, "roundId": chosen["round_id"]}
        if wanted in {"void", "reopen", "price", "flag"}:
            action["reason"] = "it was drawn"
        if wanted == "price":
            action |= {"tokenId": "stx", "priceUsd": rng.choice(("0.85", "0.6")), "decimals": 6}
        elif wanted == "flag":
            decision = rng.choice(("clear", "exclude"))
            action |= {"agentId": rng.randrange(1, 12), "decision": decision}
        elif wanted == "pay":
            action |= {"category": rng.choice(CATEGORIES), "payoutTxid": TXID}
        elif wanted == "snapshot" and rng.random() < 0.3:
            action |= {"force": True, "reason": "it was drawn"}
        times = 2 if rng.random() < 0.3 else 1
        for _ in range(times):
            self._act(process, action, dry_run=event.values["dry_run"])

    def _round_care(self, _event: Event, process: SimulatedProcess, _rng: Random) -> None:
        self.spawn(self._price_waiting(process))

    async def _price_waiting(self, process: SimulatedProcess) -> None:
        """Set a price where the series has none."""
        for each in self._rounds():
            if (each["waiting_reason"] or "").startswith("the price of stx"):
                await self._care(process, "price", each, tokenId="stx", priceUsd="0.85", decimals=6)

    def _act(self, process: SimulatedProcess, action: dict[str, Any], *, dry_run: bool = False) -> None:
        self.spawn(self._do_act(process, action, dry_run=dry_run))

    async def _do_act(self, process: SimulatedProcess, action: dict[str, Any], *, dry_run: bool) -> None:
        path = f"{ROUNDS_PATH}?dry-run={'true' if dry_run else 'false'}"
        answer = await self._ask(process, path, "POST", HEADERS, json.dumps(action).encode())
        self._history.happened[f"round {action['action']} {answer.status}"] += 1
        expected = answer.status in {200, *REFUSED} or NO_PRICES.encode() in answer.body
        if not expected and not self._in_trouble(process):
            self._history.broken("serves", f"{action}: {answer.status} {answer.body[:200]!r}")

    def _rounds(self) -> list[dict[str, Any]]:
        return self._history.reader.rows("SELECT * FROM competition_rounds ORDER BY round_id")

    # When everything is calm

    async def care_for_rounds(self, process: SimulatedProcess) -> None:
        """End the rule, void rounds still within their grace, and set missing prices. The rest happens by itself."""
        await self._do_act(process, {"action": "rule", "end": True}, dry_run=False)
        while True:
            now = process.clock.now() // 1000
            for each in self._rounds():
                if each["status"] in {"open", "closed"} and each["grace_ends_at"] > now:
                    await self._care(process, "void", each)
            await self._price_waiting(process)
            await asyncio.sleep(CARE_S)

    async def _care(self, process: SimulatedProcess, action: str, each: dict[str, Any], **fields: Any) -> None:
        wanted = {"action": action, "roundId": each["round_id"], "reason": "prices were not refreshed", **fields}
        await self._do_act(process, wanted, dry_run=False)


@dataclass(frozen=True, slots=True)
class FileAgent:
    """An agent and its claim, as a file names them."""

    btc_address: str
    stx_address: str
    erc8004_agent_id: int | None
    status: str
    names: Mapping[str, str | None]  # other fields that the file has


def agent_of(wallet: Wallet) -> FileAgent:
    status = "verified" if wallet.tier in {"eligible", "genesis"} else "failed"
    address = wallet.btc_address or f"bc1{wallet.address}"
    return FileAgent(address, wallet.address, wallet.erc8004_agent_id, status, {})


def drawn_agents(known: Sequence[Wallet], rng: Random) -> list[FileAgent]:
    """Return some registered agents with other names, and some new ones."""
    names = [
        {"display_name": rng.choice(NAMES), "owner": rng.choice(NAMES)} if rng.random() < 0.7 else {} for _ in range(8)
    ]
    some = [agent_of(wallet) for wallet in rng.sample(known, min(3, len(known)))]
    new = [rng.randrange(10**6) for _ in range(rng.choice((0, 1, 4)))]
    some += [FileAgent(f"bc1new{n}", address_of(f"new {n}"), n, "pending", {}) for n in new]
    return [
        FileAgent(each.btc_address, each.stx_address, each.erc8004_agent_id, each.status, names[number])
        for number, each in enumerate(some)
    ]


def write_file(directory: Path, agents: Sequence[FileAgent], form: Form, rng: Random) -> Path:
    """Write the file in one of the forms that an import accepts."""
    file = directory / ("agents.json" if form == "results" else "agents.jsonl")
    text = _results(agents, rng) if form == "results" else _lines(agents)
    file.write_bytes(text.encode())
    return file


def with_mistake(file: Path, rng: Random) -> None:
    """Put a mistake into the file: it is cut off, has a misplaced part, or has its last part twice."""
    text = file.read_bytes().decode()
    at = rng.randrange(len(text))
    if file.suffix == ".jsonl" and rng.random() < 0.6:
        file.write_text("".join(_odd_line(line, rng) + "\n" for line in text.splitlines() if line))
        return
    match rng.choice(("cut", "put", "put", "put", "twice", "without")):
        case "cut":
            text = text[:at]
        case "put":
            text = text[:at] + rng.choice(MISTAKES) + text[at:]
        case "twice":
            text += "\n" + text[text.rstrip().rfind("\n") + 1 :]
        case "without":
            text = text[:at] + text[at + rng.choice((1, 1, 30)) :]
    file.write_bytes(text.encode())


def _odd_line(line: str, rng: Random) -> str:
    """Return an agent with one field of the wrong type, unknown, too long or missing."""
    agent: dict[str, Any] = json.loads(line)
    match rng.choice(("as it is", "odd", "odd", "unknown", "long", "less", "claim", "list")):
        case "odd":
            agent = with_odd_part(agent, rng)
        case "unknown":
            agent["luck"] = 7
        case "long":
            agent["display_name"] = "n" * 200
        case "less":
            del agent[rng.choice(list(agent))]
        case "claim":
            agent["claim"] = rng.choice(({"status": "lost"}, {"status": "failed", "btc_address": "bc1"}, []))
        case "list":
            return json.dumps([agent])
        case _:
            agent["erc8004_agent_id"] = rng.choice((None, 2**70, -1, True, 5))
    return json.dumps(agent)


def _lines(agents: Sequence[FileAgent]) -> str:
    return "".join(
        json.dumps({**_agent_fields(each), "claim": {"status": each.status}}, ensure_ascii=False) + "\n\n"
        for each in agents
    )


def _agent_fields(each: FileAgent) -> dict[str, Any]:
    return {
        "btc_address": each.btc_address,
        "stx_address": each.stx_address,
        "erc8004_agent_id": each.erc8004_agent_id,
        **each.names,
    }


def _results(agents: Sequence[FileAgent], rng: Random) -> str:
    """Return what `wrangler d1 execute --json` prints, with columns that only the site has."""
    rows = [{**_agent_fields(each), "score": rng.choice((-5, 1.5, "x", None))} for each in agents]
    claims = [{"btc_address": each.btc_address, "status": each.status} for each in agents]
    results: list[Any] = [{"results": found, "success": True, "meta": {}} for found in (rows, claims)]
    rng.shuffle(results)
    return json.dumps(results, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5) + "\n"


# The tables


def tables_of(database: sqlite3.Connection) -> dict[str, dict[str, dict[str, Any]]]:
    """Return agents and claims by address."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table in ("agents", "claims"):
        cursor = database.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        found[table] = {row["btc_address"]: row for row in rows}
    return found


def tables_with(
    before: Mapping[str, Mapping[str, dict[str, Any]]], agents: Sequence[FileAgent]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the tables after importing these agents. Fields that the file does not name stay unchanged."""
    after = {table: dict(rows) for table, rows in before.items()}
    for each in agents:
        for table, fields in (
            ("agents", _agent_fields(each)),
            ("claims", {"btc_address": each.btc_address, "status": each.status}),
        ):
            after[table][each.btc_address] = {**after[table].get(each.btc_address, {}), **fields}
    return after


def same_tables(
    found: Mapping[str, Mapping[str, Mapping[str, Any]]], wanted: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> bool:
    """Return whether they have the same content; a field that a row does not name is NULL."""
    return all(
        found[table].keys() == wanted[table].keys()
        and all(
            value == wanted[table][address].get(name)
            for address, row in found[table].items()
            for name, value in row.items()
        )
        for table in wanted
    )


class CommandUsers(RoundOperators):
    """`tocsin import`, and explanations of transactions."""

    # Import

    def _import(self, wallet: Wallet, rng: Random) -> None:
        """Import an agent while the service runs, as `tocsin import` does."""
        agent, history = agent_of(wallet), self._history
        with TemporaryDirectory(dir=history.directory.parent) as made:
            file = write_file(Path(made), [agent], rng.choice(("lines", "results")), rng)
            with opened(history.directory, MIGRATIONS, now=history.clock.now(), logger=CapturedLog()) as database:
                self._check_import(database, file, [agent])

    def _check_import(self, database: sqlite3.Connection, file: Path, agents: list[FileAgent]) -> None:
        """Check that everything in the file is registered and counted, and nothing else has changed."""
        before = tables_of(database)
        report = import_file(database, import_source(file))
        wanted, found = tables_with(before, agents), tables_of(database)
        if report.refused or not same_tables(found, wanted):
            self._history.broken("imports", f"{agents}: {report}, and the tables are others: {found}")
            return
        counted = {
            table: TableCounts(
                new=len(found[table].keys() - before[table].keys()),
                updated=sum(row != found[table][address] for address, row in before[table].items()),
                unchanged=sum(before[table].get(each.btc_address) == found[table][each.btc_address] for each in agents),
            )
            for table in TABLES
        }
        if report.imported != counted:
            self._history.broken("imports", f"{agents}: {report.imported}, and it was {counted}")

    def _rehearse(self, event: Event, _process: SimulatedProcess, rng: Random) -> None:
        """Import into a copy of the database: a file of several agents, the same as SQL for D1, and with a mistake."""
        agents = drawn_agents(self._outside.agents, rng)
        with (
            TemporaryDirectory(dir=self._history.directory.parent) as made,
            self._history.reader.at_one_instant() as live,
        ):
            directory = Path(made)
            live.execute("COMMIT")  # a copy reads its own snapshot
            file = write_file(directory, agents, event.values["form"], rng)
            with closing(_copy(live)) as imported, closing(_copy(live)) as elsewhere:
                self._check_import(imported, file, agents)
                write_d1_sql(import_source(file), directory / "d1.sql")
                elsewhere.executescript((directory / "d1.sql").read_text())
                if tables_of(elsewhere) != tables_of(imported):
                    self._history.broken("imports", f"D1 would have others: {tables_of(elsewhere)}")
            for _ in range(event.values["mistakes"]):
                write_file(directory, agents, event.values["form"], rng)
                with_mistake(file, rng)
                with closing(_copy(live)) as copy:
                    self._check_mistake(copy, file)
            live.execute("BEGIN")

    def _check_mistake(self, database: sqlite3.Connection, file: Path) -> None:
        """Check that an unreadable file is refused and nothing of it is written."""
        before = tables_of(database)
        try:
            report = import_file(database, import_source(file))
        except FileRefused:
            report = ImportReport(refused_count=1)
        self._history.happened["import refused" if report.refused_count else "import taken"] += 1
        lost = [address for table in TABLES for address in before[table].keys() - tables_of(database)[table].keys()]
        if lost or (report.refused_count and tables_of(database) != before):
            self._history.broken("imports", f"{file.read_bytes()!r}: {report} {lost}")

    def _promote(self, _event: Event, _process: SimulatedProcess, rng: Random) -> None:
        wallet = self._outside.promote(rng)
        if wallet is not None:
            self._import(wallet, rng)

    def _demote(self, _event: Event, _process: SimulatedProcess, rng: Random) -> None:
        """Make an agent's claim fail or remove its identity: its swaps no longer count."""
        wallet = self._outside.demote(rng)
        if wallet is not None:
            self._import(wallet, rng)

    # Explain

    def _explain(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        for transaction in self._calls_or_any(rng):
            if not event.values["saved"]:
                self.spawn(self._explain_now(process, transaction, rng))

    def _calls_or_any(self, rng: Random) -> list[ChainTransaction]:
        """Return one of the newest transactions, mostly one that may be a swap."""
        newest = self._outside.recent(60, rng)
        calls = [each for each in newest if isinstance(each.payload, SimulatedCall)]
        return (calls if calls and rng.random() < 0.8 else newest)[:1]

    async def _explain_now(self, process: SimulatedProcess, transaction: ChainTransaction, rng: Random) -> None:
        """Explain a transaction with Hiro's current answer, outside the service and with a budget of its own."""
        before, clock, log = self._is_true(transaction), process.clock, CapturedLog()
        upstream = upstreams(self._history.settings)["hiro"]
        limiter = BudgetLimiter("hiro", restored_budget(upstream.quota, None, clock), clock, rng.random, log, str)
        client = upstream.connect(self._outside.fetch, limiter)
        assert isinstance(client, HiroClient)
        try:
            explanation = await self._explained(client, transaction.tx_id, request_session(log, patience_s=20.0))
        except NoAnswer:
            self._history.happened["explain unanswered"] += 1
            return
        if before is self._is_true(transaction):
            self._check_explanation(transaction, explanation, is_true=before)

    async def _explained(self, client: HiroClient, tx_id: str, session: CallSession) -> TradeVerdict | None:
        found = (value_or_raise(await client.transactions_with_events([tx_id], session)) or {}).get(tx_id)
        if found is None:
            return None
        rules, sender = rules_of(self._history.settings), found.transaction.sender
        with self._history.reader.at_one_instant() as live:
            row = live.execute(RULES_SQL["tiers_of"], (json.dumps([sender]),)).fetchone()
        tier: Tier = "not_registered" if row is None else row[1]
        moves = await moves_if_needed(client, session, found, tier, rules)
        return explain(found.transaction, moves, tier, rules)

    def _is_true(self, transaction: ChainTransaction) -> bool:
        return any(swap.txid == transaction.tx_id for swap in self._outside.truth())

    def _check_explanation(
        self, transaction: ChainTransaction, explanation: TradeVerdict | None, *, is_true: bool
    ) -> None:
        """Check that exactly the swaps that count are verified, and those Hiro does not show yet are pending."""
        hiro = self._outside.simulator.hiro
        status = "rejected" if explanation is None else explanation.status
        self._history.happened[f"explain {status}"] += 1
        if hiro.index_lag_ms or hiro.list_lag_ms:
            return  # explained from what Hiro knew some minutes ago
        wrong = {"verified": not is_true, "rejected": is_true}.get(status, False)
        if wrong:
            self._history.broken("explains", f"{transaction.tx_id} is {explanation}, and it counts: {is_true}")


def _copy(live: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    live.backup(copy)
    return copy
