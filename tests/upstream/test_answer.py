"""Every status has one meaning, also at the edges of its class."""

import pytest

from tocsin.fetch import FetchResponse
from tocsin.upstream.answer import (
    BadRequest,
    Gone,
    Limited,
    Malformed,
    Moved,
    NotFound,
    Unauthorised,
    Unavailable,
    classify,
)

UNKNOWN = b'{"message": "Route GET:/x not found"}'


def judged(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> object:
    return classify(FetchResponse(status, headers or {}, body), "hiro", "HIRO_KEY", "HIRO_URL", 77)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, None),
        (199, Malformed("hiro answered 199, which is not expected here")),
        (201, Malformed("hiro answered 201, which is not expected here")),
        (399, Malformed("hiro answered 399, which is not expected here")),
        (400, BadRequest("hiro rejects our request (400)", 400, "")),
        (401, Unauthorised("hiro refuses our key (401): check HIRO_KEY")),
        (402, BadRequest("hiro rejects our request (402)", 402, "")),
        (403, Unauthorised("hiro refuses our key (403): check HIRO_KEY")),
        (404, NotFound()),
        (408, Unavailable("hiro answered 408")),
        (410, Gone("hiro has switched this endpoint off (410): Tocsin must move to its successor")),
        (425, Unavailable("hiro answered 425")),
        (429, Limited(77, "hiro answered 429: too many calls")),
        (499, BadRequest("hiro rejects our request (499)", 499, "")),
        (500, Unavailable("hiro answered 500", 500)),
        (599, Unavailable("hiro answered 599", 599)),
        (600, Malformed("hiro answered 600, which is not expected here")),
    ],
)
def test_a_status_has_its_class(status: int, expected: object) -> None:
    assert judged(status) == expected


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_has_its_target(status: int) -> None:
    assert judged(status, headers={"location": "/y"}) == Moved("/y")
    assert judged(status) == Malformed(f"hiro answered {status}, which is not expected here")


@pytest.mark.parametrize("status", [300, 304, 305, 306, 309])
def test_other_answers_with_a_location_are_no_redirects(status: int) -> None:
    assert isinstance(judged(status, headers={"location": "/y"}), Malformed)


def test_only_the_api_itself_says_that_something_does_not_exist() -> None:
    assert judged(404, b'{"error": "cannot find it"}') == NotFound()
    assert judged(404, UNKNOWN) == BadRequest(
        "hiro does not know this route: check HIRO_URL", 404, "Route GET:/x not found"
    )
    assert judged(404, b"<html>") == Malformed("hiro answered 404 without its usual JSON: check HIRO_URL")


def test_the_message_of_an_error_is_kept_short_and_printable() -> None:
    def message(body: bytes) -> object:
        answer = judged(400, body)
        assert isinstance(answer, BadRequest)
        return answer.message

    assert message(b'{"message": "a\\nb"}') == "a·b"
    assert message(b'{"message": "%s"}' % (b"x" * 300)) == "x" * 200
    assert [message(body) for body in (b"<html>", b'{"message": 5}', b"[1]", b'{"error": "x"}')] == [""] * 4
