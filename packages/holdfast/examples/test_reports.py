"""What docs/jobs.md shows: the night in which the clock is set forward, and a job that is run by hand."""

import pytest

from holdfast.testing import VirtualObjects
from reports import Reports


@pytest.mark.holdfast(start="2026-03-27T12:00+01:00")  # a Friday; on Sunday, 02:00 to 03:00 does not exist
async def test_the_report_is_sent_at_eight_by_the_clock_on_the_wall(objects: VirtualObjects) -> None:
    """On Monday, in summer time now: eight hours after midnight are 96 times five minutes."""
    posted: list[str] = []

    async def post(text: str) -> None:
        posted.append(text)

    objects.bind(post=post)
    await objects.get(Reports, "sales").begin()
    await objects.advance(days=3)
    assert posted == ["96 collected since midnight"]


async def test_a_job_is_run_by_hand(objects: VirtualObjects) -> None:
    """Even while it is paused; the history says so."""
    reports = objects.get(Reports, "sales")
    await reports.begin()
    await reports.pause("collect")
    assert await reports.run_now("collect") == 1

    job = (await reports.jobs())["collect"]
    assert job["paused"]
    assert [(run["due_at"], run["error"]) for run in job["history"]] == [(None, None)]
