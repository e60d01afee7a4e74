"""Look-ups: what other programs ask Hiro and Tenero through us, with our key, and answers that are kept for a while.

They run inside the object, which owns the budget. Only facts are kept: an answer with its body, and for a few minutes
at most that there is nothing ("not found"). An answer that is no longer fresh is confirmed by its ETag, which costs a
call too. The same question is asked once, however many wait for it.

The calls are made in the request lane. Each program has a share of the lane, as clients that submit have. What nobody
has asked for lately may use all of it; an answer that is just no longer fresh may be confirmed with half of it, and an
older one with more. If there is no call left, or the upstream has no answer, the last answer is given, marked as stale,
for up to a day; a "not found" never is.

The state lives as long as the process, within a bound of bytes; the answer that was not used for longest goes first.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, TypeAlias, TypeGuard

from holdfast.errors import ObjectReset
from holdfast.types import Clock
from tocsin.shape import Shape
from tocsin.upstream.answer import BadRequest, Failure, Gone, Limited, NotFound, Ok, Unavailable
from tocsin.upstream.client import Relayed, UpstreamClient
from tocsin.upstream.limiter import CallSession
from tocsin.upstream.shares import ClientShares
from tocsin.upstream.windows import Lane

BYTES_MAX = 16 * 1024 * 1024
ANSWER_BYTES_MAX = BYTES_MAX // 16  # a longer one is given, but not kept
ENTRY_BYTES = 500  # of memory, besides the texts
ABSENT_S = 300
STALE_MAX_S = 86_400
CONTRACT_CALL_COST = 2  # until a header says otherwise
RETRY_S = 5
Question: TypeAlias = tuple[str, str, str | None]  # upstream, path with query, body
How: TypeAlias = Literal["hit", "miss", "confirmed", "stale", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Lookup(Shape):
    """A question of one program. `share` is its part of the lane, `pattern` what its path matched."""

    upstream: str
    target: str
    body: str | None
    pattern: str
    fresh_s: int
    key: str
    share: float

    @property
    def question(self) -> Question:
        return self.upstream, self.target, self.body


@dataclass(frozen=True, slots=True)
class LookupAnswer(Shape):
    """What the program gets: the upstream's JSON with its age, or a sentence and a code.

    `reason` explains a stale answer or a refusal, `retry_s` says when to ask again.
    """

    how: How
    status: int
    body: str = ""
    age_s: int = 0
    fresh_s: int = 0
    reason: str = ""
    code: str = ""
    retry_s: int | None = None


@dataclass(slots=True)
class LookupUse(Shape):
    """What one program has used since the process started.

    `calls` were made for it, `hits` were answered without one. `stale` answers were given for lack of a new one;
    `refused` ones had no call left, `failed` ones no usable answer. Mutable, because counting must be cheap.
    """

    lookups: int = 0
    calls: int = 0
    hits: int = 0
    stale: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(slots=True)
class Kept:
    """A kept answer, confirmed at a (monotonic) time. `shown` is what the routes made of it, at an age in seconds."""

    status: int
    body: str
    etag: str | None
    fresh_s: int
    confirmed_s: float
    shown: tuple[int, object] | None = None

    def age_s(self, now_s: float) -> int:
        return max(0, int(now_s - self.confirmed_s))

    def answer(self, how: How, now_s: float, reason: str = "") -> LookupAnswer:
        return LookupAnswer(how, self.status, self.body, self.age_s(now_s), self.fresh_s, reason)


class LookUps:
    """All look-ups of one object."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Question, Kept] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[Question, asyncio.Task[LookupAnswer]] = {}
        self._shares = ClientShares()
        self._costs: dict[str, int] = {}  # by pattern, as the newest headers say
        self.uses: dict[str, LookupUse] = {}

    def fresh(self, question: Question, now_s: float) -> Kept | None:
        """The kept answer if it is fresh."""
        kept = self._kept.get(question)
        if kept is None or not 0 <= now_s - kept.confirmed_s < kept.fresh_s:
            return None
        self._kept.move_to_end(question)
        return kept

    async def answer(self, client: UpstreamClient, asked: Lookup, session: CallSession, clock: Clock) -> LookupAnswer:
        """Answer from what is kept, or ask the upstream."""
        now_s = clock.monotonic()
        kept = self.fresh(asked.question, now_s)
        if kept is not None:
            self.count(asked.key, "hit")
            return kept.answer("hit", now_s)
        task = self._under_way.get(asked.question)
        if task is not None:
            answer = await asyncio.shield(task)
            how: How = "hit" if answer.how in {"miss", "confirmed"} else answer.how
            self.count(asked.key, how)
            return replace(answer, how=how)
        known = self._kept.get(asked.question)
        wait_s = self._wait_s(client, asked, known, now_s)
        if wait_s:
            reason = f"{asked.key} has no call to {asked.upstream} left for this now"
            refusal = LookupAnswer("refused", 429, reason=reason, code="share_used", retry_s=wait_s)
            answer = _instead(refusal, known, now_s)
        else:
            asking = self._ask(client, asked, known, session, clock)
            task = self._under_way[asked.question] = asyncio.create_task(asking)
            task.add_done_callback(lambda done: self._ended(asked.question, done))
            answer = await asyncio.shield(task)
        self.count(asked.key, answer.how, session.calls)
        return answer

    def _wait_s(self, client: UpstreamClient, asked: Lookup, known: Kept | None, now_s: float) -> int:
        share = asked.share
        if _may_be_stale(known, now_s):  # the more is used, the older an answer must be: no question is left behind
            share *= (1 + (known.age_s(now_s) - known.fresh_s) / STALE_MAX_S) / 2
        return ceil(self._shares.wait_s([asked.key], client.limiter.calls_left(Lane.REQUEST), now_s, [share]))

    async def _ask(
        self, client: UpstreamClient, asked: Lookup, known: Kept | None, session: CallSession, clock: Clock
    ) -> LookupAnswer:
        cost = self._costs.get(asked.pattern, 1 if asked.body is None else CONTRACT_CALL_COST)
        self._shares.charge([asked.key], cost, clock.monotonic())  # until the real cost is known: many may ask at once
        try:
            etag = None if known is None else known.etag
            answer = await client.relay(asked.target, session, body=asked.body, etag=etag, cost=cost)
        except asyncio.CancelledError:
            raise ObjectReset("the object was reset while it asked the upstream") from None
        finally:
            self._shares.charge([asked.key], session.calls - cost, clock.monotonic())
        assert not isinstance(answer, NotFound)  # it is relayed as it came
        if isinstance(answer, Ok):
            self._costs[asked.pattern] = answer.value.cost
            return self._keep(asked, answer.value, known, clock.monotonic())
        if isinstance(answer, BadRequest | Gone):  # the upstream does not answer this question any more
            self._drop(asked.question)
            known = None
        return _instead(_failed(answer, clock.now()), known, clock.monotonic())

    def _keep(self, asked: Lookup, relayed: Relayed, known: Kept | None, now_s: float) -> LookupAnswer:
        self._drop(asked.question)
        if relayed.status == 304 and known is not None:
            kept = replace(known, confirmed_s=now_s)
        else:
            fresh_s = asked.fresh_s if relayed.status == 200 else min(ABSENT_S, asked.fresh_s)
            kept = Kept(relayed.status, relayed.body, relayed.etag, fresh_s, now_s)
        if _bytes_of(asked.question, kept) <= ANSWER_BYTES_MAX:
            self._kept[asked.question] = kept
            self._bytes += _bytes_of(asked.question, kept)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))
        return kept.answer("miss" if relayed.status != 304 else "confirmed", now_s)

    def _drop(self, question: Question) -> None:
        kept = self._kept.pop(question, None)
        if kept is not None:
            self._bytes -= _bytes_of(question, kept)

    def _ended(self, question: Question, task: "asyncio.Task[LookupAnswer]") -> None:
        """Forget the call. Its error counts as retrieved, because a caller that is gone must not cause a warning."""
        del self._under_way[question]
        if not task.cancelled():
            task.exception()

    def count(self, key: str, how: How, calls: int = 0) -> None:
        """Count a look-up of this program."""
        use = self.uses.setdefault(key, LookupUse())
        use.lookups += 1
        use.calls += calls
        use.hits += how == "hit"
        use.stale += how == "stale"
        use.refused += how == "refused"
        use.failed += how == "failed"


