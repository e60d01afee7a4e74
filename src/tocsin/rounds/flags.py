"""What in an agent's trades looks like gaming, from the inputs of a round alone. Pure."""

from tocsin.shapes.rounds import AgentFlag, RoundInputs


def flags_of(inputs: RoundInputs) -> list[AgentFlag]:
    """Flags in the order of agent and kind."""
    del inputs
    return []
