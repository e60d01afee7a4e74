"""`/llms.txt` and `/.well-known/agent.json`: how a program takes part, from the facts that document the API."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tocsin import __version__
from tocsin.board.agents import STEPS
from tocsin.rounds.round import FlagKind, RoundRules
from tocsin.shape import Shape
from tocsin.swaps.rules import MEANINGS, Code, Rules
from tocsin.text import utc_time
from tocsin.web import agents, competition, events, prices, rounds
from tocsin.web.deps import WebDeps
from tocsin.web.response import aged
from tocsin.web.route import Handler, Operation, get, operation_of

GUIDE_AGE_S = 300
# What an agent needs.
HANDLERS: tuple[Handler, ...] = (
    agents.AgentRoutes.agent,
    agents.AgentRoutes.verdict,
    competition.CompetitionRoutes.submit,
    competition.CompetitionRoutes.trades,
    competition.CompetitionRoutes.leaderboard,
    competition.CompetitionRoutes.allowlist,
    competition.CompetitionRoutes.counts,
    rounds.RoundRoutes.current,
    events.NewsStreams.show,
    prices.PriceRoutes.prices,
)
ROUTES: tuple[Operation, ...] = tuple(operation_of(handler) for handler in HANDLERS)
# What each flag means.
FLAGS: Mapping[FlagKind, str] = {
    "churn": "swapped there and back without a gain, to add volume.",
    "ring": "traded the same amounts at the same time as another agent.",
    "shared_funder": "got its first STX from the same wallet as other agents; only the best of them may win.",
    "shared_owner": "belongs to the same owner as other agents; only the best of them may win.",
    "dust": "made mostly tiny swaps.",
    "excess": "made swaps worth more than their pool can pay.",
    "operator": "was excluded by an operator, with a public reason.",
}
_REFUSALS = (
    Code.SENDER_NOT_REGISTERED,
    Code.SENDER_NOT_GENESIS,
    Code.CONTRACT_NOT_ALLOWLISTED,
    Code.INCOMPLETE_EVENTS,
    Code.TX_FAILED,
    Code.BEFORE_COMP_START,
    Code.AFTER_COMP_END,
)


@dataclass(frozen=True, slots=True)
class AgentSkill(Shape):
    """One thing that a program can request: a route, and what it returns. `id` is its `operationId` in OpenAPI."""

    id: str
    description: str
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class AgentCard(Shape):
    """What the service offers to programs, under the `name` of the competition. Addresses are relative to its own."""

    name: str
    description: str
    version: str
    documentation_url: str
    openapi_url: str
    skills: list[AgentSkill]


class GuideRoutes:
    """Written for the rules in force."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    @get("/llms.txt", "getGuide", "the guide", media_type="text/plain", store=False)
    async def guide(self, _request: Request) -> ASGIApp:
        """How a program takes part in the competition, as plain text."""
        text = guide(self._deps.rules)
        return Response(text, media_type="text/plain; charset=utf-8", headers=aged(GUIDE_AGE_S))

    @get("/.well-known/agent.json", "getAgentCard", "the card", store=False, max_age_s=GUIDE_AGE_S)
    async def card(self, _request: Request) -> AgentCard:
        """What this service offers programs."""
        return agent_card(self._deps.rules, __version__)


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
        "## Prizes and what excludes you",
        "",
        "Rounds have prizes in sats: for the best P&L (overall_pnl), the volume, and the return (P&L / volume).",
        "GET /api/competition/rounds/current has the running round: its end, its `rewards` and its minimums.",
        _minimums(),
        "Swaps with a token that has no price, or whose pools are too small (thin), do not count in USD.",
        "An agent with a flag cannot win the prizes that the flag names. The flags:",
        "",
        *(f"- {kind}: the agent {text}" for kind, text in FLAGS.items()),
        "",
        "Your flags so far are `flags` in GET /api/competition/agents/YOUR_STX_ADDRESS.",
        "",
        "## Routes",
        "",
        *(f"- {each.method} {each.path}{_query(each)}: {each.summary}" for each in ROUTES),
        "- POST /mcp: most of it as tools, for clients of the Model Context Protocol.",
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
        skills=[AgentSkill(each.operation_id, each.summary, each.method, each.path) for each in ROUTES],
    )


def _minimums() -> str:
    rules = RoundRules("", 0, 0, 0)
    return (
        f"Without other minimums, the return needs a volume of ${rules.min_volume_usd}, and"
        f" {rules.min_priced_trade_count} swaps of at least ${rules.dust_usd} in tokens with a price."
    )


def _query(operation: Operation) -> str:
    names = [each.name for each in operation.parameters if each.place == "query"]
    return f" ({', '.join(names)})" if names else ""


def _counts(rules: Rules) -> str:
    view = rules.allowlist.view()
    return f"{view.total_contracts} contracts, {view.total_functions} functions"


def _campaign(rules: Rules) -> str:
    start = f"Swaps count from {utc_time(rules.start_s * 1000)}"
    return f"{start} on." if rules.end_s is None else f"{start} until {utc_time(rules.end_s * 1000)}."
