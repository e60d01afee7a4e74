"""All calls to upstreams go through this client: permit, attempt, classification, log line, retry.

Before every attempt the client acquires a permit from the upstream's limiter, and releases it with the limits in the
answer's headers. So retries and redirects cost as much as any call. A 429 closes the limiter for all callers, and the
retry waits there; after a 5xx or no answer, the client backs off with full jitter. A call takes at most the session's
patience plus one attempt's timeout, whatever the upstream does.

Emits `upstream.attempt_failed` for every failed attempt, `upstream.call_withheld` when no permit came in time,
`upstream.answer_refused` when pages contradict each other, `upstream.rows_refused` when some rows cannot be read,
`upstream.key_ignored` when a configured key is treated as none, and `upstream.deprecation_announced` once per wording.

One call to an upstream: the request, how to read the answer, and the attempts so far.

Assigns an HTTP response to a class of answer. Pure; one table for all upstreams.

A 404 is `NotFound` only if it comes from the API itself. An unknown route or an HTML page is a bad request or a
malformed answer: as "not found", it would make every price and every swap disappear.

How often one call is retried, and how long to wait in between. Pure.

Prevents the log from repeating the same warning with every call.

Reads rate-limit headers: numbers that may be nonsense, and `Retry-After` in both its forms. Pure.

The module of each upstream (`hiro.py`, `tenero.py`) interprets its own headers.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import ClassVar, Generic, TypeVar
from urllib.parse import urljoin, urlsplit

from holdfast.errors import UsageError
from holdfast.types import JSON, Clock
from tocsin import __version__
from tocsin.errors import FetchError, FetchTooLarge, MalformedBody
from tocsin.fetch import Fetch, FetchResponse
from tocsin.logs import forms_of, pattern_of
from tocsin.text import utc_time
from tocsin.upstream.answer import (
    Answer,
    BadRequest,
    Failure,
    Gone,
    Limited,
    Malformed,
    NotFound,
    Ok,
    Unauthorised,
    Unavailable,
)
from tocsin.upstream.budget import Denial, Lane, Limiter, LimitReading, Quota
from tocsin.upstream.decode import decode, printable
from tocsin.upstream.limiter import CallSession

T = TypeVar("T")

CHANGED = frozenset({200, 201, 202, 204})  # statuses of a successful change
JSON_CONTENT = {"content-type": "application/json"}


@dataclass(slots=True)
class Call(Generic[T]):
    """One call and its attempts so far."""

    target: str  # path and query, as shown in the log
    url: str
    read: Callable[[FetchResponse], T]
    session: CallSession
    deadline: float
    method: str = "GET"
    body: bytes | None = None
    attempt: int = 0
    redirects: int = 0
    limited: int = 0
    unavailable: int = 0
    retry_after_s: float = 0.0
    failure: Unavailable | None = None
    probing: bool = False

    def headers(self, usual: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of this call, including the usual ones of the upstream."""
        return usual if self.body is None else {**usual, **JSON_CONTENT}

    def needs_no_body(self, response: FetchResponse) -> bool:
        """Whether the status is enough: the change was made."""
        return self.method != "GET" and response.status in CHANGED


def plain(parse: Callable[[JSON], T]) -> Callable[[FetchResponse], T]:
    """Make a reader of the body."""
    return lambda response: parse(decode(response.body))


@dataclass(frozen=True, slots=True)
class Moved:
    """A redirect; the client decides whether to follow it."""

    kind: ClassVar[str] = "moved"
    url: str


HEALTHY = (Ok, NotFound, Moved)

# The wording of Fastify, Express and Kong.
_UNKNOWN_ROUTE = re.compile(r"(?:Route|Cannot) [A-Z]+[: ]|no route\b", re.IGNORECASE)


