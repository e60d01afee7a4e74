"""The outcomes of a transaction: what a client program decides by."""

from tocsin.swaps.codes import MEANINGS, Code


def test_every_code_has_its_meaning() -> None:
    """Every code has a status, a sentence and whether to retry, and the route's table is right."""
    assert set(MEANINGS) == set(Code)
    for code, meaning in MEANINGS.items():
        assert meaning.sentence.endswith("."), code
        assert meaning.retryable == (meaning.status in {202, 404, 429, 500, 502, 503}), code
        assert not (meaning.final and meaning.retryable), code
        assert meaning.final or meaning.reopened_by is None, code
    statuses = {code: MEANINGS[code].status for code in Code}
    refused = {"malformed_tx", "tx_failed", "before_comp_start", "after_comp_end", "sender_not_registered"}
    refused |= {"sender_not_genesis", "contract_not_allowlisted", "invalid_amount", "incomplete_events"}
    assert {code for code, status in statuses.items() if status == 422} == refused
    assert {code for code in Code if MEANINGS[code].final} == refused


def test_every_code_has_its_status_and_says_whether_to_try_again() -> None:
    """The public contract: what a client program decides by."""
    shown = {
        str(code): (meaning.status, meaning.retryable, meaning.final, meaning.retry_s, meaning.reopened_by)
        for code, meaning in MEANINGS.items()
    }

    assert shown == {
        "malformed_txid": (400, False, False, 5, None),
        "txid_already_verified": (409, False, False, 5, None),
        "pending": (202, True, False, 5, None),
        "tx_not_found": (404, True, False, 60, None),
        "tx_fetch_failed": (502, True, False, 5, None),
        "too_many_requests": (429, True, False, 5, None),
        "malformed_tx": (422, False, True, 5, None),
        "tx_failed": (422, False, True, 5, None),
        "before_comp_start": (422, False, True, 5, "campaign"),
        "after_comp_end": (422, False, True, 5, "campaign"),
        "sender_not_registered": (422, False, True, 5, "sender"),
        "sender_not_genesis": (422, False, True, 5, "sender"),
        "contract_not_allowlisted": (422, False, True, 5, "allowlist"),
        "invalid_amount": (422, False, True, 5, None),
        "incomplete_events": (422, False, True, 5, None),
        "db_unavailable": (503, True, False, 5, None),
        "verify_threw": (500, True, False, 5, None),
    }
