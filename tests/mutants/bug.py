"""A deliberate bug: a text in the source, its replacement, and the tests that must catch it."""

from dataclasses import dataclass
from pathlib import Path

SOURCE = "src/tocsin"


@dataclass(frozen=True, slots=True)
class Bug:
    """`file` is below `src/tocsin`. `old` occurs in it exactly once. `tests` are files or node ids below `tests`.

    `origin` is where the bug comes from: a review, a defect of the reference, a rule of durable objects.
    """

    name: str
    file: str
    old: str
    new: str
    origin: str
    breaks: str
    tests: tuple[str, ...]

    def path(self, root: Path) -> Path:
        return root / SOURCE / self.file

    def applied(self, text: str) -> str:
        """The text of the file with the bug in it; raises ValueError if the bug no longer applies."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.name} no longer applies: its text occurs {count} times in {SOURCE}/{self.file}."
                " Find where the code has gone, and change `old` and `new` in tests/mutants"
            )
        changed = text.replace(self.old, self.new)
        if self.file.endswith(".py"):
            compile(changed, self.file, "exec")
        return changed
