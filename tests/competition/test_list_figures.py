"""Which rows of a list are worth a call: triage, waits, pages of refusals, news."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.types import Database
from stacks_simulator.addresses import address_of
from support.competition import open_world
from support.local_store import open_competition
from tocsin.board.news import newest_id, read_news, trim_news
from tocsin.stacks import ContractCall, MinedAt, Transaction
from tocsin.swaps import store as swap_store
from tocsin.swaps import trades as page_token
from tocsin.swaps import trades as refusal_list
from tocsin.swaps.chainhook import receive
from tocsin.swaps.codes import Code
from tocsin.swaps.explain import explain_refusal
from tocsin.swaps.lists import relevant_calls, relevant_to, triage
from tocsin.swaps.pool import _groups
from tocsin.swaps.rules import Check, Rules, built_in
from tocsin.swaps.store import Candidate, Known
from tocsin.swaps.verify import PUSHED_LOOKS_MAX, _is_invented, _is_nowhere, _wait_ms

NOW = 1_778_700_600_000
MINUTE = 60_000
WALLET, OTHER = address_of("wallet"), address_of("other")
ALLOWED = built_in()
CONTRACT, FUNCTIONS = next((name, sorted(functions)) for name, functions in ALLOWED.contracts.items() if functions)
RULES = Rules(ALLOWED, 1_700_000_000)


# Which rows of a list matter


def call(
    tx_id: str, sender: str = WALLET, *, contract: str = CONTRACT, function: str = FUNCTIONS[0], **values: Any
) -> Transaction:
    return Transaction(
        **{
            "tx_id": tx_id,
            "sender": sender,
            "sponsored": False,
            "fee": 0,
            "status": "success",
            "type": "contract_call",
            "contract_call": ContractCall(contract, function),
            "mined": MinedAt(7, "0xb7", 0, 1_778_000_000),
            "canonical": True,
            "event_count": None,
            **values,
        }
    )


def test_only_calls_that_may_count_are_looked_at() -> None:
    """A wallet's own listed calls and what looks like a swap; a contract's calls by registered senders."""
    rows = [
        call("listed"),
        call("odd", contract="SP1.other", function="swap-x"),
        call("plain", contract="SP1.other", function="vote"),
        call("stranger", OTHER),
        call("transfer", contract_call=None),
    ]
    tiers: Any = {WALLET: "eligible"}

    assert [each.tx_id for each in relevant_to(WALLET, rows, tiers, RULES)] == ["listed", "odd"]
    assert [each.tx_id for each in relevant_to(CONTRACT, rows, tiers, RULES)] == ["listed"]
    assert [each.tx_id for each in relevant_calls(rows, tiers, RULES)] == ["listed", "odd"]


def test_rows_are_verified_refused_or_known() -> None:
    """Known means seen in this block and judged the same today."""
    rows = [
        call("new"),
        call("known"),
        call("moved"),
        call("failed", status="abort_by_response"),
        call("was failed", status="abort_by_response"),
        call("off", contract="SP1.other", function="swap-x"),
        call("reopened"),
        call("for good"),
    ]
    known = {
        "known": Known("swap", "0xb7"),
        "moved": Known("swap", "0xb6"),
        "was failed": Known("refusal", "0xb7", Code.TX_FAILED),
        "reopened": Known("refusal", "0xb7", Code.SENDER_NOT_GENESIS),
        "for good": Known("refusal", "0xb7", Code.INCOMPLETE_EVENTS),
    }
    sorted_out = triage(rows, known, {WALLET: "eligible"}, RULES)

    assert [each.txid for each in sorted_out.candidates] == ["new", "moved", "reopened"]
    assert [each.transaction.tx_id for each in sorted_out.refusals] == ["failed", "off"]
    assert (sorted_out.found, sorted_out.already_known) == (7, 1)
    assert sorted_out.candidates[0] == Candidate("new", "cron", contract_id=CONTRACT, block_height=7)


# Waits


def test_a_transaction_that_is_not_mined_is_asked_for_less_and_less_often() -> None:
    """After 5, 10, 20 … minutes, six hours at most, whatever the number of attempts."""
    waits = [_wait_ms(Candidate("x", "cron", attempts=attempts)) // MINUTE for attempts in (0, 1, 2, 6, 7, 50)]

    assert waits == [5, 10, 20, 320, 360, 360]


def test_a_transaction_that_hiro_does_not_know_may_be_new() -> None:
    """Four looks; what only a push names has three. One that Hiro knows is nowhere at once."""

    def candidate(attempts: int, rank: int = swap_store.PUSHED) -> Candidate:
        return Candidate("x", "chainhook", attempts=attempts, rank=rank)

    assert PUSHED_LOOKS_MAX == 3
    assert [_is_nowhere(candidate(n), {"x"}) for n in (2, 3)] == [False, True]
    assert _is_nowhere(candidate(0), set())
    assert [_is_invented(candidate(n)) for n in (1, 2)] == [False, True]
    assert not _is_invented(candidate(9, swap_store.SUBMITTED))


def test_a_refusal_is_shown_at_its_own_step() -> None:
    """One of the status first; one of the tokens last; one that is derived again where it is."""
    by_status = explain_refusal(call("0x1"), Check("status", "it failed", Code.TX_FAILED), "eligible", RULES)
    by_tokens = explain_refusal(call("0x1"), Check("tokens", "two", Code.INCOMPLETE_EVENTS), "eligible", RULES)
    again = explain_refusal(call("0x1"), Check("tokens", "old words", Code.SENDER_NOT_GENESIS), "registered", RULES)

    assert [(step.name, step.ok) for step in by_status.steps][:2] == [("transaction", True), ("status", False)]
    assert (by_status.status, by_status.code, by_status.reason) == ("rejected", "tx_failed", "it failed")
    assert (by_tokens.steps[-1].name, by_tokens.steps[-1].ok, by_tokens.reason) == ("tokens", False, "two")
    assert again.reason == "the sender's claim is not verified"
    assert [step.name for step in again.steps].count("tokens") == 0


# Pages of refusals, and news


_REFUSAL = """
INSERT INTO refusals (txid, code, reason, sender, burn_block_time, block_height, block_hash, source, allowlist_version,
  refused_at) VALUES (?, ?, 'why', ?, 1, 1, '0x', 'cron', '1', ?)"""


async def refuse(db: Database, number: int, code: str = "tx_failed", sender: str = WALLET, at: int = NOW) -> None:
    await db.prepare(_REFUSAL).bind(f"0x{number:064x}", code, sender, at).run()


def numbers(page: Any) -> list[int]:
    return [int(each.txid, 16) for each in page.refusals]


async def test_refusals_are_shown_newest_first_page_by_page(tmp_path: Path) -> None:
    """Each once, also those of one millisecond; of a code or of a sender."""
    async with open_competition(tmp_path) as db:
        for number in range(1, 8):
            code = "malformed_tx" if number % 3 == 0 else "tx_failed"
            await refuse(db, number, code, OTHER if number == 5 else WALLET, NOW + number // 3)
        pages, cursor = list[list[int]](), None
        while True:
            page = await refusal_list.refusals(db, limit=3, after=cursor)
            pages.append(numbers(page))
            cursor = page.next
            if cursor is None:
                break
        of_code = await refusal_list.refusals(db, code="malformed_tx", limit=1)
        rest = await refusal_list.refusals(db, code="malformed_tx", limit=1, after=of_code.next)
        of_sender = await refusal_list.refusals(db, sender=OTHER)
        exact = await refusal_list.refusals(db, limit=7)

    assert pages == [[7, 6, 5], [4, 3, 2], [1]]
    assert (numbers(of_code), numbers(rest), rest.next) == ([6], [3], None)
    assert (numbers(of_sender), exact.next) == ([5], None)
    assert exact.refusals[0].sentence.startswith("The transaction did not succeed")


async def test_a_question_for_refusals_that_cannot_be_answered_says_what_can(tmp_path: Path) -> None:
    """Codes that are stored, one filter at a time, and cursors of ours."""
    async with open_competition(tmp_path) as db:
        with pytest.raises(UsageError, match="Give code or sender, not both"):
            await refusal_list.refusals(db, code="tx_failed", sender=WALLET)
        for code in ("pending", "x" * 50):
            with pytest.raises(UsageError, match=rf"^code is one of .*, not {code[:40]!r}\.$"):
                await refusal_list.refusals(db, code=code)
        for cursor in ("x", page_token.write({"t": -1, "x": f"0x{1:064x}"}), page_token.write({"t": 1, "x": "0xA"})):
            with pytest.raises(UsageError):
                await refusal_list.refusals(db, after=cursor)
        assert (await refusal_list.refusals(db)).refusals == []


async def test_news_are_read_from_a_number_on(tmp_path: Path) -> None:
    """In order, two hundred at once; the number to continue from is that of the last."""
    async with open_competition(tmp_path) as db:
        before = await newest_id(db)
        for number in range(1, 203):
            await refuse(db, number)
        first, after_first = await read_news(db, 0)
        second, after_second = await read_news(db, after_first)
        none, after_none = await read_news(db, after_second)
        newest = await newest_id(db)

    assert before == 0
    assert [int(each.txid or "", 16) for each in (*first, *second)] == list(range(1, 203))
    assert (len(first), after_first, after_second) == (200, 200, 202)
    assert (none, after_none, newest) == ([], 202, 202)
    assert (first[0].kind, first[0].code, first[0].reason, first[0].trade) == ("refused", "tx_failed", "why", None)


_SWAP = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, allowlist_version, recorded_at)
VALUES (?, ?, 'c', 'f', 'stx', '5', 'b', '7', 1, 1, '0x', 0, 'cron', '1', 1)"""


