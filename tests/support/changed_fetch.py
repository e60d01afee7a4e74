"""A Hiro that sends other bodies than the simulator for some of its routes."""

import json
from collections.abc import Callable
from typing import Any

from stacks_simulator.simulator import Simulator
from support.simulated_fetch import SimulatedFetch
from tocsin.fetch import FetchResponse


class ChangedFetch:
    """Passes the JSON of each 200 from a URL that contains `part` to `change`, which edits it in place."""

    def __init__(self, simulator: Simulator, part: str) -> None:
        self._fetch = SimulatedFetch(simulator)
        self._part = part
        self.change: Callable[[str, dict[str, Any]], None] | None = None

    async def __call__(self, url: str, **options: Any) -> FetchResponse:
        answer = await self._fetch(url, **options)
        if self.change is None or self._part not in url or answer.status != 200:
            return answer
        body = json.loads(answer.body)
        self.change(url, body)
        return FetchResponse(200, answer.headers, json.dumps(body).encode())
