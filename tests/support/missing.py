"""Requirements of tests other than Python. If one is missing, the test is skipped, or fails where all must run."""

import os

import pytest

NPM = (
    "npm is missing, or `make test` could not install workerd, wrangler and axe-core with it: install Node.js with npm"
)
CHROMIUM = "Chromium is missing: install it (`apt-get install chromium-headless-shell`), or set CHROMIUM to its path"
SYSTEMD = "systemd-analyze is missing: install it (`apt-get install systemd`)"
PROMTOOL = "promtool is missing: install it (`apt-get install prometheus`)"
CADDY = "caddy is missing: install it (`apt-get install caddy`)"
OPENSSL = "openssl is missing: install it (`apt-get install openssl`)"
NGINX = "nginx is missing: install it (`apt-get install nginx-light`)"


def require(there: bool, reason: str) -> None:
    """Skip unless it exists. All tests with the same requirement give the same reason, so it is printed once."""
    if there:
        return
    if os.environ.get("CI") == "true" or os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
