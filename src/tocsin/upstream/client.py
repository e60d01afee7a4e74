"""The only way out. One guarded GET: permit, attempt, class, log line, retry.

Before every attempt the gate (the upstream's budget) is asked, and after it is told what the answer's
headers said, so retries and redirects are spent like any call. A 429 closes the gate for everybody and
the retry waits there; 5xx and silence back off with full jitter. A call takes at most the session's
patience plus one attempt's timeout, whatever the upstream does.

Emits `upstream.attempt_failed` for every attempt that failed, `upstream.call_withheld` when no permit
was to be had in time, `upstream.answer_refused` when pages contradict each other,
`upstream.key_ignored` when a configured key is treated as none, and `upstream.deprecation_announced`
once per wording.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic, TypeVar
from urllib.parse import urljoin, urlsplit

from tocsin import __version__
from tocsin.bindings import JSON, Clock, Fetch, FetchResponse
from tocsin.budget.call_session import CallSession, RetryPolicy
from tocsin.budget.limiter import Limiter, LimitReading
from tocsin.errors import FetchError, FetchTooLarge, MalformedBody, UsageError
from tocsin.upstream.answer import Answer, BadRequest, Limited, Malformed, NotFound, Ok, Unavailable
from tocsin.upstream.classify import HEALTHY, Moved, classify
from tocsin.upstream.decode import decode, printable
from tocsin.upstream.limit_headers import LOGGED, read_retry_after
from tocsin.upstream.log_once import LogOnce

T = TypeVar("T")

REMEMBERED_MAX = 512
REDIRECTS_MAX = 3
BODY_START_BYTES = 200
LIMIT_HEADERS_MAX = 20

DEFAULT_POLICY = RetryPolicy()

_URL = re.compile(r"[!-~]{1,2048}")


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a client must know of an upstream; `*_setting` are named in the sentences that ask for a fix."""

    name: str
    base_url: str
    url_setting: str
    key: str | None = field(repr=False)
    key_setting: str
    read_limits: Callable[[Mapping[str, str]], LimitReading]
    key_header: str = "x-api-key"
    timeout_s: float = 8.0
    body_max: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"{self.url_setting} must look like https://api.example.org.")
        if self.key is not None and (not self.key or not self.key.isascii() or not self.key.isprintable()):
            raise UsageError(f"{self.key_setting} must be printable ASCII, or not be set at all.")


@dataclass(slots=True)
class _Call(Generic[T]):
    """One call on its way through its attempts."""

    target: str  # path and query: what the log shows
    url: str
    parse: Callable[[JSON], T]
    session: CallSession
    deadline: float
    remember: bool
    absent_if: Callable[[BadRequest], bool]
    attempt: int = 0
    redirects: int = 0
    limited: int = 0
    unavailable: int = 0
    retry_after_s: float = 0.0
    failure: Unavailable | None = None


