"""Limits on one client's requests, reads, posts and guesses of a key.

All its requests are limited, whatever the path: how many begin in a minute, and how many are answered at a time. Reads
and posts have lower limits of their own. Who sends the admin key has none of these limits, except for posts. The key is
compared only when a limit is reached, and a wrong one counts as a guess.

A client that has used up its guesses is refused before its next key is compared, so further guesses are useless. The
log reports it once a minute for each client.

Emits `auth.refused`.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

from tocsin.bindings import Clock, Logger
from tocsin.client_places import Place, Places
from tocsin.errors import RequestRefused
from tocsin.web.request_limits import CLIENTS_MAX, CLIENTS_PER_SITE, ClientRateLimit, Networks, networks_of

REQUESTS_PER_READ = 10  # most requests cost less than a read
UNDER_WAY_MAX = 64
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
        under_way_max: int = 0,
        is_admin: Callable[[Scope], bool] = lambda _: False,
    ) -> None:
        """0 reads a minute: no limit on reads and requests. 0 under way: no limit on these."""
        self.posts = ClientRateLimit(posts_per_minute_max, clock)
        self.reads = ClientRateLimit(reads_per_minute_max, clock, "reads")
        self._requests = ClientRateLimit(reads_per_minute_max * REQUESTS_PER_READ, clock, "requests")
        at_once = under_way_max or sys.maxsize
        self._under_way = Places(sys.maxsize, at_once, at_once * CLIENTS_PER_SITE)
        self._guesses = ClientRateLimit(GUESSES_PER_MINUTE_MAX, clock, "wrong keys")
        self._is_admin = is_admin
        self._clock = clock
        self._logger = logger
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how many since then

    def begin(self, scope: Scope) -> Place:
        """Count a request of any kind; `end` it with the returned place. Refuses a client over its limits."""
        networks = networks_of(scope)
        try:
            self._requests.count(networks)
            place = self._under_way.open(networks)
            if place is None:
                raise _too_many_at_once()
        except RequestRefused:
            if not self._sends_admin_key(scope, networks):
                raise
            place = self._under_way.open(())
            assert place is not None  # it counts for nobody
        return place

    def end(self, place: Place) -> None:
        self._under_way.closed(place)

    def before_read(self, scope: Scope, cost: int = 1) -> None:
        """Count a read. Refuses a client over its limit."""
        networks = networks_of(scope)
        try:
            self.reads.count(networks, cost)
        except RequestRefused:
            if not self._sends_admin_key(scope, networks):
                raise

    def _sends_admin_key(self, scope: Scope, networks: Networks) -> bool:
        if all(name != ADMIN_HEADER for name, _ in scope["headers"]):
            return False
        self.before_key(networks)
        if self._is_admin(scope):
            return True
        self.wrong_key(networks, scope["path"])
        return False

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


def _too_many_at_once() -> RequestRefused:
    sentence = (
        f"At most {UNDER_WAY_MAX} requests of one client are answered at a time: wait for some of them."
    )
    return RequestRefused(429, "too_many_requests", sentence, retryable=True, headers={"Retry-After": "1"})
