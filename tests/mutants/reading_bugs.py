"""Bugs in reading lists: what counts as read, and what is known to be missing."""

from mutants.bug import Bug

BUGS = (
    Bug(
        name="new_rows_above_a_rest_never_read",
        file="competition/reader.py",
        old="        self.unfinished.add(principal)\n",
        new="        if mark.gap is not None:\n            self.unfinished.add(principal)\n",
        origin="simulation, seed 2004",
        breaks="A complete sweep has read every list from its head",
        tests=(
            "competition/test_sweep_places.py::test_after_what_was_left_over_a_list_is_read_from_its_head",
        ),
    ),
    Bug(
        name="forgotten_nonces_count_as_seen",
        file="competition/nonces.py",
        old="        del ordered[1]  # keep the lowest: it shows from which block on something is missing\n",
        new=(
            "        lowest, second = ordered[:2]\n"
            "        ordered[:2] = [NonceRange(lowest.low, second.high, second.block)]\n"
        ),
        origin="simulation, seed 2057",
        breaks="A block is proven complete only if nothing below it is missing",
        tests=("competition/test_nonces.py::test_what_does_not_fit_counts_as_missing",),
    ),
    Bug(
        name="list_of_404_is_empty",
        file="competition/reader.py",
        old="                raise NoAnswer(Malformed(NOT_A_LIST))\n",
        new="                return\n",
        origin="simulation, seed 2098",
        breaks="A complete sweep has read every list from its head",
        tests=("competition/test_sweep_trouble.py::test_a_404_for_a_list_is_not_an_empty_list",),
    ),
    Bug(
        name="lagging_list_read_every_minute",
        file="competition/walk.py",
        old="    return db.prepare(_FAILED).bind(principal, rules, before + 1, now)\n",
        new="    return db.prepare(_FAILED).bind(principal, rules, 1, now)\n",
        origin="mutation of competition/feed.py",
        breaks="A wallet whose list lags takes no other wallet's visits",
        tests=(
            "competition/test_feed_missing.py::test_a_wallets_list_that_lags_is_read_five_times_and_then_rarely",
            "competition/test_feed_missing.py::test_lists_that_lag_take_no_visit_from_other_wallets",
        ),
    ),
)
