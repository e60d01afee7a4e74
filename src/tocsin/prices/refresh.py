"""The task `tenero`: one refresh writes the price of every tracked token into KV and appends it to the price series.

A refresh reads the source's list, a hundred tokens per call, then makes a few single calls for tokens that the list
lacks. Stablecoins with a peg need no call. Results are written at once, so a refresh that is cut off keeps them.

No token starves. Tokens that a complete list lacked get single calls, and are searched in the list again once a day; if
they outnumber the pages of the list, in every refresh, because that is cheaper. Tokens that a list did not reach,
because it was cut short or partly unreadable, get one single call before the list is tried again. The tokens that a
refresh did not reach have waited longest, and come first in the next one.

A missing price never overwrites a good one, and an unchanged price is not rewritten within an hour. A jump by more than
a factor, up or down, or a change of decimals, is held back until the next refresh sees it again and the token's pools
hold enough to make it plausible.

A token without a price is not a failure. A refresh in which no token has one is a failure, and so is a failed list. A
refresh in which some tokens had no answer is not complete.

Emits `prices.refreshed`, `prices.asking_failed`, `price.jump_held`, `price.jump_accepted`, `price.disappeared`,
`prices.memory_unreadable`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from holdfast.types import JSON, KV, Logger
from tocsin.errors import MalformedShape
from tocsin.prices.price import PoolFloors, floors_of
from tocsin.prices.store import (
    CachedPrice,
    PricePoint,
    RemainingCalls,
    accepted_point,
    append,
    get_cached_token_prices,
    peg_of,
    publish_tokens,
    put_token_price,
    tracked_tokens,
    traded_tokens,
)
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import Settings
from tocsin.shape import FreeForm, Shape
from tocsin.stacks import TokenPrice
from tocsin.text import long_duration
from tocsin.upstream.answer import BadRequest, Failure, Gone, Limited, Ok, Unauthorised
from tocsin.upstream.tenero import TeneroClient

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
RELIST_MS = 86_400_000
LONG_MONTH_MS = 31 * 86_400_000

# priced: accepted. unpriced: the source has no price. held: a jump, held back for now.
PriceKind: TypeAlias = Literal["priced", "unpriced", "held"]

MEMORY_KEY = "tenero:memory"
PAGES_MAX, SINGLES_MAX = 3, 4  # calls of one refresh: for pages of the list, and for single tokens

# A single call may wait this long for its permit and its answer; with less time left, no call is begun.
SINGLE_S = 80.0


@dataclass(frozen=True, slots=True)
class HeldPrice(Shape):
    """A price that jumped and was held back."""

    price_usd: float | None
    decimals: int | None


@dataclass(frozen=True, slots=True)
class TokenMemory(Shape):
    """What is remembered about a token between refreshes."""

    asked_at: int = 0
    missed_at: int | None = None  # when the list was last read without finding it
    unlisted: bool = False  # it was not found because it is not in the list
    held: HeldPrice | None = None


NEW = TokenMemory()


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """Tokens to look for in the list, and tokens that get a single call; in each, the one that waited longest is first.

    A token may be in both: it gets a single call first, in case the list uses up all calls, and is then searched in the
    list, in case it is back.
    """

    listed: tuple[str, ...]
    single: tuple[str, ...]
    single_first: bool


def plan_refresh(token_ids: Iterable[str], memory: Mapping[str, TokenMemory], now: int) -> RefreshPlan:
    def of(token_id: str) -> TokenMemory:
        return memory.get(token_id, NEW)

    oldest_first = tuple(sorted(token_ids, key=lambda token_id: of(token_id).asked_at))
    listed = tuple(token_id for token_id in oldest_first if of(token_id).missed_at is None)
    single = tuple(token_id for token_id in oldest_first if of(token_id).missed_at is not None)
    if not single:
        return RefreshPlan(listed, (), single_first=False)
    asked_at, missed_at = of(single[0]).asked_at, of(single[0]).missed_at or 0
    single_first = asked_at < (of(listed[0]).asked_at if listed else missed_at)
    if len(single) <= PAGES_MAX and all(_is_unlisted(of(token_id), now) for token_id in single):
        return RefreshPlan(listed, single, single_first and bool(listed))
    return RefreshPlan(oldest_first, single if single_first else (), single_first)


def _is_unlisted(token: TokenMemory, now: int) -> bool:
    """Whether there is no need to search the list for this token."""
    return token.unlisted and token.missed_at is not None and 0 <= now - token.missed_at < RELIST_MS


def memory_to_json(memory: Mapping[str, TokenMemory]) -> JSON:
    return {token_id: token.to_json() for token_id, token in memory.items()}


def memory_from_json(stored: JSON, token_ids: Iterable[str]) -> dict[str, TokenMemory]:
    """The memory of these tokens; raises `MalformedShape` if the stored value is invalid."""
    if not isinstance(stored, dict):
        raise MalformedShape(f"expected an object, found {type(stored).__name__}")
    return {token_id: TokenMemory.from_json(stored[token_id]) for token_id in token_ids if token_id in stored}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`entry` is what to write; None if the cache stays as it is.

    `jumped` marks a jump, held back or not; `why` is the reason for holding it back.
    """

    kind: PriceKind
    entry: CachedPrice | None
    jumped: bool = False
    why: str | None = None


