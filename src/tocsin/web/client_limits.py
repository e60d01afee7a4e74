"""Limits on one client's reads, posts and guesses of a key.

A client that has used up its guesses is refused before its next key is compared, so further guesses are useless. The
log reports it once a minute for each client.

Reads are limited too, except for clients that send the admin key. The key is compared only when the limit is reached,
and a wrong one counts as a guess.

Emits `auth.refused`.
"""

from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

from tocsin.bindings import Clock, Logger
from tocsin.errors import RequestRefused
from tocsin.web.request_limits import CLIENTS_MAX, ClientRateLimit, Networks, networks_of

GUESSES_PER_MINUTE_MAX = 10
LOG_EVERY_S = 60
ADMIN_HEADER = b"x-admin-key"


class ClientLimits:
    """The limits of all clients of one application. `is_admin` compares the admin key of a request."""

    def __init__(
        self,
        posts_per_minute_max: int,
        clock: Clock,
        logger: Logger,
        *,
        reads_per_minute_max: int = 0,
        is_admin: Callable[[Scope], bool] = lambda _: False,
    ) -> None:
        self.posts = ClientRateLimit(posts_per_minute_max, clock)
        self.reads = ClientRateLimit(reads_per_minute_max, clock, "reads")
        self._guesses = ClientRateLimit(GUESSES_PER_MINUTE_MAX, clock, "wrong keys")
        self._is_admin = is_admin
        self._clock = clock
        self._logger = logger
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how many since then

    def before_read(self, scope: Scope) -> None:
        """Count a read. Refuses a client over its limit, unless it sends the admin key."""
        networks = networks_of(scope)
        try:
            self.reads.count(networks)
        except RequestRefused:
            if all(name != ADMIN_HEADER for name, _ in scope["headers"]):
                raise
            self.before_key(networks)
            if not self._is_admin(scope):
                self.wrong_key(networks, scope["path"])
                raise

    def before_key(self, networks: Networks) -> None:
        """Refuse a client that has guessed too often, whatever it sends now."""
        self._guesses.check(networks)

    def wrong_key(self, networks: Networks, path: str) -> None:
        """Count and report a wrong key."""
        self._guesses.count(networks)
        client, now = networks[0], self._clock.monotonic()
        at, unreported = self._logged.pop(client, (-float(LOG_EVERY_S), 0))
        if now - at < LOG_EVERY_S:
            self._logged[client] = (at, unreported + 1)
            return
        self._logged[client] = (now, 0)
        if len(self._logged) > CLIENTS_MAX:
            self._logged.popitem(last=False)
        self._logger.warn("auth.refused", client=client, path=path[:100], count=unreported + 1)
