"""Where the server says that it listens."""

import pytest

from tocsin.platform.local.http.http_server import authority


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1:8787"),
        ("0.0.0.0", "127.0.0.1:8787"),
        ("::", "127.0.0.1:8787"),
        ("::1", "[::1]:8787"),
        ("2001:db8::7", "[2001:db8::7]:8787"),
        ("localhost", "localhost:8787"),
    ],
)
def test_the_address_can_be_opened_as_it_is(host: str, expected: str) -> None:
    """An IPv6 address has brackets in a URL. An address that means "all" is reached at this machine's own."""
    assert authority(host, 8787) == expected
