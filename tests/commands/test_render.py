"""How the terminal shows text from outside."""

import pytest

from tocsin.commands.render import shown_name

ADDRESS = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR"


@pytest.mark.parametrize(
    ("display_name", "bns_name", "shown"),
    [
        ("Ann", "ann.btc", "Ann"),
        (None, "ann.btc", "ann.btc"),
        ("\u3164\u2800", "ann.btc", "ann.btc"),
        ("\u200b\u2060 ", "\ufeff", ADDRESS),
        ("\x1b]0;owned\x07[bold]A\nB", None, "]0;owned\\[bold]A B"),
    ],
)
def test_an_agent_is_called_by_the_first_name_that_can_be_seen(
    display_name: str | None, bns_name: str | None, shown: str
) -> None:
    """Or by its address. A name is text: neither markup nor a command to the terminal."""
    assert shown_name(ADDRESS, display_name, bns_name) == shown
