"""`cadenceWhy` describes the cadence that is set."""

from tocsin.app import tasks
from tocsin.settings import Settings


def why(settings: Settings) -> dict[str, str]:
    return {task.name: task.why for task in tasks(settings)}


def test_the_defaults_are_explained() -> None:
    """Prices every 5 minutes are 8,928 calls in a month of 31 days."""
    sentences = why(Settings())

    assert "5 minutes old" in sentences["tenero"]
    assert "8,928 calls in a month of 31 days" in sentences["tenero"]
    assert "within 1 minute of its block" in sentences["feed"]
    assert "43,200 calls in 30 days" in sentences["feed"]
    assert "2,880 calls in 30 days" in sentences["sweep"]


def test_without_the_feed_the_sweep_finds_the_swaps() -> None:
    """Forty lists every 15 minutes are 115,200 calls in 30 days."""
    sentences = why(Settings(feed_enabled=False))

    assert "feed" not in sentences
    assert "within 15 minutes of its block" in sentences["sweep"]
    assert "115,200 calls in 30 days" in sentences["sweep"]


def test_another_cadence_has_its_own_sentence() -> None:
    """Nothing of the default is left in it."""
    sentences = why(Settings(tenero_cadence=10_000, tenero_slice=9_000, sweep_cadence=90_000, feed_enabled=False))

    assert "10 seconds old" in sentences["tenero"]
    assert "267,840 calls" in sentences["tenero"]
    assert "within 90 seconds of its block" in sentences["sweep"]
    for default in ("5 minutes", "8,928", "15 minutes"):
        assert default not in sentences["tenero"] + sentences["sweep"]
