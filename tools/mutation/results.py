"""The results of mutants, stored per module, and their table."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.mutation.generate import Mutant
from tools.mutation.recorded import KEPT, digest, name_of

KILLED, SURVIVED, UNTESTED, NOT_TRIED = "killed", "survived", "no test runs it", "cannot be applied"


class Results:
    """The results of one module. They are void when the module changes."""

    def __init__(self, path: Path) -> None:
        self.name = name_of(path)
        self._place = KEPT / "results" / (self.name.replace("/", "__") + ".json")
        self._digest = digest(path)
        stored = json.loads(self._place.read_text()) if self._place.exists() else {}
        self._known: dict[str, list[str]] = stored["mutants"] if stored.get("digest") == self._digest else {}

    def of(self, mutant: Mutant) -> tuple[str, str] | None:
        known = self._known.get(mutant.key)
        return (known[0], known[1]) if known else None

    def keep(self, mutant: Mutant, outcome: str, by: str) -> None:
        self._known[mutant.key] = [outcome, by]
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._place.write_text(json.dumps({"digest": self._digest, "mutants": self._known}, indent=0))

    def killers(self) -> Counter[str]:
        return Counter(by for outcome, by in self._known.values() if outcome == KILLED)


def label(mutant: Mutant) -> str:
    return f"{mutant.before} -> {mutant.after}"


def show(mutants: Mapping[Path, Sequence[Mutant]], results: Mapping[Path, Results]) -> None:
    total: Counter[str] = Counter()
    rows = []
    for path, found in mutants.items():
        counts: Counter[str] = Counter()
        for mutant in found:
            outcome, by = results[path].of(mutant) or ("unknown", "")
            counts[outcome] += 1
            if outcome != KILLED:
                print(f"{results[path].name}:{mutant.line}: {outcome}: {label(mutant)}  [{mutant.operator}] {by}")
        total.update(counts)
        if found:
            rows.append((results[path].name, counts))
    print("\n| module | mutants | killed | survived | score |\n|---|---|---|---|---|")
    for name, counts in (*rows, ("total", total)):
        print(_row(name, counts))


def _row(name: str, counts: Counter[str]) -> str:
    killed, survived = counts[KILLED], counts[SURVIVED] + counts[UNTESTED]
    tried = killed + survived
    score = f"{100 * killed / tried:.0f} %" if tried else "-"
    left = sum(counts.values()) - tried
    note = f" ({left} not tried)" if left else ""
    return f"| {name} | {sum(counts.values())}{note} | {killed} | {survived} | {score} |"