async def test_a_swap_that_moved_is_no_news_and_one_that_came_and_went_neither(tmp_path: Path) -> None:
    """Within one reading; what counts in the end and did not before is."""
    first, second, third = (f"0x{n:064x}" for n in (1, 2, 3))
    async with open_competition(tmp_path) as db:
        await db.prepare("INSERT INTO agents (btc_address, stx_address) VALUES ('bc1', ?)").bind(WALLET).run()
        await db.prepare(_SWAP).bind(first, WALLET).run()
        known = await newest_id(db)
        for statement, txid in (
            ("DELETE FROM swaps WHERE txid = ?", first),
            (_SWAP, first),
            (_SWAP, second),
            ("DELETE FROM swaps WHERE txid = ?", second),
            (_SWAP, third),
        ):
            values = (txid, WALLET) if statement is _SWAP else (txid,)
            await db.prepare(statement).bind(*values).run()
        told, _ = await read_news(db, known)

    assert [(each.kind, each.txid) for each in told] == [("counted", third)]
    assert told[0].trade is not None
    assert (told[0].trade.amount_in, told[0].address) == ("5", WALLET)


async def test_the_newest_ten_thousand_news_are_kept(tmp_path: Path) -> None:
    """Older ones are left out, and counted."""
    async with open_competition(tmp_path) as db:
        await db.prepare("INSERT INTO news (id, kind, txid, sender) VALUES (1, 'refused', 'a', 'b')").run()
        await db.prepare("INSERT INTO news (id, kind, txid, sender) VALUES (2, 'refused', 'a', 'b')").run()
        await db.prepare("INSERT INTO news (id, kind, txid, sender) VALUES (10001, 'refused', 'a', 'b')").run()
        removed = await trim_news(db)
        left = [each["id"] for each in (await db.prepare("SELECT id FROM news ORDER BY id").all()).results]

    assert (removed, left) == (1, [2, 10_001])


