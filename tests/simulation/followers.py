"""Clients that keep reading: the news, the scheduler's events, all pages of a list. And one that tries allow-lists."""

import json
from random import Random
from typing import Any
from urllib.parse import quote

from holdfast.errors import ObjectReset, StartError, UsageError
from simulation.clients import ADMIN_PATH, OPERATOR, Clients
from simulation.plan import Event
from simulation.process import SimulatedProcess
from simulation.spoilt_answers import with_odd_part
from stacks_simulator.calls import LISTED_CALLS, OFF_LIST_CONTRACT
from tocsin.board.news import read_news
from tocsin.swaps.rules import AllowList, built_in, with_added

LISTS = (  # a path, its rows, the key of a row, where the next page begins, and how to request it
    ("/api/competition/trades?limit={}", "trades", "txid", "next_cursor", "cursor"),
    ("/api/competition/trades?limit={}&address={}", "trades", "txid", "next_cursor", "cursor"),
    ("/api/admin/competition/refusals?limit={}", "refusals", "txid", "next", "cursor"),
    (f"{ADMIN_PATH}/runs?limit={{}}", "runs", "id", "next", "cursor"),
    ("/api/competition/leaderboard?limit={}", "rows", "stxAddress", "next", "cursor"),
)
PAGES_MAX = 40
ALLOWLISTS = 8  # how many one operator tries
WAITS_MS = (0, 5_000, 25_000)


class Followers(Clients):
    """Clients that remember their position, even when the service restarts."""

    _news_after = 0

    def _follow(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        match event.values["what"]:
            case "news":
                self.spawn(self._follow_news(process))
            case "events":
                self.spawn(self._follow_events(process, rng))
            case "pages":
                self.spawn(self._turn_pages(process, rng))
            case "instance":
                self.spawn(self._ask_other_instance(process))
            case "allowlist":
                for _ in range(ALLOWLISTS):
                    self._try_allowlist(rng)

    async def _follow_news(self, process: SimulatedProcess) -> None:
        """Check that numbers only grow, and that the last news of a transaction matches the record."""
        told: dict[str, str] = {}
        before = self._recorded()
        after, began_after = 0, self._news_after
        while True:
            news, read_to = await read_news(process.db, after)
            told |= {each.txid: each.kind for each in news if each.txid is not None and each.kind != "refused"}
            if any(each.id <= after for each in news) or read_to < after:
                self._history.broken("news", f"after {after} comes {[each.id for each in news]}")
            if read_to == after:
                break
            after = read_to
        self._news_after = after
        if after < began_after:
            self._history.broken("news", f"they went on to {began_after}, and now to {after} only")
        if before == self._recorded():
            wrong = [txid for txid, kind in told.items() if (kind == "counted") != (txid in before)]
            if wrong:
                self._history.broken("news", f"{wrong[:3]} are not recorded as told last")

    async def _follow_events(self, process: SimulatedProcess, rng: Random) -> None:
        """Check that events of the scheduler arrive in order, none of them twice."""
        after = 0
        for _ in range(rng.choice((1, 3))):
            try:
                batch = await process.scheduler().events(after, rng.choice(WAITS_MS))
            except ObjectReset:
                return  # its follower begins again
            numbers = [each.seq for each in batch.events]
            if numbers != sorted(set(numbers)) or any(number <= after for number in numbers):
                self._history.broken("events", f"after {after} come {numbers}")
            after = batch.next

    async def _turn_pages(self, process: SimulatedProcess, rng: Random) -> None:
        """Check that no row appears on two pages, unless something was written in the meantime."""
        path, rows_name, key, next_name, cursor_name = rng.choice(LISTS)
        first = path.format(rng.choice((1, 2, 7)), rng.choice(self._outside.agents).address)
        seen: list[Any] = []
        asked, version = first, self._version()
        for _ in range(PAGES_MAX):
            answer = await self._ask(process, asked, "GET", OPERATOR)
            if answer.status != 200:
                return
            body = answer.json()
            seen += [row[key] for row in body[rows_name]]
            if body[next_name] is None:
                break
            asked = f"{first}&{cursor_name}={quote(str(body[next_name]))}"
        self._history.happened[f"pages of {rows_name}"] += 1
        if len(seen) != len(set(seen)) and version == self._version():
            self._history.broken("pages", f"{first} shows a row twice: {seen}")

    async def _ask_other_instance(self, process: SimulatedProcess) -> None:
        """Check that only the instance in the settings runs: any other sets no alarm and refuses to run anything."""
        other = process.instance("an-older-one")
        armed_at, status = await other.arm(), await other.status()
        try:
            await other.refresh_all()
        except UsageError:
            refused = True
        else:
            refused = False
        if armed_at is not None or status.active or status.next_alarm_at is not None or not refused:
            self._history.broken("settings", f"another instance runs, too: {armed_at} {refused} {status}")

    def _version(self) -> int:
        """Return the version of the database, which changes with every commit of the service."""
        with self._history.reader.at_one_instant() as database:
            return int(database.execute("PRAGMA data_version").fetchone()[0])

    # Settings

    def _try_allowlist(self, rng: Random) -> None:
        """Check that an unreadable list is refused by name, and any other one extends the built-in list."""
        added: dict[str, Any] = {
            "contracts": {OFF_LIST_CONTRACT: ["swap-helper-a"], rng.choice(sorted(LISTED_CALLS)): ["swap-x"]},
            "protocol": "bitflow",
            "provider_address": OFF_LIST_CONTRACT.partition(".")[0],
            "provider_attribution_contracts": [OFF_LIST_CONTRACT],
        }
        if rng.random() < 0.3:
            added["another"] = 1
        text = json.dumps(with_odd_part(added, rng) if rng.random() < 0.6 else added)
        if rng.random() < 0.2:
            text = text[: rng.randrange(len(text))]
        try:
            allowed: AllowList = with_added(text)
        except StartError as error:
            if "TOCSIN_ALLOWLIST" not in str(error):
                self._history.broken("settings", f"{text}: {error}")
            return
        lost = [name for name, functions in built_in().contracts.items() if not functions <= allowed.contracts[name]]
        if lost:
            self._history.broken("settings", f"{text} takes {lost} from the list")
