"""Operators at a terminal: they import agents and have transactions explained while the service runs."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from simulation.import_files import (
    FileAgent,
    agent_of,
    drawn_agents,
    same_tables,
    tables_of,
    tables_with,
    with_mistake,
    write_file,
)
from simulation.plan import Event
from simulation.process import MIGRATIONS, SimulatedProcess
from simulation.round_operators import RoundOperators
from simulation.spoilt_answers import with_odd_part
from stacks_simulator.chain_records import ChainTransaction, SimulatedCall
from stacks_simulator.http_messages import SimulatedRequest
from stacks_simulator.wallets import Wallet
from support.captured_log import CapturedLog
from tocsin.commands.explain import explain_file, explained
from tocsin.commands.rows import ImportReport, TableCounts, import_file, opened, write_d1_sql
from tocsin.errors import ImportRefused, TransactionUnreadable
from tocsin.settings import Settings
from tocsin.swaps.agents import TABLES
from tocsin.swaps.types import Explanation

SAVED = ("/extended/v1/tx/{}", "/extended/v1/tx/{}?event_limit=2", "/extended/v3/transactions/{}")
ODD_BODIES = 6  # of one transaction, each shortened or changed in a different way
ON_RECORD = "record"  # the step of an explanation made without Hiro


class CommandUsers(RoundOperators):
    """`tocsin import` and `tocsin explain`."""

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
        report = import_file(database, file, lambda _bytes: None)
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
                write_d1_sql(file, directory / "d1.sql", lambda _bytes: None)
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
            report = import_file(database, file, lambda _bytes: None)
        except ImportRefused:
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
            if event.values["saved"]:
                for _ in range(ODD_BODIES if event.values["odd"] else 1):
                    self._explain_saved(transaction, rng, odd=event.values["odd"])
            else:
                self.spawn(self._explain_now(process, transaction, rng))

    def _calls_or_any(self, rng: Random) -> list[ChainTransaction]:
        """Return one of the newest transactions, mostly one that may be a swap."""
        newest = self._outside.recent(60, rng)
        calls = [each for each in newest if isinstance(each.payload, SimulatedCall)]
        return (calls if calls and rng.random() < 0.8 else newest)[:1]

    def _settings_here(self) -> Settings:
        return replace(self._history.settings, data_dir=str(self._history.directory))

    async def _explain_now(self, process: SimulatedProcess, transaction: ChainTransaction, rng: Random) -> None:
        """Explain a transaction with Hiro's current answer. The command is its own process with its own budget."""
        before = self._is_true(transaction)
        try:
            explanation = await explained(
                self._settings_here(),
                transaction.tx_id,
                None,
                fetch=self._outside.fetch,
                clock=process.clock,
                chance=rng.random,
                logger=CapturedLog(),
                budget_logger=CapturedLog(),
            )
        except TransactionUnreadable:
            self._history.happened["explain unanswered"] += 1
            return
        if before is self._is_true(transaction):
            self._check_explanation(transaction, explanation, is_true=before)

    def _explain_saved(self, transaction: ChainTransaction, rng: Random, *, odd: bool) -> None:
        """Explain a transaction from a saved answer of Hiro, perhaps shortened or changed by hand."""
        hiro = self._outside.simulator.hiro
        reply = hiro.reply(SimulatedRequest.get(rng.choice(SAVED).format(transaction.tx_id)))
        if reply.status != 200:
            return
        body = json.loads(reply.body)
        if odd:
            body = without_some(body, rng) if rng.random() < 0.5 else with_odd_part(body, rng)
        with TemporaryDirectory(dir=self._history.directory.parent) as made:
            file = Path(made) / "tx.json"
            file.write_text(json.dumps({"tx": body} if rng.random() < 0.3 else body))
            try:
                explanation = explain_file(self._settings_here(), file, None)
            except TransactionUnreadable:
                self._history.happened["explain unreadable"] += 1
                if not odd:
                    self._history.broken("explains", f"{transaction.tx_id} cannot be read as Hiro sends it")
                return
        is_true = self._is_true(transaction)
        if not odd or explanation.status == "verified":  # a changed body may lack what makes it count
            self._check_explanation(transaction, explanation, is_true=is_true)

    def _is_true(self, transaction: ChainTransaction) -> bool:
        return any(swap.txid == transaction.tx_id for swap in self._outside.truth())

    def _check_explanation(self, transaction: ChainTransaction, explanation: Explanation, *, is_true: bool) -> None:
        """Check that exactly the swaps that count are verified, and those Hiro does not show yet are pending."""
        hiro = self._outside.simulator.hiro
        self._history.happened[f"explain {explanation.status}"] += 1
        if explanation.steps[0].name == ON_RECORD or hiro.index_lag_ms or hiro.list_lag_ms:
            return  # explained from the record, or from what Hiro knew some minutes ago
        wrong = {"verified": not is_true, "rejected": is_true}.get(explanation.status, False)
        if wrong:
            self._history.broken("explains", f"{transaction.tx_id} is {explanation}, and it counts: {is_true}")


def without_some(body: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return a shortened body: some fields are left out."""
    return {name: value for name, value in body.items() if rng.random() < 0.9}


def _copy(live: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    live.backup(copy)
    return copy
