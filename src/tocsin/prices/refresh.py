"""The task `tenero`: every 5 minutes, the price of every active token, into KV.

The list first, a hundred tokens a call; single calls for what it lacks, a few a round; nothing for
stablecoins with a peg. What was learned is written at once, so a round that is cut off has kept it.

A token without a price is no failure. A round in which no token has one is, and so is a list that failed.

Emits `prices.refreshed`, `prices.asking_failed`, `price.jump_held`, `price.jump_believed`,
`price.gone_missing`, `prices.notes_unreadable`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tocsin.bindings import JSON, KV, Logger
from tocsin.chain_model import TokenPrice
from tocsin.prices.cache import CachedPrice, RateLimit, get_cached_token_prices, put_token_price
from tocsin.prices.pricing import peg_of
from tocsin.prices.rotation import NEW, Notes, notes_from_json, notes_to_json, plan_round
from tocsin.prices.tracked_tokens import active_tokens, publish_tracked
from tocsin.prices.verdict import JUMP_FACTOR, judge
from tocsin.scheduler.task import Outcome, Task, TaskContext
from tocsin.upstream.answer import BadRequest, Failure, Gone, Limited, Unauthorised

NOTES_KEY = "tenero:notes"

# A single call may wait this long for its permit and its answer; with less time left none is begun.
SINGLE_S = 80.0
EMPTY_RESULT: Mapping[str, JSON] = {
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
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """What an operator may set."""

    enabled: bool = True
    cadence_ms: int = 300_000
    slice_ms: int = 240_000
    pages_max: int = 3
    singles_max: int = 4
    jump_factor: float = JUMP_FACTOR
    calls_per_run: float = 1.0  # one page of the list; what it lacks shows in the calls that rounds make


def refresh_prices(options: PriceOptions) -> Task:
    async def run(context: TaskContext) -> Outcome:
        tracked = await active_tokens(context.db)
        await publish_tracked(context.kv, tracked)
        token_ids = [token_id for token_id in tracked if peg_of(token_id) is None]
        refresh = _Refresh(
            context,
            options,
            token_ids,
            dict(await get_cached_token_prices(context.kv, token_ids)),
            await _read_notes(context.kv, token_ids, context.logger),
            context.clock.monotonic(),
        )
        try:
            await refresh.ask_all()
        finally:
            await context.kv.put(NOTES_KEY, json.dumps(notes_to_json(refresh.notes)))
        return refresh.outcome()

    return Task(
        name="tenero",
        upstream="tenero",
        cadence_ms=options.cadence_ms,
        slice_ms=options.slice_ms,
        calls_per_run=options.calls_per_run,
        run=run,
        enabled=options.enabled,
        calls_per_run_max=options.pages_max + options.singles_max,
        empty_result=EMPTY_RESULT,
        why="a price on a board may be five minutes old; one page of the list every five minutes is 8,928"
        " calls in a long month, which fits Tenero's smallest plan",
    )


@dataclass(slots=True)
class _Refresh:
    """One round: what is known, and what came of it so far."""

    context: TaskContext
    options: PriceOptions
    token_ids: Sequence[str]
    cached: dict[str, CachedPrice]
    notes: Notes
    began: float
    priced: int = 0
    unpriced: int = 0
    held: int = 0
    written: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)
    asked_singly: set[str] = field(default_factory=set)
    list_failure: Failure | None = None
    stopped: bool = False  # no further call makes sense in this round

    async def ask_all(self) -> None:
        now, pages_max = self.context.clock.now(), self.options.pages_max
        plan = plan_round(self.token_ids, self.notes, now, pages_max=pages_max)
        if plan.single_first:
            await self._ask_singly(plan.single)
            await self._ask_list(plan.listed)
        else:
            unlisted = await self._ask_list(plan.listed)
            await self._ask_singly(sorted([*plan.single, *unlisted], key=self._asked_at))

    async def _ask_list(self, token_ids: Sequence[str]) -> Sequence[str]:
        """Take what the list has; answers the tokens that it lacks."""
        if self.stopped or not token_ids:
            return ()
        self.context.checkpoint()
        found = await self.context.tenero.prices(
            token_ids, self.context.session, pages_max=self.options.pages_max, singles_max=0
        )
        now = self.context.clock.now()
        for token_id, price in found.prices.items():
            note = self.notes.get(token_id, NEW)
            self.notes[token_id] = replace(note, asked_at=now, missed_at=None, unlisted=False)
            if token_id not in self.asked_singly:
                await self._take(price)
        if found.failures:
            self.list_failure = next(iter(found.failures.values()))
            self._failed(
                {key: value for key, value in found.failures.items() if key not in self.asked_singly}
            )
        for token_id in (*found.unasked, *(found.failures if found.pages else ())):
            note, unlisted = self.notes.get(token_id, NEW), token_id in found.unlisted
            self.notes[token_id] = replace(note, missed_at=now, unlisted=unlisted)
        return found.unasked

    async def _ask_singly(self, token_ids: Sequence[str]) -> None:
        for token_id in token_ids[: self.options.singles_max]:
            if self.stopped or self.context.time_left_s() < min(SINGLE_S, self.options.slice_ms / 2_000):
                return
            self.context.checkpoint()
            found = await self.context.tenero.prices(
                [token_id], self.context.session, pages_max=0, singles_max=1
            )
            self._failed(found.failures)
            if not self.stopped:
                self.asked_singly.add(token_id)
                note, now = self.notes.get(token_id, NEW), self.context.clock.now()
                missed_at = note.missed_at if note.unlisted else None  # it had its turn alone
                self.notes[token_id] = replace(note, asked_at=now, missed_at=missed_at)
            for price in found.prices.values():
                await self._take(price)

    async def _take(self, seen: TokenPrice) -> None:
        """Believe a price, or not, and write what is to be written."""
        token_id = seen.token_id
        note, cached = self.notes[token_id], self.cached.get(token_id)
        verdict = judge(
            seen,
            cached,
            note.held,
            now=self.context.clock.now(),
            rate_limit=self._rate_limit(),
            jump_factor=self.options.jump_factor,
        )
        was = None if cached is None else cached.price_usd
        logger = self.context.logger.bind(token=token_id)
        if verdict.jumped:
            log = logger.warn if verdict.kind == "held" else logger.info
            log(
                "price.jump_held" if verdict.kind == "held" else "price.jump_believed",
                was=was,
                seen=seen.price_usd,
                decimals=seen.decimals,
                factor=self.options.jump_factor,
            )
        elif verdict.kind == "unpriced" and was is not None:
            logger.warn("price.gone_missing", kept=was)
        self.notes[token_id] = replace(note, held=seen if verdict.kind == "held" else None)
        if verdict.entry is not None:
            await put_token_price(self.context.kv, token_id, verdict.entry)
            self.cached[token_id] = verdict.entry
            self.written += 1
        self.priced += verdict.kind == "priced"
        self.unpriced += verdict.kind == "unpriced"
        self.held += verdict.kind == "held"
        self.context.progress(self._attempted(), len(self.token_ids), **self._counters())

    def _failed(self, failures: Mapping[str, Failure]) -> None:
        """Count and report tokens that were asked for in vain; see whether to go on at all."""
        if not failures:
            return
        self.failures |= failures
        token_id, failure = next(iter(failures.items()))
        self.stopped = (
            failure is self.list_failure
            or isinstance(failure, Limited | Unauthorised | Gone | BadRequest)
            or self.context.session.given_up
        )
        self.context.logger.warn(
            "prices.asking_failed",
            answer=failure.kind,
            reason=failure.reason,
            tokens=len(failures),
            first=token_id,
            goes_on=not self.stopped,
        )
        self.context.progress(self._attempted(), len(self.token_ids), **self._counters())

    def outcome(self) -> Outcome:
        result = self._counters() | {
            "durationMs": int((self.context.clock.monotonic() - self.began) * 1000),
            "unpricedTokens": [
                token_id
                for token_id in self.token_ids
                if token_id not in self.cached or self.cached[token_id].price_usd is None
            ],
        }
        failure = self._failure()
        error = self._nothing_priced() if failure is None else failure.reason
        log = self.context.logger.info if error is None else self.context.logger.error
        log("prices.refreshed", error=error, **result)
        return Outcome(
            result, error, self._limited_until(), None if failure is None else type(failure).__name__
        )

    def _counters(self) -> dict[str, JSON]:
        limit = self._rate_limit()
        return {
            "startedAt": self.context.started_at,
            "tokensAttempted": self._attempted(),
            "succeeded": self.priced,
            "failed": len(self.failures),
            "withoutPrice": self.unpriced,
            "heldBack": self.held,
            "unasked": len(self.token_ids) - self._attempted(),
            "written": self.written,
            "calls": self.context.session.calls,
            "rateLimitRemaining": {"minute": limit.minute, "month": limit.month},
        }

    def _attempted(self) -> int:
        return self.priced + self.unpriced + self.held + len(self.failures)

    def _failure(self) -> Failure | None:
        """The answer that makes the round a failure, if one does."""
        if self.list_failure is not None and not (isinstance(self.list_failure, Limited) and self.priced):
            return self.list_failure
        return None if self.priced else next(iter(self.failures.values()), None)

    def _nothing_priced(self) -> str | None:
        """Why a round without a failed answer is a failure all the same; None when it is none."""
        if self.priced or not self._attempted():
            return None
        if self.held:
            return f"all {self.held} prices jumped by more than {self.options.jump_factor:g} times: held back"
        return (
            f"tenero answered, but has no price for any of {self.unpriced} tokens:"
            " check TENERO_API_URL and whether its answers have changed"
        )

    def _limited_until(self) -> int | None:
        """When the source wants to be asked again, if it said so: by a refusal, or by calls used up."""
        until = [failure.until for failure in self.failures.values() if isinstance(failure, Limited)]
        limit, now = self._rate_limit(), self.context.clock.now()
        if self.context.session.calls:
            until += [now + MINUTE_MS] if limit.minute == 0 else []
            until += [now + HOUR_MS] if limit.month == 0 else []
        return max(until, default=None)

    def _rate_limit(self) -> RateLimit:
        limits = self.context.tenero.client.limits
        return RateLimit(limits.minute.remaining, limits.month.remaining)

    def _asked_at(self, token_id: str) -> int:
        return self.notes.get(token_id, NEW).asked_at


async def _read_notes(kv: KV, token_ids: Sequence[str], logger: Logger) -> Notes:
    text = await kv.get(NOTES_KEY)
    if text is None:
        return {}
    try:
        return notes_from_json(json.loads(text), token_ids)
    except (ValueError, KeyError, TypeError) as error:
        logger.warn("prices.notes_unreadable", key=NOTES_KEY, reason=repr(error)[:200])
        return {}