def classify(  # noqa: PLR0911 - one return per row of the table
    response: FetchResponse, name: str, key_setting: str, url_setting: str, closed_until: int
) -> NotFound | Moved | Failure | None:
    """The class of a response. None means: parse the body. `closed_until` is when a limited caller may ask again."""
    status = response.status
    match status:
        case 200:
            return None
        case 301 | 302 | 303 | 307 | 308 if response.headers.get("location"):
            return Moved(response.headers["location"])
        case 401 | 403:
            return Unauthorised(f"{name} refuses our key ({status}): check {key_setting}")
        case 404:
            return _not_found(response, name, url_setting)
        case 410:
            return Gone(f"{name} has switched this endpoint off (410): Tocsin must move to its successor")
        case 429:
            return Limited(closed_until, f"{name} answered 429: too many calls")
        case 408 | 425:
            return Unavailable(f"{name} answered {status}")
    if 400 <= status < 500:
        return BadRequest(f"{name} rejects our request ({status})", status, _message(response.body))
    if 500 <= status < 600:
        return Unavailable(f"{name} answered {status}")
    return Malformed(f"{name} answered {status}, which is not expected here")


def _not_found(response: FetchResponse, name: str, url_setting: str) -> NotFound | BadRequest | Malformed:
    if not response.body:
        return NotFound()
    try:
        decode(response.body)
    except MalformedBody:
        return Malformed(f"{name} answered 404 without its usual JSON: check {url_setting}")
    message = _message(response.body)
    if _UNKNOWN_ROUTE.match(message):
        return BadRequest(f"{name} does not know this route: check {url_setting}", 404, message)
    return NotFound()


def _message(body: bytes) -> str:
    """The upstream's error message, if the body is JSON and has one."""
    try:
        value = decode(body)
    except MalformedBody:
        return ""
    message = value.get("message") if isinstance(value, dict) else None
    return printable(message, 200) if isinstance(message, str) else ""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Extra attempts of one call, counted separately for 429, and for 5xx, timeouts and lost connections."""

    limited_max: int = 2
    unavailable_max: int = 2
    backoff_s: float = 0.5
    backoff_max_s: float = 8.0

    def backoff(self, retry: int, jitter: float) -> float:
        """Seconds to wait before the n-th retry (from 1): full jitter, `jitter` in [0, 1)."""
        ceiling_s: float = self.backoff_s * 2 ** (retry - 1)
        return jitter * min(self.backoff_max_s, ceiling_s)


SENTENCES_MAX = 200


class LogOnce:
    """Remembers logged sentences. When it is full, new ones count as logged."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def is_news(self, sentence: str) -> bool:
        """Whether to log this sentence now. Remembers it."""
        if sentence in self._logged or len(self._logged) >= SENTENCES_MAX:
            return False
        self._logged.add(sentence)
        return True

    def forget(self, sentence: str) -> None:
        """Forget a sentence that is no longer true, so that it is logged again when it is."""
        self._logged.discard(sentence)


NUMBER_MAX = 10**9  # a larger limit is noise
RETRY_AFTER_MAX_MS = 31 * 86_400_000

# Headers that the log line of a failure includes.
LOGGED = re.compile(r"(?:x-)?ratelimit-[a-z-]{1,40}|retry-after")

_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DIGITS = re.compile(r"[0-9]{1,10}")


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


REDIRECTS_MAX = 3
BODY_START = 200  # characters of a failed answer to log
TEXT_START_BYTES = 16 * 1024  # enough for those characters and any form of a key
LIMIT_HEADERS_MAX = 20

DEFAULT_POLICY = RetryPolicy()

