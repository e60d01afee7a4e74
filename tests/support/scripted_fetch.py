"""A `Fetch` that is a plain function: the fake is at the wire, and no code under test is patched."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tocsin.errors import FetchTooLarge
from tocsin.fetch import FetchResponse

DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True, slots=True)
class Request:
    """What the client sent."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    body_max: int
    body: bytes | None = None


Handler: TypeAlias = Callable[[Request], FetchResponse | Awaitable[FetchResponse]]


def always(answer: FetchResponse) -> Handler:
    """The same answer to everything."""
    return lambda _: answer


def in_turn(answers: Iterator[FetchResponse]) -> Handler:
    """One answer after the other."""
    return lambda _: next(answers)


class ScriptedFetch:
    """Answers with the result of `handler` after `latency_s`, and remembers the requests, all of one `method`."""

    def __init__(self, handler: Handler, latency_s: float = 0.0) -> None:
        self._handler = handler
        self._latency_s = latency_s
        self.method = "GET"
        self.requests: list[Request] = []

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
        assert method == self.method
        assert (body is None) == (method == "GET")
        request = Request(url, dict(headers or {}), timeout_s, body_max, body)
        self.requests.append(request)
        await asyncio.sleep(self._latency_s)
        answer = self._handler(request)
        if not isinstance(answer, FetchResponse):
            answer = await answer
        if len(answer.body) > body_max:
            message = f"the body is larger than {body_max} bytes"
            raise FetchTooLarge(message, answer.status, answer.headers, answer.body)
        return answer


def example(name: str) -> dict[str, Any]:
    """One of the example answers: `status`, `headers` and `body`."""
    value: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return value


def response(body: object = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> FetchResponse:
    """An answer with a JSON body; bytes and text are sent as they are."""
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return FetchResponse(status, headers or {}, raw)


def example_response(name: str, **headers: str) -> FetchResponse:
    """An example answer as the wire would carry it."""
    stored = example(name)
    sent = {**stored.get("headers", {}), **{key.replace("_", "-"): value for key, value in headers.items()}}
    return response(stored["body"], status=stored.get("status", 200), headers=sent)