def judge(
    seen: TokenPrice,
    cached: CachedPrice | None,
    held: HeldPrice | None,
    *,
    now: int,
    rate_limit: RemainingCalls,
    jump_factor: float,
    floors: PoolFloors,
) -> Verdict:
    """Decide about a price. `cached` is what readers see now, `held` what the last refresh held back."""
    decimals = known_decimals(seen, cached)
    entry = CachedPrice(seen.price_usd, decimals, now, rate_limit, seen.liquidity_usd, seen.volume_usd)
    if seen.price_usd is None:
        has_price = cached is not None and cached.price_usd is not None
        return Verdict("unpriced", None if has_price or _is_same(seen.token_id, entry, cached, floors) else entry)
    jumped = cached is not None and _is_jump(cached, seen, jump_factor)
    if jumped and (held is None or _is_jump(held, seen, jump_factor)):
        return Verdict("held", None, jumped=True, why="seen once")
    if jumped and not floors.holds_enough(seen.token_id, seen.liquidity_usd):
        return Verdict("held", _thinned(cached, seen), jumped=True, why=_small_pool(seen.liquidity_usd, floors))
    return Verdict("priced", None if _is_same(seen.token_id, entry, cached, floors) else entry, jumped)


def known_decimals(seen: TokenPrice, cached: CachedPrice | None) -> int | None:
    """The decimals of the source, or the cached ones if it omits them this time."""
    return seen.decimals if seen.decimals is not None or cached is None else cached.decimals


def _thinned(cached: CachedPrice | None, seen: TokenPrice) -> CachedPrice | None:
    """The cached price with the current values of its pools, so that a token with emptied pools becomes thin."""
    if cached is None or cached.liquidity_usd == seen.liquidity_usd:
        return None
    return replace(cached, liquidity_usd=seen.liquidity_usd, volume_usd=seen.volume_usd)


def _small_pool(liquidity_usd: float | None, floors: PoolFloors) -> str:
    if liquidity_usd is None:
        return "the source does not report what its pools hold"
    return f"its pools hold {liquidity_usd:,.2f} USD, less than {floors.liquidity_usd:,.2f}"


def _is_same(token_id: str, entry: CachedPrice, cached: CachedPrice | None, floors: PoolFloors) -> bool:
    """Whether the cache already has the same, and is not too old. Of the pools, only thin or not thin matters."""
    return (
        cached is not None
        and (cached.price_usd, cached.decimals) == (entry.price_usd, entry.decimals)
        and floors.is_thin(token_id, cached.liquidity_usd, cached.volume_usd)
        == floors.is_thin(token_id, entry.liquidity_usd, entry.volume_usd)
        and 0 <= entry.fetched_at - cached.fetched_at < HOUR_MS
    )


