"""Recounts a round from its file and compares the results. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from tocsin.bindings import JSON
from tocsin.rounds.round_file_reader import RoundFile
from tocsin.rounds.scoring import score
from tocsin.shapes.recount_report import RecountDifference, RecountReport
from tocsin.shapes.rounds import AgentFlag, RoundOutcome


def recount(file: RoundFile) -> RecountReport:
    """Compute the result from the inputs of the file, and report every value of its outcome that differs."""
    counted = score(file.inputs)
    differences = [*_differences(_named_values(file.outcome), _named_values(counted))]
    return RecountReport(
        file.inputs.rules.round_id,
        file.digest,
        not differences,
        counted.results,
        counted.rewards,
        counted.flags,
        differences,
    )


Named = dict[str, dict[str, JSON]]


def _named_values(outcome: RoundOutcome) -> Named:
    """Return every result, reward and flag by a name."""
    results = {f"result of agent {result.erc8004_agent_id}": result.to_json() for result in outcome.results}
    rewards = {f"reward for {reward.category}": reward.to_json() for reward in outcome.rewards}
    return {**results, **rewards, **dict(_named_flags(outcome.flags))}


def _named_flags(flags: Iterable[AgentFlag]) -> Iterator[tuple[str, dict[str, JSON]]]:
    seen: Counter[tuple[int, str]] = Counter()
    for flag in sorted(flags, key=lambda flag: (flag.erc8004_agent_id, flag.kind, flag.reason, flag.txids)):
        seen[flag.erc8004_agent_id, flag.kind] += 1
        number = seen[flag.erc8004_agent_id, flag.kind]
        name = f"flag {flag.kind} of agent {flag.erc8004_agent_id}"
        yield name if number == 1 else f"{name}, no. {number}", flag.to_json()


def _differences(in_file: Named, counted: Named) -> Iterator[RecountDifference]:
    for name in {**in_file, **counted}:
        stated, found = in_file.get(name), counted.get(name)
        if stated is None or found is None:
            yield RecountDifference(name, _text(stated), _text(found))
            continue
        for part in stated:
            if stated[part] != found[part]:
                yield RecountDifference(f"{name}, {part}", _text(stated[part]), _text(found[part]))


def _text(value: JSON) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