class UpstreamClient:
    """Makes the calls of one upstream. Raises nothing of its own: every call ends as an `Answer`."""

    def __init__(
        self,
        upstream: Upstream,
        fetch: Fetch,
        gate: Limiter,
        clock: Clock,
        random: Callable[[], float],
        policy: RetryPolicy = DEFAULT_POLICY,
        said: LogOnce | None = None,
        key_refused: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`said` may outlive this client, so that its successor does not repeat it.

        `key_refused` is told when a key is configured and the upstream treats us as somebody without.
        """
        self._upstream = upstream
        self._fetch = fetch
        self._gate = gate
        self._clock = clock
        self._random = random
        self._policy = policy
        self._base = upstream.base_url.rstrip("/")
        self._headers = {"accept": "application/json", "user-agent": f"tocsin/{__version__}"}
        if upstream.key is not None:
            self._headers[upstream.key_header] = upstream.key
        self._remembered: OrderedDict[str, tuple[str, object]] = OrderedDict()
        self._said = said or LogOnce()
        self._key_refused = key_refused
        self.key_ignored = False
        self.limits = LimitReading()  # what the newest answer's headers said

    async def get(
        self,
        target: str,
        parse: Callable[[JSON], T],
        session: CallSession,
        *,
        remember: bool = False,
        absent_if: Callable[[BadRequest], bool] = lambda _: False,
    ) -> Answer[T]:
        """Ask for `target` (path and query).

        `remember` keeps the value, to be confirmed by a 304. `absent_if` tells which 4xx of this endpoint
        is its way of saying "no such thing".
        """
        if session.given_up:
            return Unavailable(
                f"{self._upstream.name} gave no answer {session.unanswered} times in a row: not asked again"
            )
        deadline = session.deadline(self._clock.monotonic())
        call = _Call(target, self._base + target, parse, session, deadline, remember, absent_if)
        answer = await self._try(call)
        session.note(answer)
        return answer

    def refuse(self, target: str, reason: str, session: CallSession) -> Malformed:
        """What several good answers do not make together: logged like any other failure."""
        reason = f"{self._upstream.name} broke its contract: {reason}"
        session.logger.error(
            "upstream.answer_refused", upstream=self._upstream.name, path=target[:300], reason=reason
        )
        return Malformed(reason)

    async def _try(self, call: _Call[T]) -> Answer[T]:
        while True:
            refusal = await self._gate.enter(call.session.lane, max(0.0, self._patience_left(call)))
            if refusal is not None:
                call.session.logger.debug(
                    "upstream.call_withheld", **self._where(call), reason=refusal.reason, until=refusal.until
                )
                return call.failure or Limited(refusal.until, f"{self._upstream.name}: {refusal.reason}")
            answer = await self._attempt(call)
            if isinstance(answer, Moved):
                call.url = answer.url
                call.redirects += 1
            elif not await self._wait_to_retry(call, answer):
                return answer

    async def _attempt(self, call: _Call[T]) -> Answer[T] | Moved:
        """One exchange: the gate is told in every case, even when the caller is cancelled."""
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
                headers=self._headers_for(call),
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
            closed_until = self._gate.leave(reading, limited=limited, retry_after_ms=retry_after_ms)
        if response is None or reading is None:
            assert problem is not None
            return self._failed(call, problem, None)
        self._note_limits(call, reading)
        self._note_deprecation(call, response.headers.get("warning", ""))
        answer = self._judge(call, response, closed_until)
        return answer if isinstance(answer, HEALTHY) else self._failed(call, answer, response)

    def _judge(self, call: _Call[T], response: FetchResponse, closed_until: int) -> Answer[T] | Moved:
        """The class of an answer, and its value if it has one."""
        upstream = self._upstream
        if len(response.body) > upstream.body_max:
            return self._too_large()
        if response.status == 304 and call.target in self._remembered:
            self._remembered.move_to_end(call.target)
            return Ok(self._remembered[call.target][1])  # type: ignore[arg-type]  # same target, same parser
        verdict = classify(response, upstream.name, upstream.key_setting, upstream.url_setting, closed_until)
        match verdict:
            case None:
                return self._value(call, response)
            case Moved(url=location):
                return self._follow(call, location, response.status)
            case BadRequest(message=message):
                shown = replace(verdict, message=self._shown(message))
                return NotFound() if call.absent_if(verdict) else shown
            case _:
                return verdict

    def _value(self, call: _Call[T], response: FetchResponse) -> Ok[T] | Malformed:
        try:
            value = call.parse(decode(response.body))
        except MalformedBody as error:
            return Malformed(f"{self._upstream.name} broke its contract: {self._shown(str(error))}")
        self._remember(call, response.headers.get("etag", ""), value)
        return Ok(value)

    def _follow(self, call: _Call[T], location: str, status: int) -> Moved | BadRequest:
        """Redirects are followed within the host only: our key must not travel."""
        name, setting = self._upstream.name, self._upstream.url_setting
        if call.redirects >= REDIRECTS_MAX:
            return BadRequest(f"{name} redirects in circles: check {setting}", status)
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

    async def _wait_to_retry(self, call: _Call[T], answer: Answer[T]) -> bool:
        """Wait, if the call may be tried again: within its own, its run's and its patience's bounds."""
        left_s = self._patience_left(call)
        match answer:
            case Limited(until=until):
                call.limited += 1
                allowed = call.limited <= self._policy.limited_max
                wait_s = 0.0  # the gate is closed until then, and lets retries in one by one
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

    def _failed(self, call: _Call[T], answer: Answer[T], response: FetchResponse | None) -> Answer[T]:
        """The log line of a failed attempt: enough to name the cause without asking again."""
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

    def _note_limits(self, call: _Call[T], reading: LimitReading) -> None:
        self.limits = reading
        if self._upstream.key is None or reading.anonymous is None:
            return
        ignored = f"{self._upstream.name}: key ignored"
        if not reading.anonymous:
            self._said.forget(ignored)
        elif self._said.is_news(ignored):
            reason = (
                f"{self._upstream.name} treats us as anonymous: check {self._upstream.key_setting}"
                f" and the header {self._upstream.key_header}"
            )
            call.session.logger.error(
                "upstream.key_ignored", **self._where(call), minute_limit=reading.minute.limit, reason=reason
            )
            self._key_refused(reason)
        self.key_ignored = reading.anonymous

    def _note_deprecation(self, call: _Call[T], warning: str) -> None:
        if not warning.startswith("299"):
            return
        warning = self._shown(warning)
        if self._said.is_news(warning):
            call.session.logger.warn("upstream.deprecation_announced", **self._where(call), warning=warning)

    def _remember(self, call: _Call[T], etag: str, value: T) -> None:
        if not call.remember or not 0 < len(etag) <= 256 or not (etag.isascii() and etag.isprintable()):
            return
        self._remembered[call.target] = (etag, value)
        self._remembered.move_to_end(call.target)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _headers_for(self, call: _Call[T]) -> Mapping[str, str]:
        if call.remember and call.target in self._remembered:
            return {**self._headers, "if-none-match": self._remembered[call.target][0]}
        return self._headers

    def _patience_left(self, call: _Call[T]) -> float:
        return call.deadline - self._clock.monotonic()

    def _too_large(self) -> Malformed:
        return Malformed(f"{self._upstream.name} sent more than {self._upstream.body_max} bytes")

    def _where(self, call: _Call[T]) -> dict[str, JSON]:
        return {"upstream": self._upstream.name, "path": call.target[:300]}

    def _shown(self, text: str) -> str:
        """Text from outside as a log line may carry it: short, printable, and without our key."""
        return self._shown_bytes(text.encode(errors="replace"))

    def _shown_bytes(self, raw: bytes) -> str:
        key = (self._upstream.key or "").encode()
        start = raw[: BODY_START_BYTES + len(key)]
        if key:
            start = start.replace(key, b"*" * len(key))  # as long, so that no cut-off key moves into view
        return printable(start[:BODY_START_BYTES].decode(errors="replace"), BODY_START_BYTES)
