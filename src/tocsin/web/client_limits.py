"""What one client may do: posts, and guesses of a key.

A client that has used up its guesses is refused before its next key is compared, so that guessing on is no use. The log
has a line for it, once a minute and client.

Emits `auth.refused`.
"""

from collections import OrderedDict

from tocsin.bindings import Clock, Logger
from tocsin.web.request_limits import CLIENTS_MAX, ClientRateLimit

GUESSES_PER_MINUTE_MAX = 10
LOG_EVERY_S = 60


class ClientLimits:
    """The limits of all clients of one application."""

    def __init__(self, posts_per_minute_max: int, clock: Clock, logger: Logger) -> None:
        self.posts = ClientRateLimit(posts_per_minute_max, clock)
        self._guesses = ClientRateLimit(GUESSES_PER_MINUTE_MAX, clock, "wrong keys")
        self._clock = clock
        self._logger = logger
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how many since then

    def before_key(self, client: str) -> None:
        """Refuses a client that has guessed too often, whatever it sends now."""
        self._guesses.check(client)

    def wrong_key(self, client: str, path: str) -> None:
        """Count and report a wrong key."""
        self._guesses.count(client)
        now = self._clock.monotonic()
        at, unreported = self._logged.pop(client, (-float(LOG_EVERY_S), 0))
        if now - at < LOG_EVERY_S:
            self._logged[client] = (at, unreported + 1)
            return
        self._logged[client] = (now, 0)
        if len(self._logged) > CLIENTS_MAX:
            self._logged.popitem(last=False)
        self._logger.warn("auth.refused", client=client, path=path[:100], count=unreported + 1)
