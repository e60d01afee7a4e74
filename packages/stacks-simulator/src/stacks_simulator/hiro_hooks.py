"""The part of Hiro's Chainhooks API that a watchdog uses: one hook, its status, and the switch that enables it.

Assumed, because it is not documented: enabling an interrupted hook makes it stream again at once.
"""

import json
import re
from typing import Any, Literal, TypeAlias

from stacks_simulator.chain import Chain
from stacks_simulator.hiro_pages import HiroHttpError
from stacks_simulator.http_messages import SimulatedReply, SimulatedRequest, json_reply

HOOK_UUID = "be4ab3ed-b606-4fe0-97c4-6c0b1ac9b185"
HookState: TypeAlias = Literal["new", "streaming", "expired", "interrupted"]
HOOK_PATH = re.compile(r"/chainhooks(?:/v1)?/me/([0-9a-f-]+)(/enabled)?")


class HookApi:
    """One registered hook, at the path of the documentation and that of Hiro's own client."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.uuid = HOOK_UUID  # of the registered hook
        self.state = "streaming"
        self.served = "/"  # the only paths that exist begin with it

    @property
    def state(self) -> HookState:
        return self._state

    @state.setter
    def state(self, state: HookState) -> None:
        self._state = state
        self.enabled = state not in {"expired", "interrupted"}

    def reply(self, request: SimulatedRequest) -> SimulatedReply:
        """The reply to a request below /chainhooks."""
        found = HOOK_PATH.fullmatch(request.path)
        method = "PATCH" if found and found[2] else "GET"
        if found is None or request.method != method or not request.path.startswith(self.served):
            raise HiroHttpError(404, f"Route {request.method}:{request.path} not found")
        if "x-api-key" not in request.headers:
            raise HiroHttpError(401, "No API key found in request")
        if found[1] != self.uuid:
            raise HiroHttpError(404, "Chainhook not found")
        if method == "GET":
            return json_reply(200, self._body())
        return self._enable(request.body)

    def _enable(self, body: bytes) -> SimulatedReply:
        try:
            enabled = json.loads(body)["enabled"]
        except (ValueError, KeyError, TypeError):
            enabled = None
        if not isinstance(enabled, bool):
            raise HiroHttpError(400, "body must have required property 'enabled'")
        self.enabled = enabled
        if enabled and self.state in {"new", "interrupted"}:
            self.state = "streaming"
        return SimulatedReply(204, b"", {})

    def _body(self) -> dict[str, Any]:
        now_s, height = self._chain.now_ms // 1000, self._chain.tip_height
        return {
            "uuid": self.uuid,
            "definition": {"name": "swaps", "version": "1", "chain": "stacks", "network": "mainnet"},
            "status": {
                "status": self.state,
                "enabled": self.enabled,
                "created_at": now_s,
                "last_evaluated_at": now_s,
                "last_evaluated_block_height": height,
                "last_occurrence_at": None,
                "last_occurrence_block_height": None,
                "evaluated_block_count": height,
                "occurrence_count": 0,
            },
        }
