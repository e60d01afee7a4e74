"""Which tokens are thin."""

import pytest

from tocsin.prices.price import CORE_TOKENS, NO_FLOORS, PoolFloors
from tocsin.prices.tokens import STATIC_TOKENS

FLOORS = PoolFloors(10_000.0, 500.0)


@pytest.mark.parametrize(
    ("token", "liquidity", "volume", "thin"),
    [
        ("a.b::c", 10_000.0, 500.0, False),
        ("a.b::c", 9_999.99, 500.0, True),
        ("a.b::c", 10_000.0, 499.99, True),
        ("a.b::c", 10_000.0, None, False),
        ("a.b::c", None, 500.0, True),
        ("stx", None, None, False),
        ("stx", None, 499.99, True),
        ("stx", 9_999.99, None, True),
    ],
)
def test_thin_is_what_is_known_to_be_too_little_or_not_known_to_be_enough(
    token: str, liquidity: float | None, volume: float | None, thin: bool
) -> None:
    """A core token is known to be traded; a missing volume proves nothing."""
    assert FLOORS.is_thin(token, liquidity, volume) is thin
    assert NO_FLOORS.is_thin(token, liquidity, volume) is False


def test_the_core_tokens_are_those_that_are_always_tracked() -> None:
    """They are named where rounds can read them, too."""
    assert tuple(STATIC_TOKENS) == CORE_TOKENS
