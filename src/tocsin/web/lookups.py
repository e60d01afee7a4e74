"""`/api/upstream/hiro` and `/tenero`: other programs use them as base URLs, and share our key, budget and back-off.

Nothing of the caller's request but its path, its query and the body of a contract call goes to the upstream, and
nothing of our key comes back. The path must match the list in the settings; what is matched, after decoding, is exactly
what is sent.
"""

import json
import re
from typing import Annotated, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from tocsin.errors import RequestRefused
from tocsin.settings import LookupPath, lookup_share, matching_key
from tocsin.upstream.budget import REQUEST_SHARE
from tocsin.upstream.lookups import Lookup, LookupAnswer
from tocsin.web.deps import WebDeps
from tocsin.web.limits import ClientLimits, networks_of
from tocsin.web.parameters import one_of, text
from tocsin.web.response import NO_STORE, SECURITY_HEADERS, PreparedResponse
from tocsin.web.route import LOOKUP_HEADER, ResponseDoc, get, json_body, key_of, post

PREFIX = "/api/upstream/"
PATH = f"{PREFIX}{{upstream}}/{{path}}"
READ_ONLY = "/v2/contracts/call-read/"
QUERY = re.compile(rb"[!$-~]{0,1024}")  # printable ASCII without quotes and fragments
ANSWERS: dict[int, ResponseDoc | str] = {
    403: "not_allowed: TOCSIN_LOOKUP_PATHS does not have this path",
    200: ResponseDoc("the upstream's JSON, unchanged", is_any_json=True),
    404: ResponseDoc("the upstream's JSON, unchanged: there is no such thing", is_any_json=True),
    410: "upstream_gone: the upstream has switched this endpoint off",
    429: "share_used, budget_used, upstream_limited: no call is left now, and Retry-After says when;"
    " or too_many_requests: too many wrong keys from this client",
    502: "upstream_unusable: the upstream's answer cannot be used, or it refuses our key",
    504: "upstream_unavailable: the upstream gave no answer; if it answered 500, 502 or 503, it is that status",
    422: "upstream_refused: the upstream does not accept this request, with the status 400 or 422",
}


# The query of the request goes with the path.
UpstreamName: TypeAlias = Annotated[str, one_of(("hiro", "tenero"), "the upstream").in_path()]
UpstreamPath: TypeAlias = Annotated[str, text("the path at the upstream").in_path()]


