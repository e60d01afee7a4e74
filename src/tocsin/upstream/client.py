"""All calls to upstreams go through this client: permit, attempt, classification, log line, retry.

Before every attempt the client acquires a permit from the upstream's limiter, and releases it with the limits in the
answer's headers. So retries and redirects cost as much as any call. A 429 closes the limiter for all callers, and the
retry waits there; after a 5xx or no answer, the client backs off with full jitter. A call takes at most the session's
patience plus one attempt's timeout, whatever the upstream does. Numbers in headers may be nonsense; the module of each
upstream (`hiro.py`, `tenero.py`) interprets its own.

Emits `upstream.attempt_failed` for every failed attempt, `upstream.call_withheld` when no permit came in time,
`upstream.answer_refused` when pages contradict each other, `upstream.rows_refused` when some rows cannot be read,
`upstream.key_ignored` when a configured key is treated as none, and `upstream.deprecation_announced` once per wording.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Generic, TypeVar
from urllib.parse import urljoin, urlsplit

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin import __version__
from tocsin.errors import FetchError, FetchTooLarge, MalformedBody
from tocsin.fetch import Fetch, FetchResponse
from tocsin.logs import forms_of, pattern_of
from tocsin.text import utc_clock
from tocsin.upstream.answer import (
    HEALTHY,
    Answer,
    BadRequest,
    Limited,
    Malformed,
    Moved,
    NotFound,
    Ok,
    Unavailable,
    classify,
)
from tocsin.upstream.budget import Denial, LimitReading, Quota
from tocsin.upstream.decode import decode, printable
from tocsin.upstream.limiter import BudgetEvent, BudgetLimiter, CallSession
from tocsin.upstream.windows import DAY_MS

T = TypeVar("T")

CHANGED = frozenset({200, 201, 202, 204})  # statuses of a successful change
JSON_CONTENT = {"content-type": "application/json"}
TIMEOUT_S = 8.0  # of an attempt
ANSWER_BYTES_MAX = 4 * 1024 * 1024
REDIRECTS_MAX = 3
RETRIES_MAX = 2  # of one call, after a 429; as many more after a 5xx, a timeout or a lost connection
BACKOFF_S = 0.5
BACKOFF_MAX_S = 8.0
BODY_START = 200  # characters of a failed answer to log
TEXT_START_BYTES = 16 * 1024  # enough for those characters and any form of a key
LIMIT_HEADERS_MAX = 20
LOGGED = re.compile(r"(?:x-)?ratelimit-[a-z-]{1,40}|retry-after")  # headers in the log line of a failure
SENTENCES_MAX = 200  # logged once
KEY_IGNORED = "key ignored"
NUMBER_MAX = 10**9  # a larger limit is noise
RETRY_AFTER_MAX_MS = 31 * DAY_MS

_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DIGITS = re.compile(r"[0-9]{1,10}")
_URL = re.compile(r"[!-~]{1,2048}")
_ETAG = re.compile(r'(?:W/)?"[!#-~]{1,200}"')


@dataclass(frozen=True, slots=True)
class Relayed:
    """An answer as it came: status 200, 404, or 304 without a body; its JSON, its ETag, and its cost in calls."""

    status: int
    body: str
    etag: str | None
    cost: int


@dataclass(slots=True)
class Call(Generic[T]):
    """One call and its attempts so far."""

    target: str  # path and query, as shown in the log
    url: str
    read: Callable[[FetchResponse], T]
    session: CallSession
    method: str = "GET"
    body: bytes | None = None
    cost: int = 1  # as how many calls the upstream counts it
    relayed: bool = False  # for another program, which also gets "not found" and "not modified" as they came
    etag: str | None = None
    deadline: float = 0.0
    attempt: int = 0
    redirects: int = 0
    limited: int = 0
    unavailable: int = 0
    retry_after_s: float = 0.0
    failure: Unavailable | None = None
    probing: bool = False


def backoff_s(retry: int, jitter: float) -> float:
    """Seconds to wait before the n-th retry (from 1): full jitter, `jitter` in [0, 1)."""
    return jitter * min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (retry - 1))


def header_number(headers: Mapping[str, str], name: str) -> int | None:
    """A count in a header; None if it is missing or not a plausible number."""
    value = headers.get(name, "").strip()
    if _DIGITS.fullmatch(value) is None:
        return None
    number = int(value)
    return number if number <= NUMBER_MAX else None


def read_retry_after(headers: Mapping[str, str], now: int) -> int | None:
    """How long to wait, in ms: `Retry-After` as seconds or as a date; None if there is none.

    A date is relative to the answer's own `Date` if there is one, so our clock may be wrong.
    """
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(RETRY_AFTER_MAX_MS, int(float(value) * 1000))
    until = _http_date_ms(value)
    if until is None:
        return None
    sent_at = _http_date_ms(headers.get("date", ""))
    return max(0, min(RETRY_AFTER_MAX_MS, until - (now if sent_at is None else sent_at)))


def _http_date_ms(value: str) -> int | None:
    if not 0 < len(value) <= 64:
        return None
    try:
        date: datetime = parsedate_to_datetime(value)
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return int(date.timestamp() * 1000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a client must know about an upstream. Messages that ask for a fix name the `*_setting`.

    `wrap` turns the generic client into the one that tasks use, with methods of its own. `probe` is a path that
    `tocsin doctor` may call: its answer is small and cheap.
    """

    name: str
    base_url: str
    url_setting: str
    key: str | None = field(repr=False)
    key_setting: str
    read_limits: Callable[[Mapping[str, str]], LimitReading]
    wrap: Callable[["UpstreamClient"], object]
    probe: str
    quota: Quota = field(default_factory=Quota)
    key_header: str = "x-api-key"
    told: set[str] = field(default_factory=set, repr=False, compare=False)  # logged once; outlives its clients

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"{self.url_setting} must look like https://api.example.org.")
        if self.key is not None and (not self.key or not self.key.isascii() or not self.key.isprintable()):
            raise UsageError(f"{self.key_setting} must be printable ASCII, or not be set at all.")

    def connect(self, fetch: Fetch, limiter: BudgetLimiter) -> object:
        """The client that tasks get by this upstream's name."""
        return self.wrap(UpstreamClient(self, fetch, limiter))


