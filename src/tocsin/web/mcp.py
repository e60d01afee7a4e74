"""`POST /mcp`: the Model Context Protocol, for participating language models (streamable HTTP, stateless).

A request is one JSON-RPC message, and so is its response: no sessions, no streams. The protocol's own SDK would add
thirty packages, some of them compiled, for these five tools; the tests and `make mcp` use its client.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.errors import HoldfastError
from holdfast.types import JSON
from tocsin.errors import RequestRefused
from tocsin.scheduler.health import health_of
from tocsin.shape import FreeForm, SnakeShape
from tocsin.stacks import ADDRESS_PATTERN, TXID_PATTERN, ContractCall
from tocsin.swaps.codes import Code
from tocsin.web.agent_guide import guide
from tocsin.web.agents import AgentRoutes
from tocsin.web.competition import CompetitionRoutes
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.parameters import text
from tocsin.web.response import NO_STORE, ErrorBody, json_response, refusal_of
from tocsin.web.route import ResponseDoc, json_body, post

# Versions of the protocol, newest first. Older ones have batches, or another transport.
VERSIONS = ("2025-11-25", "2025-06-18")
INVALID_MESSAGE, UNKNOWN_METHOD, INVALID_PARAMETERS = -32600, -32601, -32602
TAKEN = {None, Code.PENDING, Code.TXID_ALREADY_VERIFIED}  # codes of a submission that did not fail

Arguments: TypeAlias = Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class McpMessage(SnakeShape):
    """A JSON-RPC response: it has a `result` or an `error`, and the `id` of its request."""

    jsonrpc: str
    id: int | str | None = None
    result: FreeForm | None = None
    error: FreeForm | None = None


@dataclass(frozen=True, slots=True)
class McpQuery:
    """The protocol's version."""

    version: Annotated[
        str, replace(text("as initialize returned it", "MCP-Protocol-Version"), place="header", strict=True)
    ] = VERSIONS[0]


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool that a model may call. `texts` are its arguments, with their patterns; all of them are text."""

    name: str
    description: str
    texts: Mapping[str, str]
    run: Callable[[Request, Mapping[str, str]], Awaitable[JSON]]
    required: bool = True
    reads: bool = True

    def to_json(self) -> FreeForm:
        properties: FreeForm = {name: {"type": "string", "pattern": text} for name, text in self.texts.items()}
        schema: FreeForm = {"type": "object", "properties": properties}
        if self.required and self.texts:
            schema["required"] = list(self.texts)
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": self.reads, "idempotentHint": True},
        }


class _RpcError(Exception):
    """An error of the protocol, as opposed to one of a tool."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Call:
    """A message that expects a response."""

    number: JSON
    method: str
    parameters: Arguments


