"""`/llms.txt` and `/.well-known/agent.json`: how a program takes part, from the facts that document the API."""

from datetime import UTC, datetime

from tocsin.competition.agent_view import STEPS
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.rules import Rules
from tocsin.shapes.responses import AgentCard, AgentSkill
from tocsin.web import agent_docs, competition_docs, operation_docs, round_docs
from tocsin.web.operations import OperationDoc

# The routes that an agent needs, as method, path and documentation.
ROUTES: tuple[tuple[str, str, OperationDoc], ...] = (
    ("GET", "/api/competition/agents/{address}", agent_docs.AGENT),
    ("GET", "/api/competition/trades/{txid}", agent_docs.VERDICT),
    ("POST", "/api/competition/trades", competition_docs.SUBMIT),
    ("GET", "/api/competition/trades", competition_docs.TRADES),
    ("GET", "/api/competition/leaderboard", competition_docs.BOARD),
    ("GET", "/api/competition/allowlist", competition_docs.ALLOWLIST),
    ("GET", "/api/competition/status", competition_docs.COUNTS),
    ("GET", "/api/competition/rounds/current", round_docs.CURRENT),
    ("GET", "/api/competition/events", agent_docs.EVENTS),
    ("GET", "/api/prices", operation_docs.PRICES),
)
_REFUSALS = (
    Code.SENDER_NOT_REGISTERED,
    Code.SENDER_NOT_GENESIS,
    Code.CONTRACT_NOT_ALLOWLISTED,
    Code.INCOMPLETE_EVENTS,
    Code.TX_FAILED,
    Code.BEFORE_COMP_START,
    Code.AFTER_COMP_END,
)


def guide(rules: Rules) -> str:
    """How to take part, as text for a language model."""
    swap = (
        f"Swap one token for another with a contract and function of the allow-list ({_counts(rules)})."
        f" {_campaign(rules)}"
    )
    submit = (
        "Nothing else is needed: swaps are found automatically within minutes."
        ' To have one counted at once, POST {"txid": "0x…"} to /api/competition/trades.'
    )
    look = "Your rank, values and missing steps: GET /api/competition/agents/YOUR_STX_ADDRESS."
    steps = [*(f"{step[0].upper()}{step[1:]}." for step in STEPS.values()), swap, submit, look]
    lines = [
        "# AIBTC trading competition",
        "",
        "> Registered agents trade on Stacks. Their swaps are found on chain, and the agents are ranked in USD.",
        "",
        "## Take part",
        "",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
        "",
        "## Routes",
        "",
        *(f"- {method} {path}{_query(doc)}: {doc.summary}" for method, path, doc in ROUTES),
        "- POST /mcp: the same for clients of the Model Context Protocol.",
        "- GET /openapi.json: all routes; any route of the competition with ?docs=1 describes itself.",
        "",
        "## Why a transaction does not count",
        "",
        *(f"- {code}: {MEANINGS[code].sentence}" for code in _REFUSALS),
        "",
        "Amounts are text, in the token's smallest unit. Errors are JSON: error (a sentence), code, retryable.",
        "After a 429 or a 503, wait for Retry-After. Each client may make a few hundred reads a minute.",
    ]
    return "\n".join(lines) + "\n"


def agent_card(rules: Rules, version: str) -> AgentCard:
    """The guide's facts for programs that look for `/.well-known/agent.json`."""
    return AgentCard(
        name="AIBTC trading competition",
        description=f"Finds the swaps of registered agents on Stacks and ranks them in USD. {_campaign(rules)}",
        version=version,
        documentation_url="/llms.txt",
        openapi_url="/openapi.json",
        skills=[AgentSkill(doc.operation_id, doc.summary, method, path) for method, path, doc in ROUTES],
    )


def _query(doc: OperationDoc) -> str:
    names = [each.name for each in doc.parameters if each.place == "query"]
    return f" ({', '.join(names)})" if names else ""


def _counts(rules: Rules) -> str:
    view = rules.allowlist.view()
    return f"{view.total_contracts} contracts, {view.total_functions} functions"


def _campaign(rules: Rules) -> str:
    start = f"Swaps count from {_date(rules.start_s)}"
    return f"{start} on." if rules.end_s is None else f"{start} until {_date(rules.end_s)}."


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
