"""Which route a path belongs to."""

import pytest

from tocsin.web.route import PathPatterns

KNOWN = PathPatterns(["/api/prices", "/api/trades/{txid}", "/api/rounds/{round_id}/results/{address}"])


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/api/prices", "/api/prices"),
        ("/api/trades/0x12", "/api/trades/{txid}"),
        ("/api/rounds/week-1/results/SP1", "/api/rounds/{round_id}/results/{address}"),
        ("/api/trades", None),
        ("/api/trades/", None),
        ("/api/trades/0x12/more", None),
        ("/api/prices/", None),
        ("", None),
    ],
)
def test_a_path_is_found_by_its_pattern(path: str, route: str | None) -> None:
    """One segment for each parameter, and nothing more."""
    assert KNOWN.find(path) == route