_URL = re.compile(r"[!-~]{1,2048}")


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a client must know about an upstream. Messages that ask for a fix name the `*_setting`.

    `wrap` turns the generic client into the one that tasks use, with methods of its own.
    """

    name: str
    base_url: str
    url_setting: str
    key: str | None = field(repr=False)
    key_setting: str
    read_limits: Callable[[Mapping[str, str]], LimitReading]
    wrap: Callable[["UpstreamClient"], object]
    quota: Quota = field(default_factory=Quota)
    key_header: str = "x-api-key"
    timeout_s: float = 8.0
    body_max: int = 4 * 1024 * 1024
    log_once: LogOnce = field(default_factory=LogOnce, repr=False, compare=False)  # outlives its clients

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"{self.url_setting} must look like https://api.example.org.")
        if self.key is not None and (not self.key or not self.key.isascii() or not self.key.isprintable()):
            raise UsageError(f"{self.key_setting} must be printable ASCII, or not be set at all.")

    def connect(
        self,
        fetch: Fetch,
        limiter: Limiter,
        clock: Clock,
        random: Callable[[], float],
        on_key_ignored: Callable[[str], object] = lambda _: None,
    ) -> object:
        """The client that tasks get by this upstream's name."""
        return self.wrap(UpstreamClient(self, fetch, limiter, clock, random, on_key_ignored=on_key_ignored))


