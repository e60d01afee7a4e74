"""Decides whether a history of concurrent operations is linearizable.

It is linearizable if each operation can be assigned an instant between its call and its end such that all results are
those of a single copy that does one operation after the other. An operation whose caller never learned the result,
because the process was killed, may have taken effect at any instant until then, or not at all.

The search is that of Wing and Gong: take any operation that no unplaced one precedes, and backtrack if its result does
not fit. As Lowe proposes, failed combinations of placed operations and state are remembered, so that none is tried
twice.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. `called` and `ended` are positions in one order of all calls and ends.

    If the result is not `known`, `ended` is the latest time at which the operation can have taken effect.
    """

    name: str
    arguments: tuple[Hashable, ...]
    called: int
    ended: int
    result: Hashable = None
    known: bool = True

    def __str__(self) -> str:
        shown = repr(self.result) if self.known else "?"
        return f"{self.called}-{self.ended} {self.name}{self.arguments} -> {shown}"


@dataclass(frozen=True, slots=True)
class LinearizabilityVerdict:
    """`order` explains the history, or is the longest one found; `unplaced` are the operations that did not fit."""

    linearizable: bool
    order: tuple[Operation, ...]
    unplaced: tuple[Operation, ...]

    def __str__(self) -> str:
        placed = "\n".join(map(str, self.order[-10:]))
        return f"after\n{placed}\nnone of these fits:\n" + "\n".join(map(str, self.unplaced[:10]))


@dataclass(frozen=True, slots=True)
class _Step(Generic[S]):
    """The placed operations as a bit set, the resulting state, and the previous step."""

    placed: int
    state: S
    last: Operation | None
    before: "_Step[S] | None"

    def order(self) -> tuple[Operation, ...]:
        operations, step = [], self
        while step.before is not None:
            if step.last is not None:
                operations.append(step.last)
            step = step.before
        return tuple(reversed(operations))


def check_history(
    history: Sequence[Operation], start: S, apply: Callable[[S, Operation], tuple[S, Hashable]]
) -> LinearizabilityVerdict:
    """Check a history. `apply` is what a single copy does: from state and operation to next state and result."""
    operations = sorted(history, key=lambda each: each.called)
    complete = (1 << len(operations)) - 1
    todo, seen = [_Step(0, start, None, None)], {(0, start)}
    furthest = todo[0]
    while todo:
        step = todo.pop()
        if step.placed == complete:
            return LinearizabilityVerdict(True, step.order(), ())
        if step.placed.bit_count() > furthest.placed.bit_count():
            furthest = step
        for following in _following(operations, step, apply):
            if (following.placed, following.state) not in seen:
                seen.add((following.placed, following.state))
                todo.append(following)
    unplaced = [each for number, each in enumerate(operations) if not furthest.placed >> number & 1]
    return LinearizabilityVerdict(False, furthest.order(), tuple(unplaced))


def _following(
    operations: Sequence[Operation], step: _Step[S], apply: Callable[[S, Operation], tuple[S, Hashable]]
) -> list[_Step[S]]:
    """Return all possible next steps: no unplaced operation may have ended before the call of the next one."""
    steps: list[_Step[S]] = []
    first_end = min(each.ended for number, each in enumerate(operations) if not step.placed >> number & 1)
    for number, operation in enumerate(operations):
        if operation.called > first_end:
            break
        if step.placed >> number & 1:
            continue
        placed = step.placed | 1 << number
        if not operation.known:
            steps.append(_Step(placed, step.state, None, step))  # it did not take effect
        state, result = apply(step.state, operation)
        if not operation.known or result == operation.result:
            steps.append(_Step(placed, state, operation, step))
    return steps
