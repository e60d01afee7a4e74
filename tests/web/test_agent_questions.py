"""Ten questions of an agent that knows `/llms.txt` and nothing else: it calls only what the guide names."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks_simulator.addresses import address_of
from stacks_simulator.wallets import Wallet
from support.competition_site import CompetitionSite, competition_site
from tocsin.rounds.round import RoundRules
from tocsin.rounds.store import add

NAMED = re.compile(r"- (GET|POST) (/\S+?)(?: \(([a-z, A-Z]+)\))?: (.*)")


@dataclass
class Reader:
    """Finds a route by a word of its description, and fills in the parameters that the guide names."""

    made: CompetitionSite
    guide: str

    async def ask(self, word: str, **values: str) -> Any:
        method, path, query = self._route(word)
        for name in re.findall(r"\{(\w+)\}", path):
            path = path.replace(f"{{{name}}}", values.pop(name))
        assert set(values) <= set(query), f"the guide does not name {values} of {path}"
        target = "&".join(f"{name}={value}" for name, value in values.items())
        assert method == "GET"
        return (await self.made.get(f"{path}?{target}" if target else path)).json()

    async def send(self, word: str, body: Any) -> Any:
        method, path, _ = self._route(word)
        assert method == "POST"
        return (await self.made.post(path, body)).json()

    def _route(self, word: str) -> tuple[str, str, list[str]]:
        found = [match.groups() for line in self.guide.splitlines() if (match := NAMED.fullmatch(line))]
        (method, path, query, _), *others = [groups for groups in found if word in groups[3]]
        assert not others, f"{word} is not clear: {others}"
        return method, path, (query or "").split(", ")


@asynccontextmanager
async def reader(directory: Path) -> AsyncIterator[tuple[Reader, CompetitionSite, Wallet]]:
    async with competition_site(directory) as made:
        guide = (await made.get("/llms.txt")).body.decode()
        yield Reader(made, guide), made, made.world.simulator.chain.wallets[0]


async def traded(made: CompetitionSite, wallet: Wallet, *kinds: str) -> list[str]:
    """Submits calls of these kinds, and names them."""
    chain, txids = made.world.simulator.chain, []
    for kind in kinds:
        tx = chain.swap(wallet, kind)
        chain.mine()
        await made.submit(tx.tx_id)
        txids.append(tx.tx_id)
    return txids


async def test_questions_about_taking_part(tmp_path: Path) -> None:
    """1 what is missing, 2 is this contract allowed, 3 when does it end, 4 what is my token worth."""
    async with reader(tmp_path) as (agent, made, _wallet):
        now_s = made.site.clock.now() // 1000
        rules = RoundRules("week-1", now_s - 60, now_s + 3_600, now_s + 7_200)
        await add(made.world.db, rules, made.site.clock.now()).run()
        stranger = await agent.ask("missing steps", address=address_of("somebody"))
        allowed = await agent.ask("contracts and functions that count")
        rounds = await agent.ask("The current round")
        prices = await agent.ask("Token prices", tokens="stx")

        assert stranger["missing"][0].startswith("register the wallet")
        called = {each["contract_id"]: each["functions"] for each in allowed["entries"]}
        assert len(called) == 40
        assert all(functions for functions in called.values())
        assert rounds["running"]["ends_at"] == now_s + 3_600
        assert prices["prices"]["stx"]["priceUsd"] > 0


async def test_questions_about_trades(tmp_path: Path) -> None:
    """5 why was it refused, 6 does it count, 7 count it now, 8 what have I traded."""
    async with reader(tmp_path) as (agent, made, wallet):
        counted, failed = await traded(made, wallet, "simple", "abort_by_response")
        chain = made.world.simulator.chain
        new = chain.swap(wallet).tx_id
        chain.mine()
        refused = await agent.ask("Whether a transaction counts", txid=failed)
        before = await agent.ask("Whether a transaction counts", txid=new)
        submitted = await agent.send("Submit a swap", {"txid": new})
        mine = await agent.ask("newest first", address=wallet.address)

        assert (refused["status"], refused["code"]) == ("rejected", "tx_failed")
        assert f"- {refused['code']}: {refused['sentence']}" in agent.guide
        assert (before["status"], before["known_from"]) == ("verified", "chain")
        assert submitted["txid"] == new
        assert [trade["txid"] for trade in mine["trades"]] == [new, counted]


async def test_questions_about_results(tmp_path: Path) -> None:
    """9 what is my rank, 10 who is before me."""
    async with reader(tmp_path) as (agent, made, wallet):
        other = made.world.simulator.chain.wallets[1]
        await traded(made, wallet, "simple")
        await traded(made, other, "simple", "simple")
        own = await agent.ask("missing steps", address=wallet.address)
        board = await agent.ask("The leaderboard", sort="trades")

        assert (own["ranks"]["trades"], own["ranked"]) == (2, 2)
        assert [row["stxAddress"] for row in board["rows"]] == [other.address, wallet.address]
