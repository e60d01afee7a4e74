"""The clock of the Cloudflare platform."""

from tocsin.platform.shared.real_clock import RealClock


class CloudflareClock(RealClock):
    """The `Clock` binding.

    Cloudflare's clock stands still between two waits for I/O, as a defence against timing attacks.
    """
