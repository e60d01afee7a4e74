"""Room for connections: which one is closed, what is remembered, how many files the process may open."""

import resource
from collections.abc import Callable

import pytest

from tocsin.local.fetch import HttpFetch
from tocsin.local.server import Connections, raise_descriptor_limit
from tocsin.web.limits import BUSY, STUCK, WAITING, Place


class Open:
    """Connections by name, and which of them were closed to make room."""

    def __init__(self, total_max: int, *proxies: str) -> None:
        self.all = Connections(total_max, proxies)
        self.dropped: list[str] = []

    def open(self, name: str, host: str, *, busy: bool = False) -> Place | None:
        place = self.all.connect(host, self._closer(name))
        if place is not None and busy:
            self.all.mark(place, BUSY)
        return place

    def _closer(self, name: str) -> Callable[[], None]:
        return lambda: self.dropped.append(name)


def test_a_client_that_gives_up_its_own_connection_keeps_its_place() -> None:
    """All places are taken by one connection each: the client's own one is closed, and the new one counts."""
    made = Open(64)
    first = made.open("first", "192.0.2.1")
    for number in range(63):
        made.open("busy", f"198.51.100.{number}", busy=True)
    second = made.open("second", "192.0.2.1")

    assert first is not None
    assert second is not None
    assert (made.dropped, made.all.count, made.all.dropped) == (["first"], 64, 1)
    made.all.mark(second, BUSY)
    made.all.mark(second, WAITING)
    made.all.closed(second)
    assert made.all.count == 63


def test_a_client_that_is_refused_is_not_remembered() -> None:
    """However many come while all places are busy."""
    made = Open(64)
    for number in range(64):
        made.open("busy", f"198.51.100.{number}", busy=True)
    refused = [made.open("more", f"203.0.113.{number}") for number in range(200)]

    assert refused == [None] * 200
    assert (made.all.count, len(made.all._networks)) == (64, 64)


def test_who_has_most_connections_waiting_makes_room_the_longest_first() -> None:
    """Busy ones count for nothing: they are not dropped."""
    made = Open(64)
    for number in range(30):
        made.open(f"busy {number}", "192.0.2.1", busy=True)
    for number in range(20):
        made.open(f"waits {number}", "192.0.2.2")
    for number in range(14):
        made.open(f"few {number}", f"198.51.100.{number}")
    for number in range(3):
        made.open("new", f"203.0.113.{number}")

    assert made.dropped == ["waits 0", "waits 1", "waits 2"]
    assert made.all.count == 64


@pytest.mark.parametrize(("total_max", "expected"), [(64, 32), (128, 32), (132, 33), (1_020, 255), (10_000, 256)])
def test_one_client_may_have_a_quarter(total_max: int, expected: int) -> None:
    """At least 32, at most 256. One more replaces the one that is idle longest, or is refused if all are busy."""
    made = Open(total_max)
    places = [made.open(str(number), "192.0.2.1") for number in range(expected)]
    made.open("one more", "192.0.2.1")
    assert (made.dropped, made.all.count) == (["0"], expected)

    for place in places[1:]:
        assert place is not None
        made.all.mark(place, BUSY)
    made.open("and more", "192.0.2.1", busy=True)
    assert made.dropped == ["0", "one more"]
    assert made.open("too many", "192.0.2.1") is None
    assert made.open("another", "192.0.2.2") is not None


def test_a_connection_that_waits_again_waits_behind_the_others() -> None:
    """The one that has been idle longest is closed first."""
    made = Open(64)
    first = made.open("first", "192.0.2.1")
    for number in range(31):
        made.open(str(number), "192.0.2.1")
    assert first is not None
    made.all.mark(first, BUSY)
    made.all.mark(first, WAITING)
    made.open("one more", "192.0.2.1")

    assert made.dropped == ["0"]


def test_only_the_named_proxies_speak_for_many() -> None:
    """A host that is not an address is none of them."""
    made = Open(200, "10.0.0.0/8")
    proxy = [made.open("proxy", "10.1.2.3", busy=True) for _ in range(60)]
    other = [made.open("other", "11.1.2.3", busy=True) for _ in range(60)]
    odd = [made.open("odd", "unknown", busy=True) for _ in range(60)]

    assert [sum(place is not None for place in each) for each in (proxy, other, odd)] == [60, 50, 50]


def test_one_ipv6_network_may_have_twice_as_many() -> None:
    """Each /64 has its quarter, and all of one /48 together have two; then the oldest of them makes room."""
    made = Open(400)
    for number in range(250):
        made.open(str(number), f"2001:db8:7:{number % 5:x}::1")

    assert (made.all.count, made.dropped) == (200, [str(number) for number in range(50)])
    assert made.open("another /48", "2001:db8:8::1") is not None
    assert (made.all.count, len(made.dropped)) == (201, 50)


def test_who_does_not_read_makes_room_before_who_waits() -> None:
    """For the client itself and for others; the one that has not read for longest goes first."""
    made = Open(128)
    places = [made.open(str(number), "192.0.2.1") for number in range(32)]
    for number in (20, 10):
        place = places[number]
        assert place is not None
        made.all.mark(place, STUCK)
    made.open("own", "192.0.2.1")
    for number in range(96):
        made.open("other", f"198.51.100.{number}", busy=True)
    made.open("new", "203.0.113.1")
    made.open("newer", "203.0.113.2")

    assert made.dropped == ["20", "10", "0"]


def test_when_all_are_busy_the_oldest_of_who_has_most_makes_room() -> None:
    """But only for a client that has fewer, even with the new one."""
    made = Open(64)
    for number in range(32):
        made.open(f"many {number}", "192.0.2.1", busy=True)
    for number in range(32):
        made.open("one", f"198.51.100.{number}", busy=True)
    for _ in range(30):
        made.open("few", "203.0.113.7", busy=True)

    assert made.dropped == [f"many {number}" for number in range(16)]
    assert made.open("too many", "203.0.113.7") is None


INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "raised_to", "expected"),
    [
        (1_024, 1_048_576, 65_536, 65_536),
        (1_024, 4_096, 4_096, 4_096),
        (1_024, INFINITE, 65_536, 65_536),
        (4_096, 4_096, None, 4_096),
        (65_536, 1_048_576, None, 65_536),
        (100_000, 1_048_576, None, 100_000),
        (INFINITE, INFINITE, None, 65_536),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised_to: int | None, expected: int
) -> None:
    """To 65,536 or what the system allows; never lowered."""
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: changed.append(limits))

    assert raise_descriptor_limit() == expected
    assert changed == ([] if raised_to is None else [(raised_to, hard)])


async def test_so_many_connections_go_out_at_once() -> None:
    """64 in all and 16 to one host: a slow upstream does not take the connections of the others."""
    fetch = HttpFetch()
    connector = fetch._open_session().connector
    await fetch.close()

    assert connector is not None
    assert (connector.limit, connector.limit_per_host, connector._keepalive_timeout) == (64, 16, 15)
