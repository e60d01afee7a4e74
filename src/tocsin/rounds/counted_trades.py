"""The swaps that count in a round, by agent, and what they are worth as integers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tocsin.rounds.token_values import TokenValue, integer_units
from tocsin.shapes.rounds import RoundInputs, RoundSwap


@dataclass(frozen=True, slots=True)
class AgentTrades:
    """The trades of one agent that count, in the order of the chain, and what each gave, in parts of a dollar."""

    swaps: list[RoundSwap]
    values: list[int]
    volume: int


@dataclass(frozen=True, slots=True)
class CountedTrades:
    """By agent. `units` is what one smallest unit of a token is worth; a dollar has `dollar` parts."""

    by_agent: Mapping[int, AgentTrades]
    units: Mapping[str, int]
    dollar: int

    def usd(self, value: int) -> str:
        """For people: whole dollars, rounded down."""
        return f"{value // self.dollar:,} USD"


def counted_trades(inputs: RoundInputs, values: Mapping[str, TokenValue]) -> CountedTrades:
    """The trades whose two tokens have a price and are not thin, of eligible senders, within the round.

    The swaps of the inputs are in the order of the chain.
    """
    units, dollar = integer_units(values)
    agent_of = {agent.stx_address: agent.erc8004_agent_id for agent in inputs.agents}
    swaps_of: dict[int, list[RoundSwap]] = {agent_id: [] for agent_id in agent_of.values()}
    by_sender = {sender: swaps_of[agent_id] for sender, agent_id in agent_of.items()}
    starts_at, ends_at = inputs.rules.starts_at, inputs.rules.ends_at
    for swap in inputs.swaps:
        _, sender, _, _, token_in, _, token_out, _, at, _, _, _ = swap  # fast: there may be a million
        if token_in in units and token_out in units and starts_at <= at < ends_at and sender in by_sender:
            by_sender[sender].append(swap)
    return CountedTrades(
        {agent_id: _agent_trades(swaps, units) for agent_id, swaps in sorted(swaps_of.items())}, units, dollar
    )


def _agent_trades(swaps: list[RoundSwap], units: Mapping[str, int]) -> AgentTrades:
    values = [int(swap.amount_in) * units[swap.token_in] for swap in swaps]
    return AgentTrades(swaps, values, sum(values))