def _is_jump(known: CachedPrice | HeldPrice, seen: TokenPrice, factor: float) -> bool:
    if known.price_usd is None or seen.price_usd is None:
        return False
    if None not in {known.decimals, seen.decimals} and known.decimals != seen.decimals:
        return True
    low, high = sorted((known.price_usd, seen.price_usd))
    return high > low * factor


EMPTY_RESULT: FreeForm = {
    "tokensAttempted": 0,
    "succeeded": 0,
    "failed": 0,
    "withoutPrice": 0,
    "heldBack": 0,
    "unasked": 0,
    "written": 0,
    "calls": 0,
    "rateLimitRemaining": {"minute": None, "month": None},
    "unpricedTokens": [],
}


async def refresh_prices(context: TaskContext, settings: Settings) -> TaskResult:
    """Refresh the prices of the tracked tokens, and publish which those are."""
    tracked = tracked_tokens(await traded_tokens(context.db))
    await publish_tokens(context.kv, tracked)
    token_ids = [token_id for token_id in tracked if peg_of(token_id) is None]
    cached = await get_cached_token_prices(context.kv, token_ids)
    memory = await _read_memory(context.kv, token_ids, context.logger)
    began, tenero = context.clock.monotonic(), context.upstream("tenero", TeneroClient)
    refresh = _Refresh(context, settings, tenero, token_ids, cached, memory, began)
    try:
        await refresh.ask_all()
    finally:
        if refresh.accepted:
            await context.db.batch(append(context.db, refresh.accepted))
        await context.kv.put(MEMORY_KEY, json.dumps(memory_to_json(refresh.memory)))
    return refresh.result()


