"""The invariants of rounds, of the history and of the news; docs/guarantees.md explains each by its name."""

import hashlib
import json
import sqlite3
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from statistics import median_low
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.types import JSON
from simulation.checks import LATE_S, rows_of
from tocsin.prices.store import peg_of
from tocsin.rounds.file import RoundFile, read_round_file, recount
from tocsin.rounds.round import RoundPrice
from tocsin.rounds.task import difference

if TYPE_CHECKING:
    from simulation.history import History

HOUR_MS = 3_600_000
LISTED_AFTER_S = 600  # an upstream lists a transaction at most this long after its block

_ROUNDS = "SELECT * FROM competition_rounds"
_FILES = """
SELECT f.round_id, f.version, f.text FROM competition_round_files f
JOIN competition_rounds r ON r.round_id = f.round_id AND (f.version < r.version OR r.digest IS NOT NULL)
ORDER BY f.round_id, f.version, f.part"""
_CHANGES = "PRAGMA data_version"
_VERSIONS = "SELECT round_id, version, digest FROM competition_rounds ORDER BY round_id"
_RESULTS = "SELECT round_id, exact_json FROM competition_round_results ORDER BY rowid"
_REWARDS = "SELECT round_id, category, rank, stx_address, amount_sats FROM competition_rewards ORDER BY rowid"
_NEWS = "SELECT id, kind, txid FROM news WHERE id > ? ORDER BY id"
_LOWEST_NONCES = "SELECT wallet, json_extract(ranges_json, '$[0][0]') FROM nonces"
_RECORDED = "SELECT group_concat(txid, ' ') FROM swaps"
_REFUSED = "SELECT group_concat(txid, ' ') FROM refusals"
_DAYS = "SELECT day, agent_id, points FROM agent_days"
_POINTS = """
SELECT p.at, p.price_usd, p.decimals FROM price_points p JOIN price_tokens t ON t.id = p.token WHERE t.token = ?
AND p.at <= ? ORDER BY p.at DESC LIMIT 1"""


