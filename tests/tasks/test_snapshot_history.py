"""The task `snapshot`: the published board becomes a point of the history."""

from pathlib import Path
from random import Random

from holdfast_testing.virtual_time import START_MS
from support.market import Market
from support.pages_world import sample_row
from support.task_run import task_bench
from tocsin.board.history import history_of, snapshot_task
from tocsin.board.published import PublishedBoard, publish
from tocsin.settings import Settings

TASK = snapshot_task(Settings())
HOUR_MS = 3_600_000


async def test_the_published_board_is_kept_once_an_hour(tmp_path: Path) -> None:
    """A board that is an hour old is not this hour's: the task looks again until there is a newer one."""
    async with task_bench(tmp_path, Market([])) as bench:
        nothing_yet = await bench.run(TASK)
        agent = sample_row(Random(1), 1, START_MS)
        await publish(bench.kv, PublishedBoard([agent], START_MS, None, final=False))
        results = [await bench.run(TASK)]
        for seconds in (60, 3_539, 1, 5_400):
            await bench.wired.clock.sleep(seconds)
            results.append(await bench.run(TASK))
        await publish(bench.kv, PublishedBoard([agent], bench.wired.clock.now(), None, final=False))
        await bench.wired.clock.sleep(300)
        results.append(await bench.run(TASK))
        points = await history_of(bench.db, agent.erc8004_agent_id, 0, START_MS + 9 * HOUR_MS)

    assert nothing_yet.counters == {"agents": 0, "appended": 0, "daysThinned": 0, "pricesThinned": 0}
    assert (nothing_yet.error, nothing_yet.wake_at) == (None, START_MS + 300_000)
    assert START_MS % HOUR_MS == 1_800_000
    assert [(result.counters["appended"], result.wake_at) for result in results] == [
        (1, None),
        (0, None),  # a minute later
        (1, None),  # in the next hour
        (0, START_MS + 3_600_000 + 300_000),  # the board is an hour old, in the middle of the next hour
        (0, START_MS + 2 * HOUR_MS + 1_800_000 + 300_000),  # at a full hour
        (1, None),  # published again
    ]
    assert [point.at - START_MS for point in points] == [0, 3_540_000, 9_300_000]


async def test_a_board_of_the_future_is_not_kept(tmp_path: Path) -> None:
    """It was published before the clock was set back: its figures are not those of this hour."""
    async with task_bench(tmp_path, Market([])) as bench:
        agent = sample_row(Random(1), 1, START_MS)
        await publish(bench.kv, PublishedBoard([agent], START_MS + 1, None, final=False))
        result = await bench.run(TASK)

    assert (result.counters["agents"], result.counters["appended"]) == (0, 0)


def test_it_runs_on_the_hour_and_calls_nobody() -> None:
    """So that history costs no call."""
    assert (TASK.name, TASK.cadence_ms, TASK.upstream, TASK.calls_per_run) == ("snapshot", 3_600_000, None, 0.0)
