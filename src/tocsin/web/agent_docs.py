"""The documentation of the operations for participating programs, for `/openapi.json` and `/api/docs`."""

from tocsin.chain_model import TXID_PATTERN
from tocsin.competition import page_token
from tocsin.competition.codes import MEANINGS
from tocsin.competition.refusal_list import PAGE_DEFAULT, PAGE_MAX
from tocsin.shapes.agents import AgentView, RefusalPage, TradeVerdict
from tocsin.shapes.responses import AgentCard, ErrorBody, McpMessage
from tocsin.stacks_address import ADDRESS_PATTERN
from tocsin.web.competition_docs import EXAMPLE_SENDER, EXAMPLE_TXID
from tocsin.web.operations import OperationDoc, Parameter, ResponseDoc

AGENT = OperationDoc(
    operation_id="getAgent",
    tag="competition",
    summary="One agent: its tier, missing steps, ranks, values, latest refusals and rounds.",
    parameters=(
        Parameter(
            "address",
            {"type": "string", "pattern": ADDRESS_PATTERN},
            "a Stacks mainnet address",
            place="path",
            example=EXAMPLE_SENDER,
        ),
    ),
    responses={200: ResponseDoc("the agent; an address that is not registered has that tier", (AgentView,))},
)
VERDICT = OperationDoc(
    operation_id="getVerdict",
    tag="competition",
    summary="Whether a transaction counts, and why, step by step. Nothing is stored.",
    description="Recorded, refused and queued transactions are answered from the database. For any other, the service"
    " asks the chain, with calls from your share.",
    parameters=(
        Parameter(
            "txid",
            {"type": "string", "pattern": TXID_PATTERN},
            "64 hex digits, with or without 0x before them",
            place="path",
            example=EXAMPLE_TXID,
        ),
    ),
    responses={
        200: ResponseDoc("the verdict", (TradeVerdict,)),
        404: ResponseDoc(
            "tx_not_found: Hiro does not know it; if it was just broadcast, try again", (ErrorBody,)
        ),
        429: ResponseDoc(
            "too_many_requests: too many reads, or this client has used its share of the calls to Hiro",
            (ErrorBody,),
        ),
        502: ResponseDoc("tx_fetch_failed: Hiro cannot be reached now", (ErrorBody,)),
    },
)
CSV = OperationDoc(
    operation_id="getBoardCsv",
    tag="competition",
    summary="The whole leaderboard by P&L, as CSV for a spreadsheet.",
    responses={200: ResponseDoc("a line for each agent; unknown values are empty", media_type="text/csv")},
)
GUIDE = OperationDoc(
    operation_id="getGuide",
    tag="service",
    summary="How a program takes part in the competition, as plain text.",
    responses={200: ResponseDoc("the guide", media_type="text/plain")},
    store=False,
)
CARD = OperationDoc(
    operation_id="getAgentCard",
    tag="service",
    summary="What this service offers programs.",
    responses={200: ResponseDoc("the card", (AgentCard,))},
    store=False,
)
MCP = OperationDoc(
    operation_id="callMcp",
    tag="service",
    summary="The Model Context Protocol: the tools status, rank, submit, explain and allow_list.",
    description="Streamable HTTP without sessions: one JSON-RPC message in, one out.",
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
    parameters=(
        Parameter("MCP-Protocol-Version", {"type": "string"}, "as initialize returned it", "header"),
    ),
    responses={
        200: ResponseDoc("the result, or an error of the protocol", (McpMessage,)),
        202: ResponseDoc("a notification was accepted"),
        400: ResponseDoc(
            "not a single JSON-RPC message, or an unsupported version; malformed_body: not JSON",
            (McpMessage, ErrorBody),
        ),
    },
)
REFUSALS = OperationDoc(
    operation_id="listRefusals",
    tag="scheduler",
    summary="Transactions that do not count, newest first, with the reason.",
    key="X-Admin-Key",
    parameters=(
        Parameter(
            "code",
            {"enum": ["", *(str(code) for code, meaning in MEANINGS.items() if meaning.final)]},
            "only this reason",
        ),
        Parameter("sender", {"type": "string"}, "only refusals of this wallet; not together with code"),
        Parameter("limit", {"type": "number"}, f"{PAGE_DEFAULT} by default, {PAGE_MAX} at most"),
        Parameter("cursor", {"type": "string", "pattern": page_token.PATTERN}, "`next` of the previous page"),
    ),
    responses={200: ResponseDoc("a page", (RefusalPage,))},
)
EVENTS = OperationDoc(
    operation_id="streamNews",
    tag="competition",
    summary="Server-sent events: swaps that are counted or withdrawn, and each new board; or all events of one agent.",
    description="Each event's `data` is `News`. With an address there are also `refused` and `outranked`. While nothing"
    " happens, a comment is sent every 15 s. `Last-Event-ID` continues after an interruption.",
    parameters=(
        Parameter(
            "address",
            {"type": "string"},
            "only events of this agent, of every kind",
            example=EXAMPLE_SENDER,
        ),
    ),
    responses={
        200: ResponseDoc("the stream", media_type="text/event-stream"),
        429: ResponseDoc(
            "too_many_streams, or too_many_requests: too many reads; see Retry-After", (ErrorBody,)
        ),
    },
)
