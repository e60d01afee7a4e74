"""The report of `tocsin doctor`."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.shapes.base import Shape

Verdict: TypeAlias = Literal["ok", "warning", "problem", "skipped"]


@dataclass(frozen=True, slots=True)
class DoctorCheck(Shape):
    """One check. The sentence describes what was found, or what is wrong and how to fix it."""

    name: str
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True)
class DoctorReport(Shape):
    """`ok` is true if there is no problem; warnings do not count."""

    ok: bool
    checks: list[DoctorCheck]