class UpstreamClient:
    """Makes the calls to one upstream. It raises no errors of its own: every call ends as an `Answer`."""

    def __init__(self, upstream: Upstream, fetch: Fetch, limiter: BudgetLimiter) -> None:
        self._upstream = upstream
        self._fetch = fetch
        self.limiter = limiter
        self._clock = limiter.clock
        self._random = limiter.random
        self._base = upstream.base_url.rstrip("/")
        self._headers = {"accept": "application/json", "user-agent": f"tocsin/{__version__}"}
        if upstream.key is not None:
            self._headers[upstream.key_header] = upstream.key
        self.limits = LimitReading()  # from the newest answer's headers

    def now(self) -> int:
        """The current time in ms, to validate times in answers."""
        return self._clock.now()

    async def get(self, target: str, parse: Callable[[JSON], T], session: CallSession) -> Answer[T]:
        """Ask for `target` (path and query)."""
        url = self._base + target
        return await self._call(Call(target, url, lambda response: parse(decode(response.body)), session))

    async def relay(
        self, target: str, session: CallSession, *, body: str | None = None, etag: str | None = None, cost: int = 1
    ) -> Answer[Relayed]:
        """Ask for `target` on behalf of another program. A request with a body is a POST that only reads.

        `etag`: that of the answer which the caller has; `cost`: as how many calls the upstream counts this one.
        """
        method, sent = ("GET", None) if body is None else ("POST", body.encode())
        call = Call(target, self._base + target, self._relayed, session, method, sent, cost, relayed=True, etag=etag)
        return await self._call(call)

    def _relayed(self, response: FetchResponse) -> Relayed:
        body, etag = response.body or b"{}", response.headers.get("etag", "")
        decode(body)
        cost = self._upstream.read_limits(response.headers).cost
        return Relayed(response.status, body.decode(), etag if _ETAG.fullmatch(etag) else None, cost)

    async def patch(self, target: str, change: JSON, session: CallSession) -> Answer[None]:
        """Change `target`. The change must be idempotent, because it is retried like a GET.

        A redirect is not followed. The body of the answer to a successful change is not read.
        """
        url, body = self._base + target, json.dumps(change).encode()
        return await self._call(Call(target, url, lambda _: None, session, method="PATCH", body=body))

    async def _call(self, call: Call[T]) -> Answer[T]:
        session = call.session
        if session.given_up:
            return Unavailable(
                f"{self._upstream.name} gave no answer {session.unanswered} times in a row: no call was made"
            )
        call.deadline = session.deadline(self._clock.monotonic())
        answer = await self._try(call)
        session.call_ended(limited=isinstance(answer, Limited), answered=not isinstance(answer, Unavailable))
        return answer

    def contract_broken(self, target: str, reason: str, session: CallSession) -> Malformed:
        """Log answers that contradict each other, like any other failure."""
        reason = f"{self._upstream.name} broke its contract: {reason}"
        session.logger.error("upstream.answer_refused", upstream=self._upstream.name, path=target[:300], reason=reason)
        return Malformed(reason)

    def rows_refused(self, target: str, reasons: Sequence[str], session: CallSession) -> None:
        """Log the unreadable rows of a good answer, in one line."""
        if reasons:
            session.logger.warning(
                "upstream.rows_refused",
                upstream=self._upstream.name,
                path=target[:300],
                count=len(reasons),
                first=self._shown(reasons[0]),
            )

    async def _try(self, call: Call[T]) -> Answer[T]:
        while True:
            denial = await self._permit(call)
            if denial is not None:
                call.session.logger.debug(
                    "upstream.call_withheld", **self._where(call), reason=denial.reason, until=denial.until
                )
                return call.failure or self._withheld(denial)
            began_s = self._clock.monotonic()
            answer = await self._attempt(call)
            call.session.on_answer(self._upstream.name, answer.kind, self._clock.monotonic() - began_s)
            if isinstance(answer, Moved):
                call.url = answer.url
                call.redirects += 1
            elif not await self._wait_to_retry(call, answer):
                return answer

    async def _permit(self, call: Call[T]) -> Denial | None:
        """Get a permit, or why there is none. An operator's run may send one call through a closed limiter."""
        call.probing = call.session.may_probe and self.limiter.probe(call.session.lane)
        call.session.may_probe = False
        if call.probing:
            return None
        return await self.limiter.acquire(call.session.lane, max(0.0, self._patience_left(call)), call.cost)

    def _withheld(self, denial: Denial) -> Limited:
        again = f"next call {utc_clock(denial.until, self._clock.now())}"
        return Limited(denial.until, f"{self._upstream.name}: {denial.reason}, {again}", denial.by_budget)

    async def _attempt(self, call: Call[T]) -> Answer[T] | Moved:
        """Make one attempt. The permit is always released, even if the caller is cancelled."""
        call.attempt += 1
        call.session.calls += call.cost
        response: FetchResponse | None = None
        problem: Unavailable | Malformed | None = None
        reading: LimitReading | None = None
        retry_after_ms: int | None = None
        closed_until = 0
        try:
            response = await self._fetch(
                call.url,
                method=call.method,
                headers=self._headers_of(call),
                body=call.body,
                timeout_s=TIMEOUT_S,
                body_max=ANSWER_BYTES_MAX,
            )
            reading = self._upstream.read_limits(response.headers)
            if reading.cost > call.cost:
                self.limiter.charge(call.session.lane, reading.cost - call.cost)
                call.session.calls += reading.cost - call.cost
            retry_after_ms = read_retry_after(response.headers, self._clock.now())
        except FetchTooLarge:
            problem = Malformed(f"{self._upstream.name} sent more than {ANSWER_BYTES_MAX} bytes", too_large=True)
        except FetchError as error:
            kind = type(error).__name__
            problem = Unavailable(f"{self._upstream.name} gave no answer ({kind}): {self._shown(str(error))}")
        finally:
            call.retry_after_s = (retry_after_ms or 0) / 1000
            limited = response is not None and response.status == 429
            closed_until = self.limiter.release(
                reading, limited=limited, retry_after_ms=retry_after_ms, probing=call.probing
            )
        if response is None or reading is None:
            assert problem is not None
            return self._failed(call, problem, None)
        self._note_limits(call, reading)
        self._note_deprecation(call, response.headers.get("warning", ""))
        answer = self._judge(call, response, closed_until)
        return answer if isinstance(answer, HEALTHY) else self._failed(call, answer, response)

    def _judge(self, call: Call[T], response: FetchResponse, closed_until: int) -> Answer[T] | Moved:
        """The answer's class, and its value if it has one."""
        upstream = self._upstream
        is_changed = call.method == "PATCH" and response.status in CHANGED
        if is_changed or (call.etag is not None and response.status == 304):
            return Ok(call.read(response))
        verdict = classify(response, upstream.name, upstream.key_setting, upstream.url_setting, closed_until)
        match verdict:
            case None | NotFound() if verdict is None or call.relayed:
                return self._value(call, response)
            case Moved(url=location):
                return self._follow(call, location, response.status)
            case BadRequest(message=message):
                return replace(verdict, message=self._shown(message))
            case _:
                return verdict

    def _value(self, call: Call[T], response: FetchResponse) -> Ok[T] | Malformed:
        try:
            return Ok(call.read(response))
        except MalformedBody as error:
            return Malformed(f"{self._upstream.name} broke its contract: {self._shown(str(error))}")

    def _follow(self, call: Call[T], location: str, status: int) -> Moved | BadRequest:
        """Follow redirects within the same host only: our key must not leave it."""
        name, setting = self._upstream.name, self._upstream.url_setting
        if call.method != "GET":
            return BadRequest(f"{name} redirects a {call.method}, which is not followed: check {setting}", status)
        if call.redirects >= REDIRECTS_MAX:
            return BadRequest(f"{name} redirects in a loop: check {setting}", status)
        try:
            url = urljoin(call.url, location)
            same_host = urlsplit(url)[:2] == urlsplit(self._base)[:2]
        except ValueError:
            url, same_host = "", False
        if same_host and _URL.fullmatch(url):
            return Moved(url)
        return BadRequest(
            f"{name} redirects to another host, which is not followed: if it moved, change {setting}",
            status,
            self._shown(location),
        )

    async def _wait_to_retry(self, call: Call[T], answer: Answer[T]) -> bool:
        """Wait if the call may be retried within its own limit, its session's limit and its patience."""
        left_s = self._patience_left(call)
        match answer:
            case Limited(until=until):
                call.limited += 1
                allowed = call.limited <= RETRIES_MAX
                wait_s = 0.0  # the limiter is closed until then, and admits retries one by one
                left_s -= max(0, until - self._clock.now()) / 1000
            case Unavailable():
                call.unavailable += 1
                call.failure = answer
                allowed = call.unavailable <= RETRIES_MAX
                wait_s = max(call.retry_after_s, backoff_s(call.unavailable, self._random()))
            case _:
                return False
        if not allowed or wait_s >= left_s or not call.session.take_retry():
            return False
        await self._clock.sleep(wait_s)
        return True

    def _failed(self, call: Call[T], answer: Answer[T], response: FetchResponse | None) -> Answer[T]:
        """Log a failed attempt, with enough detail to find the cause without another call."""
        fields: dict[str, JSON] = {
            **self._where(call),
            "attempt": call.attempt,
            "answer": answer.kind,
            "reason": getattr(answer, "reason", ""),
            "status": None,
        }
        if response is not None:
            headers = response.headers
            limits = ((name, self._shown(value)[:80]) for name, value in headers.items() if LOGGED.fullmatch(name))
            fields |= {
                "status": response.status,
                "cf_ray": self._shown(headers.get("cf-ray", "")),
                "limits": dict(islice(limits, LIMIT_HEADERS_MAX)),
                "body_start": self._shown(response.body[:TEXT_START_BYTES].decode(errors="replace")),
            }
        logger = call.session.logger
        passing = isinstance(answer, Limited | Unavailable) or (call.relayed and isinstance(answer, BadRequest))
        write = logger.warning if passing else logger.error
        write("upstream.attempt_failed", **fields)
        return answer

    def _note_limits(self, call: Call[T], reading: LimitReading) -> None:
        self.limits = reading
        if self._upstream.key is None or reading.anonymous is None:
            return
        if not reading.anonymous:
            self._upstream.told.discard(KEY_IGNORED)
        elif self._is_news(KEY_IGNORED):
            reason = (
                f"{self._upstream.name} treats us as anonymous: check {self._upstream.key_setting}"
                f" and the header {self._upstream.key_header}"
            )
            call.session.logger.error(
                "upstream.key_ignored", **self._where(call), minute_limit=reading.minute.limit, reason=reason
            )
            self.limiter.on_event(BudgetEvent("ERROR", "upstream.key_ignored", {"reason": reason}))

    def _note_deprecation(self, call: Call[T], warning: str) -> None:
        if not warning.startswith("299"):
            return
        warning = self._shown(warning)
        if self._is_news(warning):
            call.session.logger.warning("upstream.deprecation_announced", **self._where(call), warning=warning)

    def _is_news(self, sentence: str) -> bool:
        """Whether to log this sentence now. Remembers it; once there are many, new ones count as logged."""
        told = self._upstream.told
        if sentence in told or len(told) >= SENTENCES_MAX:
            return False
        told.add(sentence)
        return True

    def _headers_of(self, call: Call[T]) -> dict[str, str]:
        content = {} if call.body is None else JSON_CONTENT
        return {**self._headers, **content, **({} if call.etag is None else {"if-none-match": call.etag})}

    def _patience_left(self, call: Call[T]) -> float:
        return call.deadline - self._clock.monotonic()

    def _where(self, call: Call[T]) -> dict[str, JSON]:
        return {"upstream": self._upstream.name, "path": call.target[:300]}

    def _shown(self, text: str) -> str:
        """External text made safe for a log line: short, printable, and without our key."""
        forms = forms_of([self._upstream.key or ""])
        start = text[: BODY_START + len(max(forms, key=len, default=""))]
        # A mask is as long as the key that it hides, so that no part of a key becomes visible at the cut.
        masked = pattern_of(forms).sub(lambda found: "*" * len(found[0]), start)
        return printable(masked[:BODY_START], BODY_START)
