"""`POST /api/chainhook`: blocks that Hiro pushes. It responds only when their transactions are stored.

Emits `queue.verify_failed`.
"""

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.types import ASGIApp

from holdfast.errors import HoldfastError, UsageError
from tocsin.errors import OtherNetwork, RequestRefused
from tocsin.swaps import chainhook
from tocsin.swaps.chainhook import Push
from tocsin.swaps.submit import RECEIVE, VERIFY_QUEUED
from tocsin.swaps.types import PushCounts
from tocsin.web.deps import WebDeps
from tocsin.web.response import NO_STORE, json_response
from tocsin.web.route import check_media_type, parsed, post

BODY_MAX = 40 * 1024 * 1024  # as much as Hiro's own receiver accepts; what `READ_MAX` exceeds is not kept


class ChainhookRoute:
    """Makes the sender wait for the database only, never for Hiro."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    @post(
        "/api/chainhook",
        "receiveChainhook",
        "its transactions are stored and will be verified; `refused` ones did not fit into the queue;"
        " with `tooLarge` nothing of it was read, and the lists are read instead",
        PushCounts,
        example=PushCounts(queued=1, already_known=0, ignored=3, rolled_back=0),
        errors={
            422: "malformed_push: not a push from Chainhook; the sentence names the place."
            " wrong_network: about another network than Stacks mainnet"
        },
        access="chainhook",
        body_schema={"type": "object"},
        body_example={"event": {"apply": [], "rollback": []}},
        body_max=BODY_MAX,
    )
    async def receive(self, request: Request) -> ASGIApp:
        """Blocks that Hiro's Chainhook pushes, 2.0 or v1."""
        check_media_type(request)
        body = await _start_of(request)
        try:
            push = Push([], [], too_large=True) if chainhook.is_too_large(body) else chainhook.read_push(parsed(body))
            push = chainhook.counted(push, body)
        except OtherNetwork as error:
            raise RequestRefused(422, "wrong_network", str(error)) from None
        except UsageError as error:
            raise RequestRefused(422, "malformed_push", str(error)) from None
        counts = PushCounts.from_json(await self._deps.scheduler().run_job(RECEIVE, push.to_json()))
        response = json_response(counts.to_json(), headers=NO_STORE)
        if counts.queued:
            response.background = BackgroundTask(self._verify)
        return response

    async def _verify(self) -> None:
        """Verify the queue now. If this fails, the next sweep verifies it."""
        try:
            await self._deps.scheduler().run_job(VERIFY_QUEUED, None)
        except HoldfastError as error:
            self._deps.logger.warning("queue.verify_failed", reason=str(error))


async def _start_of(request: Request) -> bytes:
    """The body; of one that is too large, enough to see that. The rest is received too: a cut counts as a failure."""
    body = bytearray()
    async for piece in request.stream():
        if len(body) <= chainhook.READ_MAX:
            body += piece
    return bytes(body)
