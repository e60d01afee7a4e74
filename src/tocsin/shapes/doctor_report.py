"""What `tocsin doctor` found."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

Verdict: TypeAlias = Literal["ok", "warning", "problem", "skipped"]


@dataclass(frozen=True, slots=True)
class DoctorCheck(Shape):
    """One thing that was looked at. The sentence says what is there, or what is wrong and how to fix it."""

    name: str
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True)
class DoctorReport(Shape):
    """`ok` when nothing is a problem; warnings do not count."""

    ok: bool
    checks: list[DoctorCheck]
