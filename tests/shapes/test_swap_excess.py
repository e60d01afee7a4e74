"""Which swaps are worth more than a pool can pay."""

import pytest

from holdfast.errors import UsageError
from tocsin.swaps.values import SwapWorth, check_worth, excess_of


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        (("100", "250000", "99.7", "250000"), None),
        (("100", None, "500", None), None),
        (
            ("100", None, "500.000001", None),
            "it received 500.00 USD for 100.00 USD, which is more than 5 times as much",
        ),
        (("100", "250000", "20", "250000"), None),  # a bad trade is a trade
        ((None, None, "10000", "10000"), None),
        ((None, None, "10000.01", "10000"), "it received 10,000.01 USD, but the token's pools held 10,000.00 USD"),
        (("10000", "10000", None, None), None),
        (("10000.01", "10000", None, None), "it gave 10,000.01 USD, but the token's pools held 10,000.00 USD"),
        ((None, None, "1000000000000000000000000000000", None), None),
        ((None, "5", None, "5"), None),
        (
            ("0", None, "0.000000000000000001", None),
            "it received 0.00 USD for 0.00 USD, which is more than 5 times as much",
        ),
        (("0", "0", "0", "0"), None),
    ],
)
def test_the_rule(figures: tuple[str | None, str | None, str | None, str | None], reason: str | None) -> None:
    """Neither side above what its pools held, and not more than five times what was given; unknown is not excessive."""
    assert excess_of(SwapWorth("0x1", *figures)) == reason


def test_a_figure_is_a_decimal_number() -> None:
    with pytest.raises(UsageError, match="A decimal number looks like"):
        check_worth(SwapWorth("0x1", None, None, "1e6", None))