class McpRoute:
    """Gives the same answers as the routes of the API."""

    def __init__(self, deps: WebDeps, agents: AgentRoutes, competition: CompetitionRoutes) -> None:
        self._deps = deps
        self._agents = agents
        self._competition = competition
        tools = (
            McpTool("status", "The state of the service, and until when swaps are known.", {}, self._status),
            McpTool(
                "rank",
                "An agent's tier, missing steps, rank in every order, values and latest refusals.",
                {"address": ADDRESS_PATTERN},
                self._rank,
            ),
            McpTool(
                "submit",
                "Submit a swap, so that it counts at once. Without this, it is found within minutes.",
                {"txid": TXID_PATTERN},
                self._submit,
                reads=False,
            ),
            McpTool(
                "explain",
                "Whether a transaction counts, and why, step by step. Nothing is stored.",
                {"txid": TXID_PATTERN},
                self._explain,
            ),
            McpTool(
                "allow_list",
                "The contracts and functions that count, or whether a given one counts.",
                {"contract_id": "^[^ ]{1,200}$", "function_name": "^[^ ]{1,128}$"},
                self._allow_list,
                required=False,
            ),
        )
        self._tools = {tool.name: tool for tool in tools}

    @post(
        "/mcp",
        "callMcp",
        "the result, or an error of the protocol",
        McpMessage,
        errors={
            202: ResponseDoc("a notification was accepted"),
            400: ResponseDoc(
                "not a single JSON-RPC message, or an unsupported version; malformed_body: not JSON",
                (McpMessage, ErrorBody),
            ),
        },
        body_schema={
            "type": "object",
            "required": ["jsonrpc", "method"],
            "properties": {
                "jsonrpc": {"const": "2.0"},
                "id": {"type": ["integer", "string"]},
                "method": {"type": "string"},
                "params": {"type": "object"},
            },
        },
        body_example={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    )
    async def answer(self, request: Request, query: McpQuery) -> ASGIApp:
        """The Model Context Protocol: the tools status, rank, submit, explain and allow_list.

        Streamable HTTP without sessions: one JSON-RPC message in, one out.
        """
        message = await json_body(request)
        try:
            call = _call_of(message, query.version)
        except _RpcError as error:
            number = message.get("id") if isinstance(message, dict) else None
            return _failed(number if type(number) in {int, str} else None, error, 400)
        if call is None:
            return Response(status_code=202, headers=NO_STORE)
        try:
            result = await self._result(request, call.method, call.parameters)
        except _RpcError as error:
            return _failed(call.number, error, 200)
        return json_response({"jsonrpc": "2.0", "id": call.number, "result": result}, headers=NO_STORE)

    async def _result(self, request: Request, method: str, parameters: Arguments) -> JSON:
        match method:
            case "initialize":
                return self._introduction(parameters)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.to_json() for tool in self._tools.values()]}
            case "tools/call":
                return await self._called(request, parameters)
        raise _RpcError(UNKNOWN_METHOD, f"There is no method {method[:60]!r}.")

    def _introduction(self, parameters: Arguments) -> JSON:
        wanted = parameters.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "tocsin", "version": self._deps.version},
            "instructions": guide(self._deps.rules),
        }

    async def _called(self, request: Request, parameters: Arguments) -> JSON:
        tool, given = self._tools.get(str(parameters.get("name"))), parameters.get("arguments")
        if tool is None:
            raise _RpcError(INVALID_PARAMETERS, f"The tools are {', '.join(self._tools)}.")
        values = {
            name: value
            for name, value in (given if isinstance(given, dict) else {}).items()
            if name in tool.texts and isinstance(value, str)
        }
        if tool.required and values.keys() != tool.texts.keys():
            raise _RpcError(INVALID_PARAMETERS, f"{tool.name} takes these arguments as text: {', '.join(tool.texts)}.")
        try:
            result = await tool.run(request, values)
        except HoldfastError as error:
            refusal = refusal_of(error)
            shown: FreeForm = {"error": str(refusal), "code": refusal.code, "retryable": refusal.retryable}
            return _content({**shown, **refusal.fields}, is_error=True)
        return _content(result, is_error=False)

    async def _status(self, _request: Request, _values: Mapping[str, str]) -> JSON:
        snapshot, now = await self._deps.health(), self._deps.clock.now()
        board = await self._agents.board()
        return {
            "service": health_of(snapshot, now).to_json(),
            "boardAsOf": board.as_of,
            "pricesAsOf": board.prices_as_of,
            "agents": len(board.rows),
        }

    async def _rank(self, _request: Request, values: Mapping[str, str]) -> JSON:
        return (await self._agents.view(values["address"])).to_json()

    async def _explain(self, request: Request, values: Mapping[str, str]) -> JSON:
        return (await self._agents.verdict_on(values["txid"], networks_of(request.scope))).to_json()

    async def _submit(self, request: Request, values: Mapping[str, str]) -> JSON:
        answer = await self._competition.submit_trade(values["txid"], networks_of(request.scope))
        if answer.code not in TAKEN:
            raise RequestRefused(
                answer.http_status, answer.code or "", answer.sentence, retryable=answer.retryable, reason=answer.reason
            )
        return answer.to_json()

    async def _allow_list(self, _request: Request, values: Mapping[str, str]) -> JSON:
        allowlist = self._deps.rules.allowlist
        contract, function = values.get("contract_id"), values.get("function_name")
        if contract is None:
            return allowlist.view().to_json()
        if function is None:
            functions: list[JSON] = [*sorted(allowlist.contracts.get(contract, ()))]
            return {"contract_id": contract, "allowed": bool(functions), "functions": functions}
        return {
            "contract_id": contract,
            "function_name": function,
            "allowed": allowlist.allows(ContractCall(contract, function)),
        }


def _content(value: JSON, *, is_error: bool) -> JSON:
    """A tool's result, as text and as structured content."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": is_error}


def _call_of(message: JSON, version: str) -> _Call | None:
    """The call of a message; None for a notification or a response, which get no response."""
    if isinstance(message, list):
        raise _RpcError(INVALID_MESSAGE, "Batches are not supported: send one message at a time.")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise _RpcError(INVALID_MESSAGE, "Send one JSON-RPC 2.0 message as a JSON object.")
    number, method, parameters = message.get("id"), message.get("method"), message.get("params")
    if method != "initialize" and version not in VERSIONS:
        known = " or ".join(VERSIONS)
        raise _RpcError(INVALID_MESSAGE, f"MCP-Protocol-Version must be {known}, as initialize returned it.")
    if "id" not in message or (method is None and not message.keys().isdisjoint(("result", "error"))):
        return None
    if type(number) not in {int, str}:
        raise _RpcError(INVALID_MESSAGE, "The id of a message is a whole number or text.")
    if not isinstance(method, str):
        raise _RpcError(INVALID_MESSAGE, "A message with an id needs a method, as text.")
    return _Call(number, method, parameters if isinstance(parameters, dict) else {})


def _failed(number: JSON, error: _RpcError, status: int) -> Response:
    shown: FreeForm = {"code": error.code, "message": str(error)}
    return json_response({"jsonrpc": "2.0", "id": number, "error": shown}, status, NO_STORE)
