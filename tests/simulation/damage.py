"""Stored values that were changed while the service was down: valid JSON that no release ever wrote.

Unreadable values are reported, put aside, and replaced by their defaults. The scheduler runs anyway.
"""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from holdfast.local.object_id import IdFactory
from holdfast.types import JSON
from simulation.answers import with_odd_part
from simulation.plan import Event
from simulation.process import SimulatedProcess
from simulation.users import ADMIN_PATH, OPERATOR
from support.asgi import ask
from tocsin.commands.files import KV_FILE, OBJECTS_FILE

_ALL = "SELECT key, value FROM entries WHERE object = ? ORDER BY key"
_WRITE = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)"
ODD = json.dumps(["odd"])  # not a valid value of any entry
PUT_ASIDE = "unreadable:"
UNREADABLE_EVENTS = {"state.entry_unreadable", "audit.record_unreadable"}
APART = ("run:", "run-log:", "day:", "audit:")  # entries that are not read when the object wakes
STATE = ("task:", "scheduler", "measures", "budget:")
DOWN_S = 65.0  # a lost budget forgets the calls of the last minute
PRICE = "tenero:price:"
ODD_PRICES: tuple[Any, ...] = (
    [],
    {"priceUsd": "1"},
    {"priceUsd": -1.0, "decimals": 6, "fetchedAt": 1},
    {"priceUsd": 1.0, "decimals": 60, "fetchedAt": 1},
    {"priceUsd": 1.0, "decimals": 6, "fetchedAt": 1, "liquidityUsd": -5.0},
    {"priceUsd": 1e300, "decimals": 6, "fetchedAt": 1},
)
ODD_BUDGETS: tuple[tuple[str, Any], ...] = (
    ("second", [[1, 2]]),
    ("minute", {"lengthMs": 60_000, "bucketMs": 5_000, "buckets": [[-1, 0, 0, 0]]}),
    ("callRate", {"marks": [[1]]}),
    ("closedUntil", 10**18),
    ("limits", {"second": 0, "minute": 0, "month": 0, "requestShare": 0.1, "isCap": False}),
)
RUNS = ("run:", "run-log:")
PAGES_MAX = 60


def object_of(instance: str) -> str:
    return IdFactory("SCHEDULER").id_from_name(instance).hex


def stored_texts(directory: Path, instance: str) -> dict[str, str]:
    """Return each entry as JSON."""
    with closing(sqlite3.connect(directory / OBJECTS_FILE)) as file:
        return dict(file.execute(_ALL, (object_of(instance),)))


def write_texts(directory: Path, instance: str, texts: Mapping[str, str]) -> None:
    """Write entries while no process has the file open."""
    with closing(sqlite3.connect(directory / OBJECTS_FILE)) as file, file:
        file.executemany(_WRITE, [(object_of(instance), key, text) for key, text in texts.items()])


if TYPE_CHECKING:
    from simulation.history import History