class LookupRoutes:
    """Answers from memory where the object runs in this process, or else asks the object."""

    def __init__(self, deps: WebDeps, limits: ClientLimits) -> None:
        self._deps = deps
        self._limits = limits
        self._lane_share = REQUEST_SHARE + lookup_share(deps.settings.lookup_key)

    @get(PATH, "lookUp", "the upstream's JSON, unchanged", access="lookup", errors=ANSWERS, prepared=True)
    async def read(self, request: Request, upstream: UpstreamName, path: UpstreamPath) -> ASGIApp:
        """Ask an upstream through the shared budget.

        `Age`, `Cache-Control` and `Cache-Status` say how old the answer is and where it comes from; one with the
        header `Warning: 110` is stale.
        """
        return await self._answer(request, upstream, path, None)

    @post(
        PATH,
        "lookUpContract",
        "the upstream's JSON, unchanged",
        access="lookup",
        errors=ANSWERS,
        body_schema={"type": "object"},
        body_example={"sender": "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE", "arguments": []},
    )
    async def call(self, request: Request, upstream: UpstreamName, path: UpstreamPath) -> ASGIApp:
        """Make a read-only contract call through the shared budget: the paths below `/v2/contracts/call-read/`."""
        body = json.dumps(await json_body(request), separators=(",", ":"))
        return await self._answer(request, upstream, path, body)

    def kept(self, scope: Scope) -> PreparedResponse | None:
        """The answer to a GET that needs neither a call nor the object; None if there is none."""
        look_ups, (upstream, _, path) = self._deps.look_ups, scope["path"][len(PREFIX) :].partition("/")
        sent = next((value for name, value in scope["headers"] if name == LOOKUP_HEADER), None)
        if look_ups is None or sent is None or "?" in path:
            return None
        try:
            self._limits.before_key(networks_of(scope))
        except RequestRefused:
            return None
        key = matching_key(sent.decode("latin-1"), self._deps.settings.lookup_key)
        if key is None:
            return None
        now_s = self._deps.clock.monotonic()
        kept = look_ups.fresh((upstream, _target(path, scope), None), now_s)
        if kept is None or kept.status != 200:
            return None
        look_ups.count(key.name, "hit")
        age_s = kept.age_s(now_s)
        if kept.shown is None or kept.shown[0] != age_s:
            kept.shown = age_s, self._prepared(kept.answer("hit", now_s))
        response: PreparedResponse = kept.shown[1]  # type: ignore[assignment]  # nobody else sets it
        return response

    async def _answer(self, request: Request, upstream: str, path: str, body: str | None) -> ASGIApp:
        key, allowed = key_of(request), self._allowed(upstream, f"/{path}")
        if allowed is None or (body is not None) != f"/{path}".startswith(READ_ONLY):
            sentence = f"{upstream} may not be asked for this path: TOCSIN_LOOKUP_PATHS lists what it may."
            raise RequestRefused(403, "not_allowed", sentence)
        if QUERY.fullmatch(request.scope["query_string"]) is None:
            sentence = "The query may have 1,024 characters, percent-encoded: shorten or encode it."
            raise RequestRefused(400, "bad_query", sentence)
        target, share = _target(path, request.scope), key.share / self._lane_share
        asked = Lookup(upstream, target, body, allowed.pattern, allowed.fresh_s, key.name, share)
        answer = await self._deps.scheduler().look_up(asked)
        if answer.code:
            raise _refusal(answer)
        if answer.status != 200 or body is not None:
            return Response(answer.body, answer.status, _headers_of(answer), "application/json")
        return self._prepared(answer)

    def _allowed(self, upstream: str, path: str) -> LookupPath | None:
        return next((each for each in self._deps.settings.lookup_paths if each.allows(upstream, path)), None)

    def _prepared(self, answer: LookupAnswer) -> PreparedResponse:
        headers = [(name.lower().encode(), value.encode()) for name, value in _headers_of(answer).items()]
        compress = self._deps.process.compress
        return PreparedResponse(
            answer.body.encode(), "application/json", [*headers, *SECURITY_HEADERS], compress=compress
        )


def _refusal(answer: LookupAnswer) -> RequestRefused:
    sentence = answer.reason if answer.reason.endswith(".") else f"{answer.reason}."
    again = {} if answer.retry_s is None else {"Retry-After": str(answer.retry_s)}
    return RequestRefused(answer.status, answer.code, sentence, retryable=bool(again), headers=again)


def _headers_of(answer: LookupAnswer) -> dict[str, str]:
    """How old the answer is, and where it comes from."""
    stored = {"hit": "hit", "miss": "fwd=miss; stored", "confirmed": "fwd=stale; fwd-status=304; stored"}
    status = stored.get(answer.how, f"hit; ttl={answer.fresh_s - answer.age_s}")
    headers = {
        "Age": str(answer.age_s),
        "Cache-Control": f"private, max-age={answer.fresh_s}",
        "Cache-Status": f"tocsin; {status}",
        "X-Robots-Tag": "noindex",
    }
    if answer.how == "stale":
        why = re.sub(r"[^ !#-\[\]-~]", "", answer.reason)[:200]
        headers |= {"Warning": f'110 tocsin "stale: {why}"', "Cache-Control": NO_STORE["Cache-Control"]}
    return headers


def _target(path: str, scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    return f"/{path}?{query}" if query else f"/{path}"