def test_twenty_are_verified_together_and_those_that_keep_failing_alone() -> None:
    """After four attempts; none is left out, and none appears twice."""
    candidates = [Candidate(str(n), "cron", attempts=n % 6) for n in range(60)]
    groups = _groups(candidates)

    assert [len(group) for group in groups] == [20, 20, *[1] * 20]
    assert {each.attempts for group in groups[2:] for each in group} == {4, 5}
    assert sorted(int(each.txid) for group in groups for each in group) == list(range(60))


async def test_a_push_without_usable_ids_is_reported(tmp_path: Path) -> None:
    """Counted as ignored, with a line of the log; one with ids has none."""
    async with open_world(tmp_path) as world:
        odd = await receive(world.request(), world.rules, {"applied": [], "rolledBack": [], "withoutId": 3})
        lines = world.log.of("chainhook.ids_unusable")
        fine = await receive(world.request(), world.rules, {"applied": [], "rolledBack": [], "withoutId": 0})

        assert (odd.ignored, fine.ignored, fine.queued) == (3, 0, 0)
        assert [(line.level, line.fields["count"]) for line in lines] == [("WARN", 3)]
        assert len(world.log.of("chainhook.ids_unusable")) == 1


def test_who_names_a_candidate_decides_when_it_is_verified() -> None:
    """Our own lists first, then agents, then pushes; the database sorts by these."""
    assert (swap_store.LISTED, swap_store.SUBMITTED, swap_store.PUSHED) == (0, 1, 2)
