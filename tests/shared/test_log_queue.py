"""The queue of log entries, against a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.logs import LogEntry, LogQueue


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["INFO", "ERROR", "take", "take and put back"]), st.integers(1, 4))))
def test_the_queue_keeps_order_and_importance(steps: list[tuple[str, int]]) -> None:
    """A full queue drops the oldest INFO entry, or the oldest of all if there is none."""
    queue = LogQueue(5)
    model: list[LogEntry] = []
    dropped = 0
    for number, (step, count) in enumerate(steps):
        if step in {"INFO", "ERROR"}:
            added = LogEntry("INFO" if step == "INFO" else "ERROR", str(number), {})
            queue.put(added)
            model.append(added)
            if len(model) > 5:
                model.remove(next((old for old in model if old.level == "INFO"), model[0]))
                dropped += 1
        else:
            taken = queue.take(count)

            assert [item for _, item in taken] == model[:count]

            if step == "take":
                del model[:count]
            else:
                queue.put_back(taken)

        assert (len(queue), queue.dropped) == (len(model), dropped)
