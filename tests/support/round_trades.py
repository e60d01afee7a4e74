"""Small rounds, written by hand: agents, trades in dollars, and the results."""

from collections.abc import Iterable, Sequence

from tocsin.rounds.round import FlagDecision, RoundAgent, RoundInputs, RoundOutcome, RoundPrice, RoundRules, RoundSwap
from tocsin.rounds.score import score

START = 1_800_000_000
HOUR = 3_600
RULES = RoundRules("w", START, START + 7 * 24 * HOUR, START + 8 * 24 * HOUR)
PRICES = [
    RoundPrice("stx", "1", 6, "tenero", 0, "1000000", "1000000"),
    RoundPrice("A.a::usd", "1", 6, "peg", 0),
    RoundPrice("B.b::btc", "100000", 8, "tenero", 0, "1000000", "1000000"),
]
STX, USD, BTC = "stx", "A.a::usd", "B.b::btc"
UNIT = {STX: 10**6, USD: 10**6, BTC: 1_000}  # of a dollar's worth


def agent(number: int, *, funder: str | None = None, owner: str | None = None, wallet: str = "") -> RoundAgent:
    return RoundAgent(wallet or f"SP{number}", f"bc1{number}", number, owner=owner, first_funder=funder)


class Trades:
    """Swaps in order, in dollars."""

    def __init__(self) -> None:
        self.swaps: list[RoundSwap] = []

    def swap(self, sender: str, sold: str, given: float, bought: str, gotten: float, minute: float) -> None:
        number = len(self.swaps)
        self.swaps.append(
            RoundSwap(
                txid=f"0x{number:064x}",
                sender=sender,
                contract_id="C.c",
                function_name="swap",
                token_in=sold,
                amount_in=str(round(given * UNIT[sold])),
                token_out=bought,
                amount_out=str(round(gotten * UNIT[bought])),
                burn_block_time=START + int(minute * 60),
                block_height=int(minute * 12),
                tx_index=number,
                source="cron",
            )
        )


def outcome(
    agents: Sequence[RoundAgent], trades: Trades, decisions: Iterable[FlagDecision] = (), rules: RoundRules = RULES
) -> RoundOutcome:
    return score(RoundInputs(rules, "v", None, list(agents), PRICES, trades.swaps, [], list(decisions)))


def flags(found: RoundOutcome) -> list[tuple[int, str, list[str]]]:
    return [(flag.erc8004_agent_id, flag.kind, list(flag.excludes_from)) for flag in found.flags]


def winners(found: RoundOutcome) -> dict[str, int]:
    return {reward.category: reward.erc8004_agent_id for reward in found.rewards}


def decided(number: int, decision: str, kind: str | None = None, at: str = "2027-01-15T09:00:00Z") -> FlagDecision:
    return FlagDecision.from_dict(
        {
            "erc8004_agent_id": number,
            "decision": decision,
            "kind": kind,
            "reason": "looked at it",
            "decided_by": "ops",
            "decided_at": at,
        }
    )


HONEST = agent(3)


def with_honest(trades: Trades) -> Trades:
    """Add a third agent that gains a little, but less than the first."""
    for at in range(3):
        trades.swap("SP3", STX, 100, BTC, 101, 500 * at)
    return trades


def churned(trades: Trades, trips: int, *, minutes: float = 20, gain: float = 0.994, parts: int = 1) -> None:
    for trip in range(trips):
        at = trip * 200
        trades.swap("SP1", STX, 100, USD, 100, at)
        for _ in range(parts):
            trades.swap("SP1", USD, 100 / parts, STX, 100 * gain / parts, at + minutes)


def opposite(trades: Trades, *senders: str) -> Trades:
    """The first gains 50, the others lose 45 each; the honest one gains 3."""
    with_honest(trades)
    for at in range(3):
        trades.swap(senders[0], STX, 200, BTC, 200 + 50 / 3, 100 * at + 7)
        for other in senders[1:]:
            trades.swap(other, BTC, 150 + at, STX, 135 + at, 100 * at + 77)
    return trades
