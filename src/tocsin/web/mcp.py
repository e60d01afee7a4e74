"""`POST /mcp`: the Model Context Protocol, for participating language models (streamable HTTP, stateless).

A request is one JSON-RPC message, and so is its response: no sessions, no streams. A tool takes the parameters of the
route that it stands for. The protocol's own SDK would add thirty packages, some of them compiled, for these tools; the
tests and `make mcp` use its client.
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
from tocsin import __version__
from tocsin.errors import RequestRefused
from tocsin.rounds.store import current_rounds, round_detail
from tocsin.scheduler.health import health_of
from tocsin.shape import FreeForm, SnakeShape
from tocsin.stacks import ContractCall
from tocsin.swaps.rules import Code
from tocsin.web.agent_guide import guide
from tocsin.web.agents import AgentRoutes
from tocsin.web.competition import CompetitionRoutes
from tocsin.web.deps import WebDeps
from tocsin.web.limits import networks_of
from tocsin.web.parameters import TXID, Parameter, parameters, read_values, text
from tocsin.web.prices import PriceRoutes
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
class McpTool:
    """A tool that a model may call, with the parameters of `run`: all of them are text."""

    name: str
    description: str
    run: Callable[..., Awaitable[JSON | SnakeShape]]
    reads: bool = True

    @property
    def arguments(self) -> Mapping[str, Parameter]:
        return parameters(self.run)

    def to_json(self) -> FreeForm:
        arguments = self.arguments.values()
        properties: FreeForm = {each.name: _argument(each) for each in arguments}
        required: list[JSON] = [each.name for each in arguments if each.required]
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": {"type": "object", "properties": properties, "required": required},
            "annotations": {"readOnlyHint": self.reads, "idempotentHint": True},
        }


def _argument(parameter: Parameter) -> FreeForm:
    schema: FreeForm = {"type": "string", "description": parameter.description}
    return schema | {name: parameter.schema[name] for name in ("pattern", "enum") if name in parameter.schema}


class _RpcError(Exception):
    """An error of the protocol, as opposed to one of a tool."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class McpRoute:
    """Gives the same answers as the routes of the API."""

    def __init__(self, deps: WebDeps, agents: AgentRoutes, competition: CompetitionRoutes, prices: PriceRoutes) -> None:
        self._deps = deps
        self._competition = competition
        tools = (
            McpTool("status", "The state of the service, and until when swaps are known.", self._status),
            McpTool(
                "rank",
                "An agent's tier, missing steps, rank in every order, values, flags and latest refusals.",
                agents.agent,
            ),
            McpTool("leaderboard", "A page of the leaderboard.", competition.leaderboard),
            McpTool("rounds", "The running round with its rules and prizes, or the result of one.", self._rounds),
            McpTool("prices", "Token prices in USD.", prices.prices),
            McpTool(
                "submit",
                "Submit a swap, so that it counts at once. Without this, it is found within minutes.",
                self._submit,
                reads=False,
            ),
            McpTool(
                "explain", "Whether a transaction counts, and why, step by step. Nothing is stored.", agents.verdict
            ),
            McpTool(
                "allow_list", "The contracts and functions that count, or whether a given one counts.", self._allow_list
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
    async def answer(
        self,
        request: Request,
        version: Annotated[
            str, replace(text("as initialize returned it", "MCP-Protocol-Version"), place="header", strict=True)
        ] = VERSIONS[0],
    ) -> ASGIApp:
        """The Model Context Protocol: status, rank, leaderboard, rounds, prices, submit, explain and allow_list.

        Streamable HTTP without sessions: one JSON-RPC message in, one out.
        """
        message = await json_body(request)
        try:
            call = _call_of(message, version)
        except _RpcError as error:
            number = message.get("id") if isinstance(message, dict) else None
            return _failed(number if type(number) in {int, str} else None, error, 400)
        if call is None:
            return Response(status_code=202, headers=NO_STORE)
        number, method, parameters = call
        try:
            result = await self._result(request, method, parameters)
        except _RpcError as error:
            return _failed(number, error, 200)
        return json_response({"jsonrpc": "2.0", "id": number, "result": result}, headers=NO_STORE)

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
            "serverInfo": {"name": "tocsin", "version": __version__},
            "instructions": guide(self._deps.rules),
        }

    async def _called(self, request: Request, parameters: Arguments) -> JSON:
        tool, given = self._tools.get(str(parameters.get("name"))), parameters.get("arguments")
        if tool is None:
            raise _RpcError(INVALID_PARAMETERS, f"The tools are {', '.join(self._tools)}.")
        sent = given if isinstance(given, dict) else {}
        texts = {name: value for name, value in sent.items() if isinstance(value, str)}
        known = tool.arguments
        if any(each.name not in texts and (each.required or each.name in sent) for each in known.values()):
            names = ", ".join(each.name for each in known.values())
            raise _RpcError(INVALID_PARAMETERS, f"{tool.name} takes these arguments as text: {names}.")
        try:
            result = await tool.run(request, **read_values(known, lambda each: texts.get(each.name)))
        except HoldfastError as error:
            refusal = refusal_of(error)
            shown: FreeForm = {"error": str(refusal), "code": refusal.code, "retryable": refusal.retryable}
            return _content({**shown, **refusal.fields}, is_error=True)
        return _content(result.to_json() if isinstance(result, SnakeShape) else result, is_error=False)

    async def _status(self, _request: Request) -> JSON:
        snapshot, now = await self._deps.health(), self._deps.clock.now()
        board = await self._deps.newest_board()
        return {
            "service": health_of(snapshot, now).to_json(),
            "boardAsOf": board.as_of,
            "pricesAsOf": board.prices_as_of,
            "agents": len(board.rows),
        }

    async def _rounds(
        self,
        _request: Request,
        round_id: Annotated[str, text("a round; the current ones and the newest result by default")] = "",
    ) -> SnakeShape:
        db, now_s = self._deps.db, self._deps.clock.now() // 1000
        return await (round_detail(db, round_id) if round_id else current_rounds(db, now_s))

    async def _submit(self, request: Request, txid: Annotated[str, TXID]) -> SnakeShape:
        answer = await self._competition.submit_trade(txid, networks_of(request.scope))
        if answer.code not in TAKEN:
            raise RequestRefused(
                answer.http_status, answer.code or "", answer.sentence, retryable=answer.retryable, reason=answer.reason
            )
        return answer

    async def _allow_list(
        self,
        _request: Request,
        contract: Annotated[str, text("a contract; the whole list by default", "contract_id")] = "",
        function: Annotated[str, text("a function of it", "function_name")] = "",
    ) -> JSON | SnakeShape:
        allowlist = self._deps.rules.allowlist
        if not contract:
            return allowlist.view()
        if not function:
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


def _call_of(message: JSON, version: str) -> tuple[JSON, str, Arguments] | None:
    """The id, the method and the parameters of a message; None for a notification or a response: nobody waits."""
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
    return number, method, parameters if isinstance(parameters, dict) else {}


def _failed(number: JSON, error: _RpcError, status: int) -> Response:
    shown: FreeForm = {"code": error.code, "message": str(error)}
    return json_response({"jsonrpc": "2.0", "id": number, "error": shown}, status, NO_STORE)
