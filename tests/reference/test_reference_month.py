"""Some hours of the comparison that `make month` makes over thirty days, with a fixed seed."""

from pathlib import Path

import pytest
from month_incidents import HOUR_MS, Incident, month_of_incidents
from month_plot import plot
from month_report import BEGIN, END, calls_of, delays, table, write_docs
from month_services import MonthOutcome, live_through

from holdfast.testing.virtual_time import run_virtual
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.traffic import Traffic

HOURS = 5.0
BUSY = Traffic(swaps=60, strangers=5, transfers=20, floods=1.0, reorgs=0.5, network=60)
BAD_HOURS = (
    Incident(55, 0.5, 0.4, "Hiro answers 503", fault=SimulatedFault(kind="status", status=503, upstream="hiro")),
    Incident(8, 1.5, 3.0, "the storage is wiped, and nobody visits", process="wipe", visited=False),
    Incident(12, 1.2, 0, "the process ends", process="restart"),
)


def hours_of(name: str, directory: Path) -> MonthOutcome:
    directory.mkdir(exist_ok=True)
    return run_virtual(
        live_through(
            name, directory, BAD_HOURS, days=HOURS / 24, seed=7, wallets=110, traffic=BUSY, last_ms=HOUR_MS // 2
        )
    )


@pytest.mark.slow
def test_ours_misses_nothing_where_the_reference_does(tmp_path: Path) -> None:
    ours, reference = hours_of("Tocsin", tmp_path / "ours"), hours_of("the reference", tmp_path / "reference")

    assert ours.swaps == reference.swaps > 150
    assert (ours.missed.total(), ours.wrong.total(), ours.silent_minutes.total()) == (0, 0, 0)
    assert max(delays(ours)) < 45 * 60  # Hiro did not answer for 24 minutes
    assert reference.missed.total() > 0  # it was dead when they were mined, and had no time for all of them
    assert reference.wrong.total() > 0  # the largest leg is not the net
    assert 120 <= reference.silent_minutes.total() <= 190  # of the three hours after the wipe, all but the first
    assert calls_of(ours, "hiro") > 0

    rows = {row[0]: row for row in table(ours, reference)}
    assert rows["missed"][1] == "0"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    write_docs(ours, reference, BAD_HOURS, 7, page)
    assert "old" not in page.read_text()
    assert page.read_text().endswith(f"{END}after\n")
    assert (tmp_path / "page.svg").read_text() == plot(ours, reference, BAD_HOURS)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(tmp_path: Path) -> None:
    """The reference's alone: it is the quick one, and both live in the same loop and on the same chain."""
    first, second = hours_of("the reference", tmp_path), hours_of("the reference", tmp_path)

    assert first == second


def test_every_incident_is_in_the_month() -> None:
    incidents = month_of_incidents()

    assert {each.number for each in incidents} == {3, 4, 5, 8, 10, 12, 16, 21, 22, 26, 48, 49, 50, 51, 53, 54, 55}
    assert all(each.hour + each.hours < 30 * 24 - 6 for each in incidents)