def _may_be_stale(known: Kept | None, now_s: float) -> TypeGuard[Kept]:
    return known is not None and known.status == 200 and known.age_s(now_s) <= known.fresh_s + STALE_MAX_S


def _instead(refusal: LookupAnswer, known: Kept | None, now_s: float) -> LookupAnswer:
    """The last answer, marked as stale, if it may still be given."""
    return known.answer("stale", now_s, refusal.reason) if _may_be_stale(known, now_s) else refusal


def _failed(answer: Failure, now: int) -> LookupAnswer:
    """An answer that is not a fact, with a status that says so: the upstream's own, unless it is about our key."""
    match answer:
        case Limited():
            code = "budget_used" if answer.by_budget else "upstream_limited"
            retry_s = max(1, ceil((answer.until - now) / 1000))
            return LookupAnswer("refused", 429, reason=answer.reason, code=code, retry_s=retry_s)
        case BadRequest():
            # Not 404, which would look like a fact: the upstream does not know this path at all.
            status = answer.status if answer.status in {400, 422} else 502
            reason = f"{answer.reason}: {answer.message}" if answer.message else answer.reason
            return LookupAnswer("failed", status, reason=reason, code="upstream_refused")
        case Gone():
            return LookupAnswer("failed", 410, reason=answer.reason, code="upstream_gone")
        case Unavailable():
            status = answer.status if answer.status in {500, 502, 503, 504} else 502 if answer.status else 504
            reason, code = answer.reason, "upstream_unavailable"
            return LookupAnswer("failed", status, reason=reason, code=code, retry_s=RETRY_S)
        case _:
            return LookupAnswer("failed", 502, reason=answer.reason, code="upstream_unusable")


def _bytes_of(question: Question, kept: Kept) -> int:
    return ENTRY_BYTES + len(question[1]) + len(question[2] or "") + 2 * len(kept.body)  # `shown` has it once more
