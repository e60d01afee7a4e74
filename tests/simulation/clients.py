"""The clients of the service and what each remembers of the answers: agents, Chainhook, visitors."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from simulation.checks import SETTLE_S
from simulation.outside import ADMIN, CHAINHOOK
from simulation.plan import Event
from simulation.process import SimulatedProcess
from simulation.spoilt_answers import with_odd_part
from stacks_simulator.chain_records import ChainTransaction
from support.asgi import Answer, ask
from support.competition_site import push_1, push_2

if TYPE_CHECKING:
    from simulation.history import History

ADMIN_PATH = "/api/admin/scheduler"
OPERATOR = {"x-admin-key": ADMIN.secret}
PUSH = {"content-type": "application/json", "authorization": f"Bearer {CHAINHOOK.secret}"}
FETCHED_LATE_MS = 10_000  # how much a slow disk may delay the time that counts as fetched
PATHS = ("/api/competition/leaderboard", "/api/prices", "/metrics", "/healthz", ADMIN_PATH)

READ_PATHS = (
    "/api/competition/trades?limit={limit}",
    "/api/competition/trades?address={address}&limit={limit}",
    "/api/competition/trades/{txid}",
    "/api/competition/agents/{address}",
    "/api/competition/status",
    "/api/competition/tracked-tokens",
    "/api/competition/leaderboard.csv",
    "/api/competition/history",
    "/api/competition/curves",
    "/api/competition/rounds?limit={limit}",
    "/api/competition/rounds/current",
    "/api/competition/rounds/{round}",
    "/api/competition/rounds/{round}/file",
    "/api/competition/rounds/{round}/results/{address}",
    "/api/admin/competition/refusals?limit={limit}",
    "/api/admin/competition/refusals?sender={address}",
    "/api/admin/competition/refusals?code=tx_failed&limit={limit}",
    "/api/admin/prices/history?token=stx",
    f"{ADMIN_PATH}/runs?limit={{limit}}",
    f"{ADMIN_PATH}/runs?task={{task}}&outcome={{outcome}}",
    f"{ADMIN_PATH}/runs?since={{since}}&limit={{limit}}",
    f"{ADMIN_PATH}/runs/{{number}}",
    f"{ADMIN_PATH}/days",
    f"{ADMIN_PATH}/audit?limit={{limit}}",
    "/api/competition/leaderboard?period=24h&sort=volume",
    "/api/competition/leaderboard?period=7d&limit={limit}&dir=asc",
    "/api/competition/leaderboard?period=round",
    "/api/competition/allowlist",
    "/agents/{address}",
    "/agents/{address}/card",
)
ODD_PATHS = (
    "/api/competition/leaderboard?period=never",
    "/api/competition/leaderboard?sort=luck",
    "/api/competition/leaderboard?dir=up",
    "/api/competition/leaderboard?limit=0",
    "/api/competition/leaderboard?cursor=odd",
    "/api/competition/trades?cursor=odd",
    "/api/competition/trades?cursor=e30",
    "/api/competition/trades?address=SP000000000000000000002Q6VF78&cursor=e30",
    "/api/competition/trades/odd",
    "/api/competition/agents/odd",
    "/api/admin/competition/refusals?cursor=odd",
    "/api/admin/competition/refusals?cursor=e30",
    "/api/admin/competition/refusals?code=odd",
    "/api/admin/competition/refusals?code=tx_failed&sender=SP000000000000000000002Q6VF78",
    f"{ADMIN_PATH}/runs?task=odd",
    f"{ADMIN_PATH}/runs/odd",
)
ODD_ACTIONS = ("action=pause&until=1", "action=pause&until=99999999999999", "action=refresh&task=odd", "action=odd")
ODD_BODIES = (b"", b"{}", b"[]", b'{"txid": 7}', b'{"txid": "odd"}', b'{"txid": ')
ODD_PUSHES = (
    b"7",
    b'{"apply": , "chain": 1}',
    b'{"apply": [7]}',
    b'{"apply": [{"block": 7}]}',
    b'{"apply": [{"transactions": [7]}]}',
    b'{"apply": [{"transactions": [{}]}], "rollback": [{"transactions": [{}]}]}',
    b'{"apply": [' + b'{"transactions": []}, ' * 250 + b"{}]}",
)


class Clients:
    """Makes requests that run concurrently, in the loop of the process."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._outside = history.outside
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._acknowledged: dict[str, tuple[ChainTransaction, object]] = {}  # counted swaps, and their block
        self._prices: dict[str, int] = {}  # when each token's price was fetched
        self._is_ending = False  # whether the process is stopping and cuts off requests under way

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._history.failed(error)

    async def finish(self) -> None:
        self._is_ending = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _recorded(self) -> set[str]:
        with self._history.reader.at_one_instant() as database:
            return {txid for (txid,) in database.execute("SELECT txid FROM swaps")}

    def _submit(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        for number, transaction in enumerate(self._outside.recent(event.values["count"], rng)):
            self.spawn(self._do_submit(process, transaction, f"192.0.2.{number + 1}"))
            if rng.random() < 0.3:
                self.spawn(self._do_submit(process, transaction, f"198.51.100.{number + 1}"))

    async def _do_submit(self, process: SimulatedProcess, transaction: ChainTransaction, client: str) -> None:
        body = json.dumps({"txid": transaction.tx_id}).encode()
        headers = {"content-type": "application/json"}
        answer = await self._ask(process, "/api/competition/trades", "POST", headers, body, client)
        self._history.happened[f"submit {answer.status}"] += 1
        if answer.status == 200:
            self._acknowledged[transaction.tx_id] = (transaction, transaction.block)
            if transaction.tx_id not in self._recorded():
                self._history.broken("acknowledged", f"{transaction.tx_id} was counted, and is not recorded")

    def _push(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        chosen = self._outside.recent(event.values["count"], rng)
        rng.shuffle(chosen)
        make = rng.choice((push_1, push_2))
        undone = chosen[: len(chosen) // 3] if event.values["rollback"] else []
        body = json.dumps(make(apply=chosen, rollback=undone)).encode()
        for _ in range(2 if event.values["again"] else 1):
            self.spawn(self._ignore(self._ask(process, "/api/chainhook", "POST", PUSH, body)))

    def _visit(self, _event: Event, process: SimulatedProcess, rng: Random) -> None:
        path = rng.choice(PATHS)
        self.spawn(self._do_visit(process, path))

    def _read(self, _event: Event, process: SimulatedProcess, rng: Random) -> None:
        """Read any other route of the API, for something that may or may not exist."""
        transactions, agents = (
            self._outside.recent(1, rng),
            [*self._outside.agents, *self._outside.chain.strangers[:3]],
        )
        rounds = [row["round_id"] for row in self._history.reader.rows("SELECT round_id FROM competition_rounds")]
        names = {
            "txid": transactions[0].tx_id if transactions and rng.random() < 0.9 else "0x" + "0" * 64,
            "address": rng.choice(agents).address if rng.random() < 0.9 else "nobody",
            "round": rng.choice(rounds) if rounds else "none",
            "task": rng.choice(("tenero", "feed", "sweep", "rounds", "nothing")),
            "outcome": rng.choice(("ok", "limited", "failed", "interrupted")),
            "number": rng.randrange(1, 400),
            "limit": rng.choice((1, 3, 50)),
            "since": process.clock.now() - rng.choice((3_600_000, 86_400_000)),
        }
        self.spawn(self._do_visit(process, rng.choice(READ_PATHS).format(**names)))

    def _odd_request(self, _event: Event, process: SimulatedProcess, rng: Random) -> None:
        """Send a meaningless request."""
        if rng.random() < 0.5:
            self.spawn(self._do_visit(process, rng.choice(ODD_PATHS)))
        elif rng.random() < 0.5:
            path = f"{ADMIN_PATH}?{rng.choice(ODD_ACTIONS)}"
            self.spawn(self._ignore(self._post(process, path, OPERATOR)))
        else:
            headers, body = {"content-type": "application/json"}, rng.choice(ODD_BODIES)
            asked = self._ask(process, "/api/competition/trades", "POST", headers, body)
            self.spawn(self._ignore(asked))

    def _odd_push(self, _event: Event, process: SimulatedProcess, rng: Random) -> None:
        """Send a push that arrives in pieces, is formatted differently, ends too early, or has odd parts."""
        push = rng.choice((push_1, push_2))(apply=self._outside.recent(rng.choice((1, 4)), rng))
        if rng.random() < 0.5:
            push = with_odd_part(push, rng)
        if isinstance(push, dict):
            push = {"note": 'a "quoted" \\ line', **push}
        text = json.dumps(push, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5)
        body = text.replace('"', '\\"', 1 if rng.random() < 0.1 else 0).encode()
        if rng.random() < 0.3:
            body = body[: rng.randrange(len(body))] + rng.choice((b"", b"]", b"}}", b'"'))
        elif rng.random() < 0.3:
            body = rng.choice((body + b" 7", *ODD_PUSHES))
        cuts = sorted(rng.randrange(len(body) + 1) for _ in range(rng.choice((0, 1, 5, 40))))
        pieces = [body[begin:end] for begin, end in pairwise([0, *cuts, len(body)])]
        self.spawn(self._ignore(self._ask(process, "/api/chainhook", "POST", PUSH, _sent(pieces))))

    def _recheck(self, _event: Event, process: SimulatedProcess, rng: Random) -> None:
        """Have an operator recheck a refused or an unknown transaction."""
        for transaction in self._outside.recent(1, rng):
            path = f"{ADMIN_PATH}?action=recheck&txid={transaction.tx_id}&reason=an+agent+asks"
            self.spawn(self._ignore(self._post(process, path, OPERATOR)))

    async def _do_visit(self, process: SimulatedProcess, path: str) -> None:
        headers = OPERATOR if path.startswith("/api/admin") else {}
        answer = await self._ask(process, path, "GET", headers)
        if answer.status == 502 and path.startswith("/api/competition/trades/0x"):
            return  # Hiro could not be asked, as the answer states: its quota may be used up
        if answer.status >= 500 and not self._in_trouble(process):
            self._history.broken("serves", f"{path}: {answer.status} {answer.body[:200]!r}")

    async def look_at_prices(self, process: SimulatedProcess) -> None:
        """Check that no price is lost, none becomes older, and none is newer than Tenero's last answer."""
        query = f"?tokens={','.join(self._prices)}" if self._prices else ""
        answer = await self._ask(process, f"/api/prices{query}", "GET", {})
        if answer.status != 200:
            return
        history, now_ms = self._history, process.clock.now()
        shown = {
            token: price["fetchedAt"]
            for token, price in answer.json()["prices"].items()
            if price["priceUsd"] and price["fetchedAt"]
        }
        for token, at_ms in self._prices.items():
            if now_ms - at_ms > 6 * 86_400_000:
                continue
            if token not in shown:
                history.broken("prices", f"{token} had a price of {at_ms} and has none")
            elif shown[token] < at_ms:
                history.broken("prices", f"{token}: the price of {at_ms} was replaced by one of {shown[token]}")
        newest = max((at_ms for at_ms in shown.values() if at_ms <= now_ms), default=0)
        last = self._outside.last_prices_ms
        if last is not None and newest > max(last, self._outside.prices_before_ms) + FETCHED_LATE_MS:
            history.broken("prices", f"a price of {newest}, but Tenero's last answer was at {last}")
        self._prices.update({token: at_ms for token, at_ms in shown.items() if at_ms <= now_ms})

    # Requests

    def _in_trouble(self, process: SimulatedProcess) -> bool:
        history = self._history
        disk = process.disk
        return (
            disk.is_full
            or disk.is_slow
            or history.time.now_s - disk.failed_s <= SETTLE_S
            or process.stopped.is_set()
            or self._is_ending
            or history.checks.excuses.cover(history.time.now_s - SETTLE_S, history.time.now_s) is not None
        )

    async def _post(self, process: SimulatedProcess, path: str, headers: Mapping[str, str]) -> Answer:
        return await self._ask(process, path, "POST", headers)

    async def _ask(
        self,
        process: SimulatedProcess,
        path: str,
        method: str,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes] = b"",
        client: str = "203.0.113.7",
    ) -> Answer:
        answer = await ask(process.web, path, method=method, headers=headers, body=body, client=client)
        self._history.note("answered", path=path, status=answer.status)
        return answer

    async def _ignore(self, work: Coroutine[Any, Any, Answer]) -> None:
        await work


async def _sent(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
