"""The report of `tocsin recount` about the file of a round."""

from dataclasses import dataclass

from tocsin.shapes.base import SnakeShape
from tocsin.shapes.rounds import AgentFlag, AgentResult, RoundReward


@dataclass(frozen=True, slots=True)
class RecountDifference(SnakeShape):
    """A value in the file that differs from the one computed from its inputs. Both are JSON text; null: missing."""

    where: str
    in_file: str | None
    counted: str | None


@dataclass(frozen=True, slots=True)
class RecountReport(SnakeShape):
    """The result computed from the inputs of a file, and where the file differs from it."""

    round_id: str
    digest: str
    same: bool
    results: list[AgentResult]
    rewards: list[RoundReward]
    flags: list[AgentFlag]
    differences: list[RecountDifference]
