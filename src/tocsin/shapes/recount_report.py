"""What `tocsin recount` says about the file of a round."""

from dataclasses import dataclass

from tocsin.shapes.base import SnakeShape
from tocsin.shapes.rounds import AgentFlag, AgentResult, RoundReward


@dataclass(frozen=True, slots=True)
class RecountDifference(SnakeShape):
    """A value that the file states and that its inputs do not give. Both are JSON text; null: it is not there."""

    where: str
    in_file: str | None
    counted: str | None


@dataclass(frozen=True, slots=True)
class RecountReport(SnakeShape):
    """What the inputs of a file give, and where the file states something else."""

    round_id: str
    digest: str
    same: bool
    results: list[AgentResult]
    rewards: list[RoundReward]
    flags: list[AgentFlag]
    differences: list[RecountDifference]