@dataclass(slots=True)
class _Refresh:
    """The state of one refresh: what is known, and what it has done so far."""

    context: TaskContext
    settings: Settings
    tenero: TeneroClient
    token_ids: Sequence[str]
    cached: dict[str, CachedPrice]
    memory: dict[str, TokenMemory]
    began: float
    verdicts: Counter[PriceKind] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)
    written: int = 0
    accepted: list[PricePoint] = field(default_factory=list)
    asked_singly: set[str] = field(default_factory=set)
    list_failure: Failure | None = None
    stopped: bool = False  # make no further calls in this refresh

    async def ask_all(self) -> None:
        plan = plan_refresh(self.token_ids, self.memory, self.context.clock.now())
        if plan.single_first:
            await self._ask_singly(plan.single)
            await self._ask_list(plan.listed)
        else:
            unlisted = await self._ask_list(plan.listed)
            await self._ask_singly(
                sorted([*plan.single, *unlisted], key=lambda token_id: self._remembered(token_id).asked_at)
            )

    async def _ask_list(self, token_ids: Sequence[str]) -> Sequence[str]:
        """Take the prices of the list; returns the tokens that it lacks."""
        if self.stopped or not token_ids:
            return ()
        self.context.checkpoint()
        listed = await self.tenero.listed_prices(token_ids, self.context.session, PAGES_MAX)
        now = self.context.clock.now()
        for token_id, price in listed.prices.items():
            memory = self._remembered(token_id)
            self.memory[token_id] = replace(memory, asked_at=now, missed_at=None, unlisted=False)
            if token_id not in self.asked_singly:
                await self._take(price, listed.seen_at[token_id])
        if listed.failure is not None:
            self.list_failure = listed.failure
            self._failed({key: listed.failure for key in listed.missing if key not in self.asked_singly})
        if listed.pages:
            for token_id in listed.missing:
                unlisted = token_id in listed.unlisted
                self.memory[token_id] = replace(self._remembered(token_id), missed_at=now, unlisted=unlisted)
        return listed.missing if listed.failure is None else ()

    async def _ask_singly(self, token_ids: Sequence[str]) -> None:
        for token_id in token_ids[:SINGLES_MAX]:
            if self.stopped or self.context.time_left_s() < min(SINGLE_S, self.settings.tenero_slice / 2_000):
                return
            self.context.checkpoint()
            session = self.context.session
            answer = await self.tenero.fetch_token_price_usd(token_id, session.logger, session)
            seen_at = self.context.clock.now()
            if not isinstance(answer, Ok):
                self._failed({token_id: answer})
            if not self.stopped:
                self.asked_singly.add(token_id)
                memory, now = self._remembered(token_id), self.context.clock.now()
                missed_at = memory.missed_at if memory.unlisted else None  # it now had its single call
                self.memory[token_id] = replace(memory, asked_at=now, missed_at=missed_at)
            if isinstance(answer, Ok):
                await self._take(answer.value, seen_at)

    async def _take(self, seen: TokenPrice, seen_at: int) -> None:
        """Accept a price or hold it back, and write the result."""
        token_id = seen.token_id
        memory, cached = self.memory[token_id], self.cached.get(token_id)
        verdict = judge(
            seen,
            cached,
            memory.held,
            now=seen_at,
            rate_limit=self._remaining_calls(),
            jump_factor=self.settings.price_jump_factor,
            floors=floors_of(self.settings),
        )
        was = None if cached is None else cached.price_usd
        logger = self.context.logger.bind(token=token_id)
        if verdict.jumped:
            log = logger.warning if verdict.kind == "held" else logger.info
            log(
                "price.jump_held" if verdict.kind == "held" else "price.jump_accepted",
                was=was,
                seen=seen.price_usd,
                decimals=seen.decimals,
                factor=self.settings.price_jump_factor,
                why=verdict.why,
            )
        elif verdict.kind == "unpriced" and was is not None:
            logger.warning("price.disappeared", kept=was)
        held = HeldPrice(seen.price_usd, seen.decimals) if verdict.kind == "held" else None
        self.memory[token_id] = replace(memory, held=held)
        if verdict.kind == "priced" or (verdict.kind == "unpriced" and was is None):
            self.accepted.append(accepted_point(seen, known_decimals(seen, cached), seen_at))
        if verdict.entry is not None:
            await put_token_price(self.context.kv, token_id, verdict.entry)
            self.cached[token_id] = verdict.entry
            self.written += 1
        self.verdicts[verdict.kind] += 1
        self.context.progress(self._attempted, len(self.token_ids), **self._counters())

    def _failed(self, failures: Mapping[str, Failure]) -> None:
        """Count and report tokens without an answer; decide whether to continue."""
        if not failures:
            return
        self.failures |= failures
        token_id, failure = next(iter(failures.items()))
        self.stopped = (
            failure is self.list_failure
            or isinstance(failure, Limited | Unauthorised | Gone | BadRequest)
            or self.context.session.given_up
        )
        self.context.logger.warning(
            "prices.asking_failed",
            answer=failure.kind,
            reason=failure.reason,
            tokens=len(failures),
            first=token_id,
            goes_on=not self.stopped,
        )
        self.context.progress(self._attempted, len(self.token_ids), **self._counters())

    def result(self) -> TaskResult:
        counters = self._counters()
        counters["durationMs"] = int((self.context.clock.monotonic() - self.began) * 1000)
        counters["unpricedTokens"] = [
            token_id
            for token_id in self.token_ids
            if token_id not in self.cached or self.cached[token_id].price_usd is None
        ]
        failure = self._failure()
        error = self._nothing_priced() if failure is None else failure.reason
        incomplete = self._unanswered()
        log = self.context.logger.info if error is None else self.context.logger.error
        log("prices.refreshed", error=error or incomplete, **counters)
        if error is None or isinstance(failure, Limited):
            return TaskResult(
                counters,
                limited_until=self._limited_until(),
                incomplete=incomplete,
                by_budget=self._is_limited_by_budget(),
                progressed=self.verdicts["priced"] > 0,
            )
        kind = None if failure is None else type(failure).__name__
        return TaskResult(counters, error, self._limited_until(), kind)

    def _unanswered(self) -> str | None:
        """A sentence about tokens without an answer; None if all had one."""
        if not self.failures and self.list_failure is None:
            return None
        failure = self.list_failure or next(iter(self.failures.values()))
        return f"{failure.reason} ({len(self.failures)} of {len(self.token_ids)} tokens had no answer)"

    def _is_limited_by_budget(self) -> bool:
        limited = [failure for failure in self.failures.values() if isinstance(failure, Limited)]
        return bool(limited) and all(failure.by_budget for failure in limited)

    @property
    def _attempted(self) -> int:
        return self.verdicts.total() + len(self.failures)

    def _counters(self) -> FreeForm:
        remaining: FreeForm = {**self._remaining_calls()}
        return {
            "startedAt": self.context.started_at,
            "tokensAttempted": self._attempted,
            "succeeded": self.verdicts["priced"],
            "failed": len(self.failures),
            "withoutPrice": self.verdicts["unpriced"],
            "heldBack": self.verdicts["held"],
            "unasked": len(self.token_ids) - self._attempted,
            "written": self.written,
            "calls": self.context.session.calls,
            "rateLimitRemaining": remaining,
        }

    def _failure(self) -> Failure | None:
        """The answer that makes the refresh a failure, if any."""
        if self.list_failure is not None and not (isinstance(self.list_failure, Limited) and self.verdicts["priced"]):
            return self.list_failure
        return None if self.verdicts["priced"] else next(iter(self.failures.values()), None)

    def _nothing_priced(self) -> str | None:
        """Why a refresh without a failed answer is still a failure; None if it is not."""
        if self.verdicts["priced"] or not self._attempted:
            return None
        held, factor = self.verdicts["held"], self.settings.price_jump_factor
        if held:
            return f"all {held} prices jumped by more than {factor:g} times: held back"
        return (
            f"tenero answered, but has no price for any of {self.verdicts['unpriced']} tokens:"
            " check TENERO_API_URL and whether its answers have changed"
        )

    def _limited_until(self) -> int | None:
        """When the source can be called again, if a 429 or its remaining calls limit us."""
        until = [failure.until for failure in self.failures.values() if isinstance(failure, Limited)]
        remaining, now = self._remaining_calls(), self.context.clock.now()
        if self.context.session.calls:
            until += [now + MINUTE_MS] if remaining["minute"] == 0 else []
            until += [now + HOUR_MS] if remaining["month"] == 0 else []
        return max(until, default=None)

    def _remaining_calls(self) -> RemainingCalls:
        limits = self.tenero.client.limits
        return {"minute": limits.minute.remaining, "month": limits.month.remaining}

    def _remembered(self, token_id: str) -> TokenMemory:
        return self.memory.get(token_id, NEW)


async def _read_memory(kv: KV, token_ids: Sequence[str], logger: Logger) -> dict[str, TokenMemory]:
    text = await kv.get(MEMORY_KEY)
    if text is None:
        return {}
    try:
        return memory_from_json(json.loads(text), token_ids)
    except (ValueError, MalformedShape) as error:
        logger.warning("prices.memory_unreadable", key=MEMORY_KEY, reason=str(error)[:200])
        return {}


def refresh_prices_task(settings: Settings) -> Task:
    cadence_ms = settings.tenero_cadence
    return Task(
        name="tenero",
        title="Token prices",
        upstream="tenero",
        cadence_ms=cadence_ms,
        slice_ms=settings.tenero_slice,
        calls_per_run=1.0,  # one page of the list; the calls for tokens it lacks are measured
        calls_per_run_max=PAGES_MAX + SINGLES_MAX,
        run=lambda context: refresh_prices(context, settings),
        enabled=settings.tenero_enabled,
        empty_result=EMPTY_RESULT,
        why=(
            f"a price on the board may be {long_duration(cadence_ms)} old; one page of Tenero's list per run is"
            f" {LONG_MONTH_MS // cadence_ms:,} calls in a month of 31 days"
        ),
    )
