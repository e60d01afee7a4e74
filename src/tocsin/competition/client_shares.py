"""How much of the calls for submissions one client may use. Pure.

A client may use a twentieth of the calls that the request lane has left, in about a day; a whole IPv6 /48 may use a
tenth. The more clients are greedy, the less is left and the less each of them gets: there is always some left for a
client that has used none. What a client used is forgotten evenly: after a day about a third of it still counts.

What turns out to be a swap is given back, so an agent that only trades is never held up.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import exp, log

SHARES = (1 / 20, 1 / 10)  # of a client, of its /48
FORGET_S = 86_400.0
WAIT_MAX_S = 86_400.0
CLIENTS_MAX = 10_000  # remembered at once; the one that was quiet longest is forgotten first
NEGLIGIBLE = 1e-6


class ClientShares:
    """What each network used recently."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()  # calls, as of then

    def wait_s(self, networks: Sequence[str], calls_left: float, now_s: float) -> float:
        """How long this client must wait for its next call, when the lane has this many left; 0: not at all.

        An empty lane is nobody's fault: a caller that waits for a permit is told so.
        """
        if calls_left < 1:
            return 0.0
        waits = [0.0]
        for network, share in zip(networks, SHARES, strict=False):
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