class RoundChecks:
    """Reads the database while the service runs."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._final: dict[tuple[str, int], str] = {}  # each version's file when it was first seen
        self._files: dict[tuple[str, int], RoundFile] = {}
        self._ended: set[tuple[str, int]] = set()
        self._snapshot_hours: set[int] = set()
        self._last_news = 0
        self._answers: dict[str, list[tuple[Any, ...]]] = {}  # of the last check, by query
        self._rounds: dict[str, dict[str, Any]] = {}
        self._right_days: set[tuple[Any, ...]] = set()
        self._told: set[str] = set()  # the swaps that the news has reported
        self._refusals_told: set[str] = set()
        self.clock_wrong_s = -1.0  # when the machine's clock was last wrong

    # By the log

    def logged(self, event: str, fields: dict[str, JSON]) -> None:
        history = self._history
        if event == "round.closed":
            self._closed(str(fields["round"]), int(str(fields["late_ms"])) / 1000)
        elif event == "round.finalized":
            version = (str(fields["round"]), int(str(fields["version"])))
            history.happened["round finalized"] += 1
            if version in self._ended:
                history.broken("round-once", f"{version} was finalized twice")
            self._ended.add(version)
        elif event == "round.captured":
            history.happened["round captured"] += 1
            if not fields["forced"]:
                self._captured(str(fields["round"]))
        elif event in {"round.waiting", "round.discrepancy"}:
            history.happened[event.replace(".", " ")] += 1
        elif event in {"run.started", "run.ended"} and fields["task"] == "snapshot":
            self._snapshot_hours.add(history.clock.now() // HOUR_MS)

    def _closed(self, round_id: str, late_s: float) -> None:
        history, now_s = self._history, self._history.time.now_s
        history.happened["round closed"] += 1
        if late_s < 0:
            history.broken("round-on-time", f"{round_id} was closed {-late_s:.1f} s before its grace ended")
        task = history.checks.tasks.get("rounds")
        with self._history.reader.at_one_instant() as database:
            made_ms = _ms(self._round(database, round_id)["created_at"])
        known_s = (history.clock.now() - made_ms) / 1000
        if task is None or late_s <= LATE_S or known_s - late_s < task.cadence_s + LATE_S:
            return  # on time; or added so late that no run could see it before
        if history.checks.excuses.cover(now_s - late_s - 1, now_s) is None:
            history.broken("round-on-time", f"{round_id} was closed {late_s:.1f} s late")

    def _captured(self, round_id: str) -> None:
        """Check that everything mined before the grace ended, and listed, was captured."""
        history, outside = self._history, self._history.outside
        with self._history.reader.at_one_instant() as database:
            round_ = self._round(database, round_id)
            captured = {row["txid"] for row in self._of_round(database, "swaps", round_id)}
            agents = {row["stx_address"] for row in self._of_round(database, "agents", round_id)}
            lowest = dict(database.execute(_LOWEST_NONCES))
        if self._clock_was_wrong_since(round_["grace_ends_at"] * 1000):
            return
        listed_s = round_["grace_ends_at"] - LISTED_AFTER_S
        missing = [
            swap.txid
            for swap in outside.truth()
            if round_["starts_at"] <= swap.burn_block_time < round_["ends_at"]
            and swap.txid not in captured
            and swap.sender in agents
            and outside.mined_s(swap.txid) <= listed_s
            and outside.counted_since_s(swap.sender) < outside.mined_s(swap.txid)
            and not outside.may_be_unseen(swap.txid, listed_s, lowest.get(swap.sender))
        ]
        if missing:
            history.broken("round-complete", f"{round_id} was captured without {missing}")

    # From time to time

    def look(self) -> None:
        if self._history.clock.is_wrong:
            self.clock_wrong_s = self._history.time.now_s
        with self._history.reader.at_one_instant() as database:
            if self._are_new(database, _CHANGES):
                self._rounds = {row["round_id"]: row for row in rows_of(database, _ROUNDS)}
                if self._are_new(database, _VERSIONS, _FILES, _RESULTS, _REWARDS):
                    for version, text in self._texts().items():
                        self._same(database, self._rounds[version[0]], version, text)
                news = database.execute(_NEWS, (self._last_news,)).fetchall()
                if self._are_new(database, _RECORDED, _REFUSED) or news:
                    self._news(news)
                if self._are_new(database, _DAYS):
                    self._hours()
        for round_ in self._rounds.values():
            self._on_time(round_)

    def _are_new(self, database: sqlite3.Connection, *questions: str) -> bool:
        """Return whether an answer differs from the last check: an unchanged correct answer is still correct."""
        before = [self._answers.get(sql) for sql in questions]
        now = [database.execute(sql).fetchall() for sql in questions]
        self._answers.update(zip(questions, now, strict=True))
        return before != now

    def connection_closed(self) -> None:
        """Forget the last answers: a new connection numbers changes differently."""
        self._answers.pop(_CHANGES, None)

    def _on_time(self, round_: dict[str, Any]) -> None:
        """Check that it closes when its grace is over, and then ends or states what it waits for."""
        history = self._history
        task = history.checks.tasks.get("rounds")
        if round_["closed_at"] is not None and _ms(round_["closed_at"]) < round_["grace_ends_at"] * 1000:
            history.broken("round-on-time", f"{round_['round_id']} was closed at {round_['closed_at']}")
        if task is None or round_["status"] not in {"open", "closed", "finalizing"} or round_["waiting_reason"]:
            return
        due_ms = max(round_["grace_ends_at"] * 1000, _ms(round_["closed_at"] or round_["created_at"]))
        late_s = (history.clock.now() - due_ms) / 1000 - task.cadence_s
        since_s = history.time.now_s - late_s - task.cadence_s
        was_reopened = round_["note"] is not None  # the time is not stored
        if late_s <= LATE_S or was_reopened or self._clock_was_wrong_since(due_ms):
            return
        if history.checks.excuse(task, since_s, history.time.now_s) is None:
            history.broken("round-on-time", f"{round_['round_id']} is {round_['status']} {late_s:.0f} s late")

    def _texts(self) -> dict[tuple[str, int], str]:
        texts: dict[tuple[str, int], str] = {}
        for round_id, version, text in self._answers[_FILES]:
            texts[round_id, version] = texts.get((round_id, version), "") + text
        return texts

    def _same(self, database: sqlite3.Connection, round_: dict[str, Any], version: tuple[str, int], text: str) -> None:
        digest = hashlib.sha256(text.encode()).hexdigest()
        known = self._final.setdefault(version, digest)
        if known != digest:
            self._history.broken("round-final", f"the file of {version} is another one than it was")
        if version not in self._files:
            self._first_seen(database, round_, version, text)
        elif version[1] == round_["version"]:
            self._same_rows(version)

    def _first_seen(
        self, database: sqlite3.Connection, round_: dict[str, Any], version: tuple[str, int], text: str
    ) -> None:
        history = self._history
        try:
            file = read_round_file(text.splitlines())
        except HoldfastError as error:
            history.broken("round-once", f"the file of {version} cannot be read: {error}")
            return
        self._files[version] = file
        report = recount(file)
        if not report.same:
            history.broken("round-once", f"{version} recounts to something else: {report.differences[:3]}")
        if version[1] == round_["version"]:
            if file.digest != round_["digest"]:
                history.broken("round-once", f"{version} has the digest {round_['digest']}, not {file.digest}")
            self._same_rows(version)
            self._prices_of_end(database, round_, file)

    def _same_rows(self, version: tuple[str, int]) -> None:
        """Check that the stored results and prizes are those of the file."""
        round_id, outcome = version[0], self._files[version].outcome
        results = [json.loads(text) for of_round, text in self._answers[_RESULTS] if of_round == round_id]
        wanted = [result.to_json() for result in outcome.results]
        if sorted(results, key=lambda result: int(result["rank"])) != wanted:
            self._history.broken("round-final", f"the results of {version} are not those of its file")
        names = ("category", "rank", "stx_address", "amount_sats")
        rewards = sorted(row for of_round, *row in self._answers[_REWARDS] if of_round == round_id)
        if rewards != sorted([reward.to_json()[name] for name in names] for reward in outcome.rewards):
            self._history.broken("round-final", f"the prizes of {version} are not those of its file")

    def _prices_of_end(self, database: sqlite3.Connection, round_: dict[str, Any], file: RoundFile) -> None:
        """Check that they are the median of the last hour, looked up in the series one by one."""
        end_ms = round_["ends_at"] * 1000
        if self._clock_was_wrong_since(end_ms):
            return
        prices = {price.token_id: price for price in file.inputs.prices}
        traded = {token for swap in file.inputs.swaps for token in (swap.token_in, swap.token_out)}
        for token in sorted(traded | {"stx"}):
            price = prices.get(token)
            if (price is not None and price.source != "tenero") or peg_of(token) is not None:
                continue
            expected = _end_price(database, token, end_ms)
            if (None if price is None else Decimal(price.price_usd)) != expected:
                self._history.broken(
                    "round-prices", f"{round_['round_id']}: {token} is {_shown(price)}, the series says {expected}"
                )

    # The history and the news

    def _news(self, news: list[tuple[int, str, str]]) -> None:
        """Check that the news, applied in order, gives the record."""
        broken = self._history.broken
        for number, kind, txid in news:
            self._last_news = number
            if kind == "refused":
                self._refusals_told.add(txid)
            elif (kind == "counted") == (txid in self._told):
                broken("news", f"{number}: {txid} is {kind} twice")
            else:
                self._told.symmetric_difference_update({txid})
        recorded = set((self._answers[_RECORDED][0][0] or "").split())
        if recorded != self._told:
            broken("news", f"not as the news tell: {sorted(recorded ^ self._told)[:3]}")
        refused = set((self._answers[_REFUSED][0][0] or "").split())
        if not refused <= self._refusals_told:
            broken("news", f"refused without news: {sorted(refused - self._refusals_told)[:3]}")

    def _hours(self) -> None:
        right, self._right_days = self._right_days, set(self._answers[_DAYS])
        for day, agent_id, points in self._right_days - right:
            hours = [day * 24 + point[0] // 60 for point in json.loads(f"[{points}]")]
            if hours != sorted(set(hours)):
                self._history.broken("history", f"agent {agent_id} has two points of an hour: {hours}")
            if not self._snapshot_hours.issuperset(hours):
                self._history.broken("history", f"a point of an hour without a snapshot: {hours}")

    def _capital(self, database: sqlite3.Connection) -> None:
        """Check that it is the largest net amount given of each token, in eligible agents' swaps that have a value."""
        tiers = dict(database.execute("SELECT stx_address, tier FROM agent_tiers"))
        due = {sender for (sender,) in database.execute("SELECT sender FROM outlays_due")}
        valued = "SELECT * FROM swaps WHERE txid NOT IN (SELECT txid FROM excess_swaps)"
        swaps = rows_of(database, f"{valued} ORDER BY block_height, tx_index, txid")
        for row in rows_of(database, "SELECT * FROM outlays WHERE is_complete = 1"):
            wallets, left_out = row["wallets"].split(), set(row["left_out"].split())
            if due.intersection(wallets) or any(tiers.get(wallet) != "eligible" for wallet in wallets):
                continue
            net, peaks = Counter[str](), Counter[str]()
            for swap in swaps:
                if swap["sender"] in wallets and left_out.isdisjoint((swap["token_in"], swap["token_out"])):
                    net[swap["token_in"]] += int(swap["amount_in"])
                    net[swap["token_out"]] -= int(swap["amount_out"])
                    peaks |= net
            if json.loads(row["peaks"]) != dict(peaks):
                self._history.broken("totals", f"the capital of {row['agent_id']} is not that of its swaps")

    # At the end

    def ending(self) -> None:
        """Check that exactly the differences from what was captured are listed."""
        self.look()
        with self._history.reader.at_one_instant() as database:
            self._capital(database)
            for round_ in rows_of(database, _ROUNDS):
                file = self._files.get((round_["round_id"], round_["version"]))
                if file is not None and round_["status"] in {"finalized", "partially_paid", "paid"}:
                    self._discrepancies(database, round_, file)
                elif round_["status"] in {"closed", "finalizing"}:
                    self._history.broken(
                        "round-on-time", f"{round_['round_id']} is still {round_['status']}: {round_['waiting_reason']}"
                    )

    def _discrepancies(self, database: sqlite3.Connection, round_: dict[str, Any], file: RoundFile) -> None:
        listed = {row["subject"]: row["kind"] for row in self._of_round(database, "discrepancies", round_["round_id"])}
        captured = {swap.txid: swap._asdict() for swap in file.inputs.swaps}
        agents = {agent.stx_address for agent in file.inputs.agents}
        now = {row["txid"]: row for row in rows_of(database, "SELECT * FROM swaps")}
        expected = {}
        for txid in {*captured, *now}:
            live = now.get(txid)
            if txid not in captured and not self._is_late(round_, live, agents, listed):
                continue
            differs = difference(captured.get(txid), live)
            if differs is not None:
                expected[txid] = differs[0]
        tiers = dict(database.execute("SELECT stx_address, tier FROM agent_tiers"))
        expected |= {
            result.stx_address: "agent_ineligible"
            for result in file.outcome.results
            if tiers.get(result.stx_address) != "eligible"
            and (round_["status"] != "paid" or result.stx_address in listed)  # a paid round is not checked again
        }
        if listed != expected:
            other = {
                name: (listed.get(name), expected.get(name))
                for name in sorted({*listed, *expected})
                if listed.get(name) != expected.get(name)
            }
            self._history.broken("round-final", f"{round_['round_id']} lists, and should list: {other}")

    @staticmethod
    def _is_late(round_: dict[str, Any], live: dict[str, Any] | None, agents: set[str], listed: dict[str, str]) -> bool:
        """Return whether a swap of the round was not captured. One of an ineligible sender need not be new."""
        if live is None or not round_["starts_at"] <= live["burn_block_time"] < round_["ends_at"]:
            return False
        return live["sender"] in agents or live["txid"] in listed

    # Reading

    @staticmethod
    def _round(database: sqlite3.Connection, round_id: str) -> dict[str, Any]:
        return rows_of(database, f"{_ROUNDS} WHERE round_id = ?", (round_id,))[0]

    @staticmethod
    def _of_round(database: sqlite3.Connection, table: str, round_id: str) -> list[dict[str, Any]]:
        sql = f"SELECT * FROM competition_round_{table} WHERE round_id = ?"
        return rows_of(database, sql, (round_id,))

    def _clock_was_wrong_since(self, wall_ms: int) -> bool:
        history = self._history
        since_s = history.time.now_s - (history.clock.now() - wall_ms) / 1000
        return history.clock.is_wrong or self.clock_wrong_s >= since_s - 3_600


def _end_price(database: sqlite3.Connection, token: str, end_ms: int) -> Decimal | None:
    known = []
    for minutes in range(0, 65, 5):
        at_ms = end_ms - minutes * 60_000
        row = database.execute(_POINTS, (token, at_ms)).fetchone()
        if row is not None and at_ms - row[0] <= 2 * HOUR_MS and None not in row:
            known.append(Decimal(row[1]))
    return median_low(known) if len(known) >= 7 else None


def _ms(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def _shown(price: RoundPrice | None) -> str:
    return "without a price" if price is None else str(asdict(price))
