"""A model of the reference's scheduler, written from its description, with the same wire and virtual time as ours.

If the description leaves a choice, the model takes the one that is better for the reference. Its rules:

- The first page view sets the alarm; each tick sets it to five minutes after its own end. Both jobs run in one tick,
  prices first, without a deadline. A job is due an interval after the *end* of its last run.
- A handler is killed after 15 minutes and retried after 2, 4, 8 ... 64 s; after 7 deaths the alarm is lost until a page
  is viewed.
- A sweep visits 100 registered wallets in turn, reads the newest 25 rows of each, and fetches every call that is not
  recorded. A list that fails counts as empty, and a sweep never counts as failed; its cursor is written at its end.
- Only the first 20 events are read; the swap is the largest leg out and in, by raw amounts, as JavaScript numbers.
  `canonical` is not checked, and refused or pending transactions are not remembered.
- Hiro: 8 s a call, five attempts after a 429 (1, 2, 4, 8 s, or Retry-After up to 30 s), three otherwise.
- Tenero: one call per token, three attempts; a run ends at a header that says 0 left, and backs off 5 minutes or 24
  hours, but not at a 429 without it. A missing price replaces a good one.

docs/reference-month.md says what is left out.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from reference_rules import ReferenceSwap, verify_fetched

from holdfast.types import Clock
from stacks_simulator.wallets import Wallet
from support.simulated_fetch import HIRO_URL, TENERO_URL
from tocsin.errors import FetchError
from tocsin.fetch import Fetch, FetchResponse
from tocsin.prices.store import peg_of, tracked_tokens

ReferenceJob: TypeAlias = Literal["prices", "swaps"]
REFERENCE_JOBS: tuple[ReferenceJob, ...] = ("prices", "swaps")

TICK_MS = 300_000
INTERVAL_MS: Mapping[ReferenceJob, int] = {"prices": 300_000, "swaps": 900_000}
SLACK_MS = 1_000
ALARM_LIMIT_S = 900
ALARM_RETRIES = 6
PAGE_WALLETS = 100
LIST_LIMIT = 25
TIMEOUT_S = 8.0
RETRY_AFTER_MAX_S = 30.0
HIRO_LIMITED_S = (1.0, 2.0, 4.0, 8.0)
TENERO_LIMITED_S = (1.5, 3.0)
FAILED_S = (0.5, 1.0)
MINUTE_BACK_OFF_MS = 300_000
MONTH_BACK_OFF_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class StoredPrice:
    """The KV entry of a token."""

    usd: float | None
    fetched_at: int


@dataclass(slots=True)
class ReferenceData:
    """The data in D1 and KV, which outlives the object."""

    swaps: dict[str, ReferenceSwap] = field(default_factory=dict)
    recorded_at: dict[str, int] = field(default_factory=dict)
    prices: dict[str, StoredPrice] = field(default_factory=dict)
    cursor: str | None = None
    traded: Counter[str] = field(default_factory=Counter)  # how often each token is in a swap
    refused: set[str] = field(default_factory=set)  # only for our count: the reference remembers none


@dataclass(slots=True)
class ObjectState:
    """The storage of the object. Wiping it makes a new one."""

    alarm_at: int | None = None
    attempts: int = 0  # of the alarm's handler that were cut off
    last_run_at: dict[ReferenceJob, int] = field(default_factory=dict)
    next_run_after: dict[ReferenceJob, int] = field(default_factory=dict)
    failures: Counter[ReferenceJob] = field(default_factory=Counter)


class ReferenceModel:
    """The object, its alarm and its two jobs."""

    def __init__(
        self,
        fetch: Fetch,
        clock: Clock,
        wallets: Collection[Wallet],
        allowlist: Mapping[str, Collection[str]],
        start_s: int,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._addresses = sorted(wallet.address for wallet in wallets)
        self._tiers = {wallet.address: wallet.tier for wallet in wallets}
        self._allowlist = allowlist
        self._start_s = start_s
        self.data = ReferenceData()
        self.state = ObjectState()
        self.useful_at: dict[ReferenceJob, int] = {}  # the end of the newest useful run
        self._usable = 0  # answers of Hiro
        self._changed = asyncio.Event()
        self._tick: asyncio.Task[None] | None = None

    # The platform: an alarm that is kept, a limit of fifteen minutes, seven attempts

    async def run(self) -> None:
        """Ring the alarm forever."""
        while True:
            await self._until_due()
            self.state.alarm_at = None  # not visible while its handler runs
            self._tick = asyncio.ensure_future(self._alarm())
            await asyncio.wait({self._tick}, timeout=ALARM_LIMIT_S)
            if self._tick.done() and not self._tick.cancelled():
                self._tick.result()
                self.state.attempts = 0
            else:
                await self._died()

    async def _until_due(self) -> None:
        while self.state.alarm_at is None or self.state.alarm_at > self._clock.now():
            self._changed.clear()
            left = self.state.alarm_at
            wait_s = None if left is None else (left - self._clock.now()) / 1000
            try:
                await asyncio.wait_for(self._changed.wait(), wait_s)
            except TimeoutError:
                continue

    async def _died(self) -> None:
        """Handle a cut-off handler: its last steps were not done. The alarm is tried again, six times."""
        assert self._tick is not None
        self._tick.cancel()
        await asyncio.wait({self._tick})
        self.state.attempts += 1
        if self.state.attempts <= ALARM_RETRIES:
            self.state.alarm_at = self._clock.now() + 1_000 * 2**self.state.attempts
        else:
            self.state.attempts = 0  # dropped: only a visit sets it again

    def visit(self) -> None:
        """Open the page, which calls the object. Its constructor sets the alarm if there is none."""
        busy = self._tick is not None and not self._tick.done()
        if self.state.alarm_at is None and not busy:
            self.state.alarm_at = self._clock.now() + TICK_MS
            self._changed.set()

    def end_process(self) -> None:
        """End the instance by a deployment. An alarm that rang is delivered again at once, without an attempt used."""
        if self._tick is not None and not self._tick.done():
            self.state.attempts -= 1
            self._tick.cancel()

    def wipe(self) -> None:
        """Delete the object's storage, including its alarm."""
        running = self._tick is not None and not self._tick.done()
        if self._tick is not None and running:
            self._tick.cancel()
        # A cut-off handler does not run again.
        self.state = ObjectState(attempts=ALARM_RETRIES if running else 0)

    def names_trouble(self, job: ReferenceJob) -> bool:
        """Whether `status()` shows a problem of this job: a failure, or a back-off."""
        waits = self.state.next_run_after.get(job, 0) > self._clock.now()
        return self.state.failures[job] > 0 or waits

    # The object: both jobs in one tick, one after the other

    async def _alarm(self) -> None:
        if self._due("prices"):
            await self._refresh_prices()
        if self._due("swaps"):
            await self._sweep()
        self.state.alarm_at = self._clock.now() + TICK_MS

    def _due(self, job: ReferenceJob) -> bool:
        now, last = self._clock.now(), self.state.last_run_at.get(job)
        if self.state.next_run_after.get(job, 0) > now:
            return False
        return last is None or last + INTERVAL_MS[job] <= now + SLACK_MS

    def _ended(self, job: ReferenceJob, *, failed: bool, useful: bool) -> None:
        """Record the end of a run; the next one is due relative to it."""
        now = self._clock.now()
        self.state.last_run_at[job] = now
        self.state.failures[job] = self.state.failures[job] + 1 if failed else 0
        if useful:
            self.useful_at[job] = now

    # Prices

    async def _refresh_prices(self) -> None:
        """Make one call for each token, in the same order each time."""
        succeeded = failed = fetched = 0
        tokens = self._tokens()
        for number, token in enumerate(tokens):
            peg = peg_of(token)
            if peg is not None:
                self._put_price(token, peg.price_usd)
                succeeded += 1
                continue
            answer = await self._get(f"{TENERO_URL}/v1/stacks/tokens/{token.partition('::')[0]}", "tenero")
            if answer is not None and answer.status == 200:
                self._put_price(token, usd_of(answer.body))
                succeeded, fetched = succeeded + 1, fetched + 1
            else:
                failed += 1
            if answer is not None and self._quota_is_spent(answer.headers):
                failed += len(tokens) - number - 1
                break
        self._ended("prices", failed=failed > 0, useful=fetched > 0)

    def _tokens(self) -> tuple[str, ...]:
        """Three fixed tokens, then the traded ones, most traded first."""
        counts = self.data.traded
        return tracked_tokens(sorted(counts, key=lambda token: (-counts[token], token)))

    def _put_price(self, token: str, usd: float | None) -> None:
        """Store the price whatever was there before, even none over a good price."""
        self.data.prices[token] = StoredPrice(usd, self._clock.now())

    def _quota_is_spent(self, headers: Mapping[str, str]) -> bool:
        for window, wait_ms in (("month", MONTH_BACK_OFF_MS), ("minute", MINUTE_BACK_OFF_MS)):
            if headers.get(f"x-ratelimit-{window}-remaining") == "0":
                self.state.next_run_after["prices"] = self._clock.now() + wait_ms
                return True
        return False

    # Swaps

    async def _sweep(self) -> None:
        """Visit a hundred wallets. The cursor is written only at the end."""
        self._usable = 0
        after = self.data.cursor or ""
        page = [address for address in self._addresses if address > after][:PAGE_WALLETS]
        for address in page:
            for txid in await self._listed(address):
                await self._verify(txid)
        self.data.cursor = page[-1] if len(page) == PAGE_WALLETS else None
        self._ended("swaps", failed=False, useful=self._usable > 0)

    async def _listed(self, address: str) -> list[str]:
        """The allow-listed calls among the newest 25 of its list. A failed list counts as an empty one."""
        url = f"{HIRO_URL}/extended/v1/address/{address}/transactions?limit={LIST_LIMIT}"
        answer = await self._get(url, "hiro")
        if answer is None or answer.status != 200:
            return []
        try:
            rows = json.loads(answer.body)["results"]
        except (ValueError, KeyError, TypeError):
            return []
        self._usable += 1
        return [row["tx_id"] for row in rows if self._is_listed(row)]

    def _is_listed(self, row: Mapping[str, Any]) -> bool:
        call = row.get("contract_call")
        if row.get("tx_type") != "contract_call" or not call:
            return False
        return call["function_name"] in self._allowlist.get(call["contract_id"], ())

    async def _verify(self, txid: str) -> None:
        """Fetch and verify the call unless it is stored. A refused, pending or failed one is not remembered."""
        if txid in self.data.swaps:
            return
        answer = await self._get(f"{HIRO_URL}/extended/v1/tx/{txid}", "hiro")
        if answer is None or answer.status != 200:
            return
        try:
            verdict = verify_fetched(json.loads(answer.body), self._start_s, self._tiers, self._allowlist)
        except (ValueError, KeyError, TypeError):
            return
        if isinstance(verdict, ReferenceSwap):
            self.data.swaps[txid] = verdict
            self.data.recorded_at[txid] = self._clock.now()
            self.data.traded.update((verdict.token_in, verdict.token_out))
        elif verdict is not None:
            self.data.refused.add(txid)

    # The wire

    async def _get(self, url: str, upstream: Literal["hiro", "tenero"]) -> FetchResponse | None:
        """The last answer; None without one. A 429 is tried five times at Hiro and three times at Tenero."""
        limited_s = HIRO_LIMITED_S if upstream == "hiro" else TENERO_LIMITED_S
        headers = {"x-api-key": "key"} if upstream == "hiro" else {}
        attempt = 0
        while True:
            try:
                answer = await self._fetch(url, headers=headers, timeout_s=TIMEOUT_S)
            except FetchError:
                answer = None
            if answer is not None and answer.status != 429 and answer.status < 500:
                return answer
            is_limited = answer is not None and answer.status == 429
            waits = limited_s if is_limited else FAILED_S
            if attempt >= len(waits):
                return answer
            wait_s = waits[attempt]
            if answer is not None and is_limited:
                wait_s = _retry_after_s(answer.headers) or wait_s
            attempt += 1
            await self._clock.sleep(wait_s)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds, thirty at most; a date is ignored."""
    text = headers.get("retry-after", "")
    return min(float(text), RETRY_AFTER_MAX_S) if text.isdigit() else None


def usd_of(body: bytes) -> float | None:
    """The price; None if there is no usable one."""
    try:
        usd = float(json.loads(body)["data"]["price_usd"])
    except (ValueError, KeyError, TypeError):
        return None
    return usd if 0 < usd < float("inf") else None