class UpstreamClient:
    """Makes the calls to one upstream. It raises no errors of its own: every call ends as an `Answer`."""

    def __init__(
        self,
        upstream: Upstream,
        fetch: Fetch,
        limiter: Limiter,
        clock: Clock,
        random: Callable[[], float],
        policy: RetryPolicy = DEFAULT_POLICY,
        on_key_ignored: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`on_key_ignored` is called if a key is configured but the upstream treats us as anonymous."""
        self._upstream = upstream
        self._fetch = fetch
        self._limiter = limiter
        self._clock = clock
        self._random = random
        self._policy = policy
        self._base = upstream.base_url.rstrip("/")
        self._headers = {"accept": "application/json", "user-agent": f"tocsin/{__version__}"}
        if upstream.key is not None:
            self._headers[upstream.key_header] = upstream.key
        self._on_key_ignored = on_key_ignored
        self.limits = LimitReading()  # from the newest answer's headers

    def now(self) -> int:
        """The current time in ms, to validate times in answers."""
        return self._clock.now()

    def calls_left(self, lane: Lane) -> float:
        """How many calls this lane has left now; see `Limiter`."""
        return self._limiter.calls_left(lane)

    async def get(self, target: str, parse: Callable[[JSON], T], session: CallSession) -> Answer[T]:
        """Ask for `target` (path and query)."""
        deadline = session.deadline(self._clock.monotonic())
        return await self._call(Call(target, self._base + target, plain(parse), session, deadline))

    async def patch(self, target: str, change: JSON, session: CallSession) -> Answer[None]:
        """Change `target`. The change must be idempotent, because it is retried like a GET.

        A redirect is not followed. The body of the answer to a successful change is not read.
        """
        deadline, body = session.deadline(self._clock.monotonic()), json.dumps(change).encode()
        url = self._base + target
        return await self._call(Call(target, url, lambda _: None, session, deadline, method="PATCH", body=body))

    async def _call(self, call: Call[T]) -> Answer[T]:
        session = call.session
        if session.given_up:
            return Unavailable(
                f"{self._upstream.name} gave no answer {session.unanswered} times in a row: no call was made"
            )
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
            session.logger.warn(
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
        call.probing = call.session.may_probe and self._limiter.probe(call.session.lane)
        call.session.may_probe = False
        if call.probing:
            return None
        return await self._limiter.acquire(call.session.lane, max(0.0, self._patience_left(call)))

    def _withheld(self, denial: Denial) -> Limited:
        again = f"the next call can be made at {utc_time(denial.until)}"
        return Limited(denial.until, f"{self._upstream.name}: {denial.reason}; {again}", denial.by_budget)

    async def _attempt(self, call: Call[T]) -> Answer[T] | Moved:
        """Make one attempt. The permit is always released, even if the caller is cancelled."""
        call.attempt += 1
        call.session.calls += 1
        response: FetchResponse | None = None
        problem: Unavailable | Malformed | None = None
        reading: LimitReading | None = None
        retry_after_ms: int | None = None
        closed_until = 0
        try:
            response = await self._fetch(
                call.url,
                method=call.method,
                headers=call.headers(self._headers),
                body=call.body,
                timeout_s=self._upstream.timeout_s,
                body_max=self._upstream.body_max,
            )
            reading = self._upstream.read_limits(response.headers)
            retry_after_ms = read_retry_after(response.headers, self._clock.now())
        except FetchTooLarge:
            problem = self._too_large()
        except FetchError as error:
            kind = type(error).__name__
            problem = Unavailable(f"{self._upstream.name} gave no answer ({kind}): {self._shown(str(error))}")
        finally:
            call.retry_after_s = (retry_after_ms or 0) / 1000
            limited = response is not None and response.status == 429
            closed_until = self._limiter.release(
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
        if len(response.body) > upstream.body_max:
            return self._too_large()
        if call.needs_no_body(response):
            return Ok(call.read(response))
        verdict = classify(response, upstream.name, upstream.key_setting, upstream.url_setting, closed_until)
        match verdict:
            case None:
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
            return BadRequest(f"{name} redirects a change, which is not followed: check {setting}", status)
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
                allowed = call.limited <= self._policy.limited_max
                wait_s = 0.0  # the limiter is closed until then, and admits retries one by one
                left_s -= max(0, until - self._clock.now()) / 1000
            case Unavailable():
                call.unavailable += 1
                call.failure = answer
                allowed = call.unavailable <= self._policy.unavailable_max
                wait_s = max(call.retry_after_s, self._policy.backoff(call.unavailable, self._random()))
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
            fields |= {
                "status": response.status,
                "cf_ray": self._shown(headers.get("cf-ray", "")),
                "limits": dict(islice(self._limit_headers(headers), LIMIT_HEADERS_MAX)),
                "body_start": self._shown_bytes(response.body),
            }
        logger = call.session.logger
        write = logger.warn if isinstance(answer, Limited | Unavailable) else logger.error
        write("upstream.attempt_failed", **fields)
        return answer

    def _limit_headers(self, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        return ((name, self._shown(value)[:80]) for name, value in headers.items() if LOGGED.fullmatch(name))

    def _note_limits(self, call: Call[T], reading: LimitReading) -> None:
        self.limits = reading
        if self._upstream.key is None or reading.anonymous is None:
            return
        log_once, ignored = self._upstream.log_once, f"{self._upstream.name}: key ignored"
        if not reading.anonymous:
            log_once.forget(ignored)
        elif log_once.is_news(ignored):
            reason = (
                f"{self._upstream.name} treats us as anonymous: check {self._upstream.key_setting}"
                f" and the header {self._upstream.key_header}"
            )
            call.session.logger.error(
                "upstream.key_ignored", **self._where(call), minute_limit=reading.minute.limit, reason=reason
            )
            self._on_key_ignored(reason)

    def _note_deprecation(self, call: Call[T], warning: str) -> None:
        if not warning.startswith("299"):
            return
        warning = self._shown(warning)
        if self._upstream.log_once.is_news(warning):
            call.session.logger.warn("upstream.deprecation_announced", **self._where(call), warning=warning)

    def _patience_left(self, call: Call[T]) -> float:
        return call.deadline - self._clock.monotonic()

    def _too_large(self) -> Malformed:
        reason = f"{self._upstream.name} sent more than {self._upstream.body_max} bytes"
        return Malformed(reason, too_large=True)

    def _where(self, call: Call[T]) -> dict[str, JSON]:
        return {"upstream": self._upstream.name, "path": call.target[:300]}

    def _shown_bytes(self, raw: bytes) -> str:
        return self._shown(raw[:TEXT_START_BYTES].decode(errors="replace"))

    def _shown(self, text: str) -> str:
        """External text made safe for a log line: short, printable, and without our key."""
        forms = forms_of([self._upstream.key or ""])
        start = text[: BODY_START + len(max(forms, key=len, default=""))]
        # A mask is as long as the key that it hides, so that no part of a key becomes visible at the cut.
        masked = pattern_of(forms).sub(lambda found: "*" * len(found[0]), start)
        return printable(masked[:BODY_START], BODY_START)
