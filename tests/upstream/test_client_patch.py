"""A PATCH is guarded like a GET: paid from the budget, retried within limits, never sent elsewhere."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.virtual_time import VirtualClock
from support.scripted_fetch import response
from support.upstreams import HIRO_URL, KEY, ROOMY
from tocsin.fetch import FetchResponse
from tocsin.upstream.answer import Answer, BadRequest, Gone, Limited, NotFound, Ok, Unauthorised, Unavailable
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.hiro import HiroClient, hiro_upstream
from tocsin.upstream.limiter import BudgetLimiter, restored_budget, task_session


@dataclass
class Wire:
    """Gives one answer after the other, then repeats the last one."""

    answers: list[FetchResponse]
    sent: list[tuple[str, str, bytes | None, Mapping[str, str]]] = field(default_factory=list)
    log: CapturedLog = field(default_factory=CapturedLog)

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse:
        assert timeout_s <= 8.0
        assert body_max <= 8 * 1024 * 1024
        self.sent.append((method, url, body, headers or {}))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def patch(self) -> Answer[None]:
        clock, random = VirtualClock(), Random(7).random
        limiter = BudgetLimiter("hiro", restored_budget(ROOMY, None, clock), clock, random, self.log, _ignore)
        client = UpstreamClient(hiro_upstream(HIRO_URL, KEY), self, limiter, clock, random)
        answer = await client.patch("/hook/enabled", {"enabled": True}, task_session(self.log))
        assert limiter.status().spent.month == len(self.sent)
        return answer


def _ignore(_stored: object) -> None:
    pass


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_a_change_is_sent_once_with_its_body_and_our_key(status: int) -> None:
    """The answer to it need not have a body."""
    wire = Wire([response(b"", status=status)])

    assert await wire.patch() == Ok(None)
    ((method, url, body, headers),) = wire.sent
    assert (method, url, json.loads(body or b"")) == ("PATCH", f"{HIRO_URL}/hook/enabled", {"enabled": True})
    assert (headers["content-type"], headers["x-api-key"]) == ("application/json", KEY)


async def test_a_change_is_tried_again_when_the_upstream_is_busy() -> None:
    """It is idempotent, and every attempt is paid for."""
    wire = Wire([response({}, status=503), response({}, status=429), response(b"", status=204)])

    assert await wire.patch() == Ok(None)
    assert len(wire.sent) == 3


async def test_a_redirect_of_a_change_is_not_followed() -> None:
    """Not even within the same host."""
    wire = Wire([response(b"", status=307, headers={"location": "/elsewhere"})])
    answer = await wire.patch()

    assert isinstance(answer, BadRequest)
    assert "HIRO_API_URL" in answer.reason
    assert len(wire.sent) == 1


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, Unauthorised), (404, NotFound), (410, Gone), (422, BadRequest), (429, Limited), (500, Unavailable)],
)
async def test_a_change_that_was_not_made_has_the_class_of_its_answer(status: int, expected: type) -> None:
    """As for a GET."""
    assert isinstance(await Wire([response(b"", status=status)]).patch(), expected)


async def test_a_hook_is_enabled_by_a_change() -> None:
    """Of its own address, to true."""
    wire = Wire([response(b"", status=200)])
    clock, random = VirtualClock(), Random(7).random
    limiter = BudgetLimiter("hiro", restored_budget(ROOMY, None, clock), clock, random, wire.log, _ignore)
    client = HiroClient(UpstreamClient(hiro_upstream(HIRO_URL, KEY), wire, limiter, clock, random))

    assert await client.enable_hook("/chainhooks/v1/me/7", task_session(wire.log)) == Ok(None)
    ((method, url, body, _),) = wire.sent
    assert (method, url) == ("PATCH", f"{HIRO_URL}/chainhooks/v1/me/7/enabled")
    assert json.loads(body or b"") == {"enabled": True}
