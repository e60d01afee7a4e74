"""How the calls of the request lane are shared among the clients that it serves. Pure.

In about a day, a client may use its share of the calls that the lane has left. The more clients are greedy, the less is
left and the less each of them gets, so some calls always remain for a client that has used none. Past use decays
exponentially: after a day about a third of it still counts.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import exp, log

SHARES = (1 / 20, 1 / 10)  # of a client, of its /48
FORGET_S = 86_400.0
WAIT_MAX_S = 86_400.0
CLIENTS_MAX = 10_000  # remembered at once; the one that was idle longest is forgotten first
NEGLIGIBLE = 1e-6


class ClientShares:
    """The recent use of each network."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()  # calls, and the time of that figure

    def wait_s(
        self, networks: Sequence[str], calls_left: float, now_s: float, shares: Sequence[float] | None = None
    ) -> float:
        """Return how long this client must wait for its next call if the lane has `calls_left`; 0 means not at all.

        An empty lane counts against no client: the limiter reports it to a caller that asks for a permit.
        """
        if calls_left < 1:
            return 0.0
        waits = [0.0]
        for network, share in zip(networks, shares or SHARES, strict=False):
            used, allowed = self._used_by(network, now_s), share * calls_left
            if used >= allowed:
                waits.append(FORGET_S * log(used / allowed) + 1)
        return min(WAIT_MAX_S, max(waits))

    def charge(self, networks: Sequence[str], calls: float, now_s: float) -> None:
        """Count calls; a negative number gives some back."""
        for network in networks:
            used = max(0.0, self._used_by(network, now_s) + calls)
            self._used.pop(network, None)
            if used > NEGLIGIBLE:
                self._used[network] = (used, now_s)
        while len(self._used) > CLIENTS_MAX:
            self._used.popitem(last=False)

    def _used_by(self, network: str, now_s: float) -> float:
        used, then = self._used.get(network, (0.0, now_s))
        return used * exp(-max(0.0, now_s - then) / FORGET_S)
