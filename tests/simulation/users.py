"""The clients of the service and what each remembers of the answers.

Agents, Chainhook and visitors; clients that keep reading (news, events, all pages of a list); and crowds that need Hiro
at once while it asks everybody to wait.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.errors import HoldfastError, ObjectReset, StartError, UsageError
from simulation.answers import with_odd_part
from simulation.checks import SETTLE_S
from simulation.outside import ADMIN, CHAINHOOK
from simulation.plan import Event
from simulation.process import SimulatedProcess
from stacks_simulator.calls import LISTED_CALLS, OFF_LIST_CONTRACT
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from support.asgi import Answer, ask
from support.competition_site import push_1, push_2
from tocsin.board.news import read_news
from tocsin.scheduler.types import Status
from tocsin.swaps.rules import AllowList, built_in, with_added

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
LIMITED_MS = 20_000
RETRY_AFTER_S = (1, 2, 4)
LOOKS = 30
LOOK_S = (0.1, 0.6)
NO_TXID = "0x" + "0" * 64


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
            self._operate(process, rng.choice(ODD_ACTIONS))
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
            self._operate(process, f"action=recheck&txid={transaction.tx_id}&reason=an+agent+asks")

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

    async def _post(
        self, process: SimulatedProcess, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        return await self._ask(process, path, "POST", headers, body)

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

    def _operate(self, process: SimulatedProcess, query: str) -> None:
        """Have an operator do an action, whatever the answer is."""
        self.spawn(self._ignore(self._post(process, f"{ADMIN_PATH}?{query}", OPERATOR)))


async def _sent(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


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


class Crowds(Followers):
    """Sends the crowds. `then` is what happens as soon as somebody waits for a permit."""

    def _crowd(self, event: Event, process: SimulatedProcess, rng: Random) -> None:
        outside, then = self._outside, event.values["then"]
        now_ms = outside.time.now()
        outside.simulator.faults.add(
            SimulatedFault(
                kind="limited",
                upstream="hiro",
                share=event.values["share"],
                from_ms=now_ms,
                until_ms=now_ms + LIMITED_MS,
                retry_after=rng.choice(RETRY_AFTER_S),
            )
        )
        if then != "probe":  # an operator's run goes through a closed limiter if none is under way
            for task in ("feed", "sweep"):
                self._operate(process, f"action=refresh&task={task}")
        submitted = []
        for number, transaction in enumerate(outside.recent(event.values["count"], rng)):
            self.spawn(self._do_submit(process, transaction, f"198.51.100.{number + 1}"))
            submitted.append(list(self._tasks)[-1])
        self.spawn(self._follow_events(process, rng))
        self.spawn(self._wait_and_do(process, then, submitted, rng))

    def spoil(self, values: Mapping[str, Any]) -> None:
        spoilt = self._outside.spoilt
        spoilt.upstream, spoilt.share, spoilt.only = values["upstream"], values["share"], values.get("only")
        spoilt.until_s = self._history.time.now_s + values["for_s"]

    def _confused(self, event: Event, process: SimulatedProcess, _rng: Random) -> None:
        """Make an upstream send odd answers for some minutes while an operator retries again and again."""
        self.spoil(event.values)
        self.spawn(self._try_again(process, event.values))

    async def _try_again(self, process: SimulatedProcess, values: Mapping[str, Any]) -> None:
        for _ in range(values["tries"]):
            await asyncio.sleep(values["for_s"] / (values["tries"] + 1))
            await self._post(process, f"{ADMIN_PATH}?action=refresh&task={values['task']}", OPERATOR)

    async def _wait_and_do(
        self, process: SimulatedProcess, then: str, submitted: "list[asyncio.Task[None]]", rng: Random
    ) -> None:
        for _ in range(LOOKS):
            await asyncio.sleep(rng.uniform(*LOOK_S))
            try:
                status = await process.scheduler().status()
            except HoldfastError:
                return  # it does not work now
            if _is_time(status, then):
                break
        else:
            return
        self._history.happened[f"crowd {then}"] += 1
        self._history.note("in the crowd", then=then)
        match then:
            case "reset":
                for live in list(process.runtime._live.values()):
                    live.time_out("the simulation", 0)
            case "leave":
                for task in submitted[::2]:
                    task.cancel()
            case "probe":
                path = f"{ADMIN_PATH}?action=refresh&task=feed"
                await self._post(process, path, OPERATOR)
            case "look":
                await self._look_around(process, status, rng)

    async def _look_around(self, process: SimulatedProcess, status: Status, rng: Random) -> None:
        """Read the runs under way, and transactions that are not known yet."""
        running = [task.running.run for task in status.tasks.values() if task.running is not None]
        paths = [f"{ADMIN_PATH}/runs/{number}" for number in running]
        paths += [f"/api/competition/trades/{each.tx_id}" for each in self._outside.recent(4, rng)]
        for path in (*paths, *(f"/api/competition/trades/{NO_TXID}",) * 2):
            await self._do_visit(process, path)


def _is_time(status: Status, then: str) -> bool:
    hiro = status.budgets["hiro"]
    if then == "probe":
        return hiro.closed_until is not None and hiro.in_flight == 0
    return hiro.waiting.task + hiro.waiting.request > 0


def left_over(status: Status) -> str | None:
    """Return a sentence if somebody waits for a permit, or a call is under way, while nothing runs."""
    if any(task.running is not None for task in status.tasks.values()):
        return None
    for name, budget in status.budgets.items():
        if budget.waiting.task or budget.waiting.request or budget.in_flight:
            return f"{name}: {budget.waiting} wait, {budget.in_flight} calls are under way, and nothing runs"
    return None