class Damage:
    """Changes stored values and remembers which of them must be reported."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._asked: Event | None = None
        self._changed: dict[str, str] = {}  # the last change of each key, until it is checked
        self._must_report: set[str] = set()
        self._reported: set[str] = set()
        self.entries_lost = 0

    def when_down(self, event: Event) -> None:
        """Do the damage as soon as no process runs."""
        self._asked = event

    def logged(self, event: str, key: JSON) -> None:
        if event in UNREADABLE_EVENTS:
            self._reported.add(str(key))
            self._history.happened["entry unreadable"] += 1

    def process_ended(self) -> None:
        event, self._asked = self._asked, None
        if event is None:
            return
        self._history.restart_after_s = max(self._history.restart_after_s, DOWN_S)
        rng = Random(event.draw)
        if event.values["what"] == "prices":
            self._change_prices(rng)
        else:
            self._change_entries(event, rng)

    def _change_entries(self, event: Event, rng: Random) -> None:
        history = self._history
        texts = stored_texts(history.directory, history.settings.instance)
        keys = [key for key in texts if _kind_of(key) == event.values["what"]]
        chosen = rng.sample(keys, min(len(keys), event.values["count"]))
        changed = {key: self._changed_text(key, texts[key], event, rng) for key in chosen}
        write_texts(history.directory, history.settings.instance, changed)
        self._changed |= changed
        self._reported -= changed.keys()
        self._must_report -= changed.keys()
        self._must_report |= {key for key in changed if changed[key] == ODD}
        history.note("damaged", entries=changed)
        if event.values["what"] in {"state", "run"}:
            history.actions.state_was_lost()
        if "scheduler" in changed:
            history.outside.receiver.given_up += 1  # the last alert sent is no longer known

    @staticmethod
    def _changed_text(key: str, text: str, event: Event, rng: Random) -> str:
        if event.values["whole"]:
            return ODD
        value = json.loads(text)
        if key.startswith("budget:"):
            name, odd = rng.choice(ODD_BUDGETS)
            return json.dumps({**value, name: odd})
        return json.dumps(with_odd_part(value, rng))

    def _change_prices(self, rng: Random) -> None:
        history = self._history
        with closing(sqlite3.connect(history.directory / KV_FILE)) as file, file:
            keys = [key for (key,) in file.execute("SELECT key FROM entries ORDER BY key")]
            chosen = rng.sample(keys, min(len(keys), 3))
            for key in chosen:
                odd = rng.choice(ODD_PRICES) if key.startswith(PRICE) else ["odd"]
                file.execute("UPDATE entries SET value = ? WHERE key = ?", (json.dumps(odd), key))
        history.note("damaged", prices=chosen)
        history.actions.prices_were_lost([key.removeprefix(PRICE) for key in chosen])

    async def check(self, process: SimulatedProcess) -> None:
        """Have everything read that may be damaged, then check that the damage was reported and nothing else lost."""
        waiting = dict(self._changed)
        if not waiting or not await self._read_all(process, waiting):
            return
        history = self._history
        texts = stored_texts(history.directory, history.settings.instance)
        for key, text in waiting.items():
            if self._changed.get(key) != text:
                continue  # changed again in the meantime
            del self._changed[key]
            is_reported = key in self._reported
            if key in self._must_report and not is_reported and not _was_removed(key, texts):
                history.broken("unreadable", f"nobody was told that {key} cannot be read")
            kept = texts.get(key if key.startswith("audit:") else PUT_ASIDE + key)
            if is_reported and (kept is None or json.loads(kept) != json.loads(text)):
                history.broken("unreadable", f"{key} was put aside as {kept}, and it was {text[:200]}")

    async def _read_all(self, process: SimulatedProcess, keys: dict[str, str]) -> bool:
        """Read everything that can be requested; return whether all requests were answered."""
        paths = [f"{ADMIN_PATH}/days?limit=400", f"{ADMIN_PATH}/audit?limit=500"]
        paths += [f"{ADMIN_PATH}/runs/{int(key.rpartition(':')[2])}" for key in keys if key.startswith(RUNS)]
        for path in paths:
            answer = await ask(process.web, path, headers=OPERATOR)
            self._history.note("read", path=path, status=answer.status)
            if answer.status not in {200, 404}:
                return False
        after = ""
        for _ in range(PAGES_MAX):
            answer = await ask(process.web, f"{ADMIN_PATH}/runs?limit=500{after}", headers=OPERATOR)
            if answer.status != 200:
                return False
            last = answer.json()["next"]
            if last is None:
                return True
            after = f"&cursor={last}"
        return False

    def ending(self) -> None:
        if self._changed:
            self._history.broken("unreadable", f"nobody could read {sorted(self._changed)} after the calm")


def _kind_of(key: str) -> str | None:
    """Return what an entry belongs to; None for one that nobody reads, such as a value that was put aside."""
    if key.startswith(STATE):
        return "state"
    return next((part[:-1] for part in APART if key.startswith(part)), None)


def _was_removed(key: str, texts: dict[str, str]) -> bool:
    """Return whether a run or a day was removed for its age, or whether log lines belong to a removed run."""
    if key.startswith("run-log:"):
        return key.replace("run-log:", "run:") not in texts
    return key.startswith(APART) and key not in texts and PUT_ASIDE + key not in texts
