"""What operators do with rounds, mostly at bad moments, and what they fix when everything is calm."""

import asyncio
import json
from random import Random
from typing import Any

from simulation.clients import OPERATOR
from simulation.crowds import Crowds
from simulation.plan import Event
from simulation.process import SimulatedProcess
from tocsin.rounds.round import CATEGORIES

ROUNDS_PATH = "/api/admin/competition/finalize"
HEADERS = {**OPERATOR, "content-type": "application/json"}
REWARDS = {"overall_pnl": 50_000, "volume": 25_000, "return": 10_000}
CARE_S = 1_800.0
TXID = "0x" + "ab" * 32
REFUSED = {400, 404, 409}
NO_PRICES = "empty_price_cache"


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
