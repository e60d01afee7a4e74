"""Both clients on a scripted wire, with a real gatekeeper and virtual time."""

from dataclasses import dataclass, field
from random import Random

from support.captured_log import CapturedLog
from support.scripted_fetch import Handler, ScriptedFetch
from support.virtual_time import VirtualClock
from tocsin.bindings import JSON
from tocsin.scheduler.budget import Plan
from tocsin.scheduler.gatekeeper import Gatekeeper
from tocsin.upstream.client import Upstream, UpstreamClient
from tocsin.upstream.errand import Errand, request_errand, task_errand
from tocsin.upstream.hiro import HiroClient, hiro
from tocsin.upstream.tenero import TeneroClient, tenero

HIRO_URL = "https://hiro.test"
TENERO_URL = "https://tenero.test"
KEY = "k3y-0f-0urs"

ROOMY = Plan(second=1_000, minute=10_000, month=10_000_000)


@dataclass(slots=True)
class Wired:
    """A client and everything around it that a test may look at."""

    upstream: Upstream
    handler: Handler
    plan: Plan = ROOMY
    latency_s: float = 0.0
    clock: VirtualClock = field(default_factory=VirtualClock)
    log: CapturedLog = field(default_factory=CapturedLog)
    saved: list[JSON] = field(default_factory=list)
    fetch: ScriptedFetch = field(init=False)
    gate: Gatekeeper = field(init=False)
    client: UpstreamClient = field(init=False)

    def __post_init__(self) -> None:
        random = Random(7).random
        self.fetch = ScriptedFetch(self.handler, self.latency_s)
        self.gate = Gatekeeper.restore(
            self.upstream.name, self.plan, None, self.clock, random, self.log, self.saved.append
        )
        self.client = UpstreamClient(self.upstream, self.fetch, self.gate, self.clock, random)

    @property
    def hiro(self) -> HiroClient:
        return HiroClient(self.client)

    @property
    def tenero(self) -> TeneroClient:
        return TeneroClient(self.client)

    def task(self, retries_max: int = 20) -> Errand:
        return task_errand(self.log, retries_max=retries_max)

    def request(self) -> Errand:
        return request_errand(self.log)


def wired_hiro(handler: Handler, plan: Plan = ROOMY, key: str | None = KEY, latency_s: float = 0.0) -> Wired:
    return Wired(hiro(HIRO_URL, key), handler, plan, latency_s)


def wired_tenero(handler: Handler, plan: Plan = ROOMY, key: str | None = None) -> Wired:
    return Wired(tenero(TENERO_URL, key), handler, plan)
