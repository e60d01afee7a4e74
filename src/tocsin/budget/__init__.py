"""Decides how many calls may still be made to an upstream, and who may make one now.

    windows.py         the sliding windows: calls of the last second and minute
    month.py           the calendar month: a hard limit, paced by a token bucket per lane
    budget.py          one upstream's budget: may this lane call now, and if not, when
    call_rate.py       how many calls a day are made, and how the month ends at that rate
    feedback.py        how an upstream's answer changes its budget: limits, counts, back-off
    cadence.py         how often tasks can afford to run
    limiter.py         the limiter as callers see it: lanes, permits, denials
    budget_limiter.py  the limiter on a budget: queues, a timer, saving before a permit is used
    call_session.py    what all calls of one run or one request share

Everything except `budget_limiter.py` is pure: time is passed in. Nothing here knows HTTP or a particular upstream.
"""
