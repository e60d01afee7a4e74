"""Places for clients: a limited number, of which one client, and one IPv6 /48, may have only a share. Pure.

When a share is used up, or all places are taken, the least used place goes: that of a client that does not read, or
else one that waits for its client, the oldest first. When every place is in use, one goes only if its client has more
than the new one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Use: TypeAlias = Literal[0, 1, 2]  # of a place; the lowest goes first
STUCK: Final = 0  # its client does not read
WAITING: Final = 1  # for its client
BUSY: Final = 2
SPARE: Final = (STUCK, WAITING)


@dataclass(slots=True, eq=False)
class Place:
    """`close` is called when the place is taken away; then it is `gone`."""

    networks: "Sequence[_Network]"
    close: Callable[[], None]
    use: Use
    gone: bool = False


@dataclass(slots=True, eq=False)
class _Network:
    """The places of a client or of a /48 by their use, the oldest first."""

    name: str
    places: tuple[dict[Place, None], ...] = field(default_factory=lambda: ({}, {}, {}))

    @property
    def count(self) -> int:
        return sum(map(len, self.places))

    @property
    def spare_count(self) -> int:
        return len(self.places[STUCK]) + len(self.places[WAITING])

    def oldest(self, *uses: Use) -> Place | None:
        return next((place for use in uses for place in self.places[use]), None)


class Places:
    """At most `total_max`. `shares`: how many one client may have, and how many one /48."""

    def __init__(self, total_max: int, *shares: int) -> None:
        self.total_max = total_max
        self.shares = shares
        self.count = 0
        self.dropped = 0
        self._networks: dict[str, _Network] = {}

    def open(
        self,
        networks: tuple[str, ...],
        close: Callable[[], None] = lambda: None,
        use: Use = BUSY,
        *,
        is_limited: bool = True,
    ) -> Place | None:
        """A place for the client with these networks; None if there is none. `is_limited`: it has only its share."""
        for name, share in zip(networks, self.shares, strict=False) if is_limited else ():
            known = self._networks.get(name)
            if known is not None and known.count >= share and not self._drop(known.oldest(*SPARE)):
                return None
        if self.count >= self.total_max and not self._drop(self._least_used(networks)):
            return None
        own = [self._networks.setdefault(name, _Network(name)) for name in networks]
        place = Place(own, close, use)
        for network in own:
            network.places[use][place] = None
        self.count += 1
        return place

    def mark(self, place: Place, use: Use) -> None:
        """The place is used like this from now on."""
        before = place.use
        if before != use:
            place.use = use
            for network in place.networks:
                del network.places[before][place]
                network.places[use][place] = None

    def closed(self, place: Place) -> None:
        """Free a place, unless it was taken away."""
        if place.gone:
            return
        place.gone = True
        self.count -= 1
        for network in place.networks:
            del network.places[place.use][place]
            if not network.count:
                del self._networks[network.name]

    def _drop(self, place: Place | None) -> bool:
        if place is None:
            return False
        self.dropped += 1
        self.closed(place)
        place.close()
        return True

    def _least_used(self, networks: tuple[str, ...]) -> Place | None:
        """The place that goes when all are taken. With nothing to spare, a client keeps as many as the new one gets."""
        known = self._networks.values()
        idlest = max(known, key=lambda network: network.spare_count)
        if idlest.spare_count:
            return idlest.oldest(*SPARE)
        largest = max(known, key=lambda network: network.count)
        own = max((self._networks[name].count for name in networks if name in self._networks), default=0)
        return largest.oldest(BUSY) if largest.count > own + 1 else None
