"""The clock of the Cloudflare platform."""

import time

from holdfast.clock import RealClock


class CloudflareClock(RealClock):
    """The `Clock` binding.

    Cloudflare's clock stands still between two waits for I/O, as a defence against timing attacks. An isolate's own
    monotonic clock means nothing to the next isolate. The wall clock there is never set, so it measures durations
    too: budgets and back-offs continue exactly when an object moves.
    """

    boot_id = "cloudflare"

    def monotonic(self) -> float:
        return time.time()
