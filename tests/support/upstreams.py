"""Both clients on a scripted wire, with a real limiter and virtual time."""

from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast.types import JSON
from holdfast_testing.captured_log import CapturedLog
from support.scripted_fetch import Handler, ScriptedFetch
from tocsin.stacks import Transaction
from tocsin.upstream import hiro_parse
from tocsin.upstream.answer import Answer, Ok
from tocsin.upstream.budget import Budget, Quota
from tocsin.upstream.client import Upstream, UpstreamClient
from tocsin.upstream.hiro import HiroClient, hiro_upstream
from tocsin.upstream.limiter import (
    BudgetEvent,
    BudgetLimiter,
    CallSession,
    request_session,
    restored_budget,
    task_session,
)
from tocsin.upstream.tenero import TeneroClient, tenero_upstream

T = TypeVar("T")

HIRO_URL = "https://hiro.test"
TENERO_URL = "https://tenero.test"
KEY = "k3y-0f-0urs"

LATEST_S = START_MS // 1000 + 86_400  # the latest time of a block that Hiro may name
ROOMY = Quota(second=1_000, minute=10_000, month=10_000_000)


def read_transaction(body: JSON) -> Transaction:
    return hiro_parse.transaction_v1(body, LATEST_S)


def value_of(answer: Answer[T]) -> T:
    """The value of an answer, which must have one."""
    assert isinstance(answer, Ok), answer
    return answer.value


@dataclass(slots=True)
class Wired:
    """A client and everything around it that a test may inspect."""

    upstream: Upstream
    handler: Handler
    quota: Quota = ROOMY
    latency_s: float = 0.0
    clock: VirtualClock = field(default_factory=VirtualClock)
    log: CapturedLog = field(default_factory=CapturedLog)
    saved: list[Budget] = field(default_factory=list)
    events: list[BudgetEvent] = field(default_factory=list)
    fetch: ScriptedFetch = field(init=False)
    limiter: BudgetLimiter = field(init=False)
    client: UpstreamClient = field(init=False)

    def __post_init__(self) -> None:
        random = Random(7).random
        self.fetch = ScriptedFetch(self.handler, self.latency_s)
        budget = restored_budget(self.quota, None, self.clock)
        self.limiter = BudgetLimiter(
            self.upstream.name, budget, self.clock, random, self.log, self.saved.append, self.events.append
        )
        self.client = UpstreamClient(self.upstream, self.fetch, self.limiter)

    @property
    def hiro(self) -> HiroClient:
        return HiroClient(self.client)

    @property
    def tenero(self) -> TeneroClient:
        return TeneroClient(self.client)

    async def ask(self, target: str = "/x", session: CallSession | None = None, retries_max: int = 20) -> Answer[JSON]:
        """Ask for `target`, and take any JSON."""
        return await self.client.get(target, lambda body: body, session or self.task(retries_max))

    def task(self, retries_max: int = 20) -> CallSession:
        session = task_session(self.log)
        session.retries_left = retries_max
        return session

    def request(self) -> CallSession:
        return request_session(self.log)


def wired_hiro(handler: Handler, quota: Quota = ROOMY, key: str | None = KEY, latency_s: float = 0.0) -> Wired:
    return Wired(hiro_upstream(HIRO_URL, key), handler, quota, latency_s)


def wired_tenero(handler: Handler, quota: Quota = ROOMY, key: str | None = None) -> Wired:
    return Wired(tenero_upstream(TENERO_URL, key), handler, quota)
