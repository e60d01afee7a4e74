"""The limits on the calls of one run or one request."""

from math import inf

from holdfast_testing.captured_log import CapturedLog
from tocsin.upstream.budget import Lane
from tocsin.upstream.limiter import CallSession, request_session, task_session


def session(**options: float) -> CallSession:
    made = task_session(CapturedLog())
    for name, value in options.items():
        setattr(made, name, value)
    return made


def ended(made: CallSession, *answers: bool) -> CallSession:
    for answered in answers:
        made.call_ended(limited=False, answered=answered)
    return made


def test_after_five_calls_without_an_answer_in_a_row_a_session_gives_up() -> None:
    """Four are not enough, and one answer in between resets the count."""
    assert not ended(session(), *[False] * 4).given_up
    assert ended(session(), *[False] * 5).given_up
    assert not ended(session(), *[False] * 4, True, *[False] * 4).given_up
    assert ended(session(), True, *[False] * 5).given_up


def test_a_limited_call_says_nothing_about_whether_the_upstream_answers() -> None:
    """It neither resets the count nor adds to it; then calls do not wait until one was not limited."""
    made = ended(session(), *[False] * 4)
    made.call_ended(limited=True, answered=False)
    made.call_ended(limited=True, answered=True)
    assert (made.given_up, made.limited, made.deadline(100.0)) == (False, True, 100.0)

    ended(made, False)
    assert (made.given_up, made.limited, made.deadline(100.0)) == (True, False, 170.0)


def test_no_call_waits_beyond_the_end_of_the_run() -> None:
    """However patient it is."""
    assert session(ends_at_s=130.0).deadline(100.0) == 130.0
    assert session(ends_at_s=300.0).deadline(100.0) == 170.0


def test_a_session_has_so_many_retries_for_all_its_calls() -> None:
    """The last one is given, the next is not, and none comes back."""
    made = session(retries_left=2)

    assert [made.take_retry() for _ in range(4)] == [True, True, False, False]
    assert made.retries_left == 0


def test_a_task_is_patient_and_a_request_is_not() -> None:
    """A run waits for a full minute window; a visitor is not kept waiting."""
    task, request = task_session(CapturedLog()), request_session(CapturedLog())

    assert (task.lane, task.patience_s, task.retries_left) == (Lane.TASK, 70.0, 20)
    assert (request.lane, request.patience_s, request.retries_left) == (Lane.REQUEST, 5.0, 2)
    assert (task.unanswered_max, task.ends_at_s, task.may_probe, request.may_probe) == (5, inf, False, False)
    assert (task.calls, task.unanswered, task.limited) == (0, 0, False)
    assert request_session(CapturedLog(), patience_s=1.5).patience_s == 1.5
    assert task_session(CapturedLog(), may_probe=True).may_probe
