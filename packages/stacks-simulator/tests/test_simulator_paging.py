"""Paging, caching and errors of Hiro's lists: no row twice and none missing, for every page size."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import NO_MICROBLOCK
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import STX
from support.simulated import ask, ask_json, quiet_simulator, walk

V1 = "/extended/v1"
V3 = "/extended/v3"


def busy_wallet(count: int) -> tuple[Simulator, str, list[str]]:
    """A wallet with `count` transactions, up to three in a block, and their ids, newest first."""
    simulator = quiet_simulator()
    chain = simulator.chain
    ids = []
    for number in range(count):
        ids.append(chain.swap(chain.wallets[0]).tx_id)
        if number % 3 == 2:
            chain.mine()
    chain.mine()
    return simulator, chain.wallets[0].address, ids[::-1]


def tx_ids(pages: list[Any]) -> list[str]:
    return [row["transaction"]["tx_id"] for page in pages for row in page["results"]]


@pytest.mark.slow
@given(count=st.integers(1, 60), limit=st.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_v3_cursors_cover_a_list_forwards_and_backwards(count: int, limit: int) -> None:
    """`next` from the newest page gives every row once; `previous` from the oldest page gives every row."""
    simulator, wallet, newest_first = busy_wallet(count)
    target = f"{V3}/principals/{wallet}/transactions?limit={limit}"

    down = walk(simulator, target, "next")

    assert tx_ids(down) == newest_first
    assert {page["total"] for page in down} == {count}
    assert all(page["cursor"]["current"] == position(page["results"][0]) for page in down)
    up = walk(simulator, target, "previous", down[-1]["cursor"]["current"])
    assert set(tx_ids(up)) == set(newest_first)
    assert tx_ids(up[-1:])[0] == newest_first[0]


def position(row: Any) -> str:
    block = row["transaction"]["block"]
    return f"{block['height']}:{NO_MICROBLOCK}:{block['tx_index']}"


def test_a_v3_cursor_is_inclusive_and_stable() -> None:
    """The row that a cursor names is the first of its page, even after newer blocks."""
    simulator, wallet, newest_first = busy_wallet(20)
    target = f"{V3}/principals/{wallet}/transactions?limit=5"
    second = ask_json(simulator, target)["cursor"]["next"]
    new = simulator.chain.burst(wallet, 3)
    simulator.chain.mine()

    page = ask_json(simulator, f"{target}&cursor={second}")

    assert tx_ids([page]) == newest_first[5:10]
    assert page["cursor"]["current"] == second
    newer = tx_ids(walk(simulator, target, "previous", second))
    assert set(newer) == {*newest_first[:10], *(tx.tx_id for tx in new)}
    assert len(newer) == 15  # the newest page is full, so it repeats two rows of the one below it


def test_a_cursor_can_name_a_whole_block() -> None:
    """`height:0:0` begins at the last transaction of that block, or below it when the block is empty."""
    simulator, wallet, newest_first = busy_wallet(6)
    older, newer = (block.height for block in simulator.chain.blocks if block.transactions)
    target = f"{V3}/principals/{wallet}/transactions?limit=1&cursor="

    assert tx_ids([ask_json(simulator, f"{target}{older}:0:0")]) == newest_first[3:4]
    assert tx_ids([ask_json(simulator, f"{target}{newer}:0:0")]) == newest_first[:1]
    assert tx_ids([ask_json(simulator, f"{target}{newer + 9}:0:0")]) == newest_first[:1]
    empty = ask_json(simulator, f"{target}5:0:0")
    assert (empty["results"], empty["total"]) == ([], 0)


@given(count=st.integers(1, 60), limit=st.integers(1, 50))
@settings(max_examples=20, deadline=None)
def test_v1_offsets_cover_a_list(count: int, limit: int) -> None:
    """While no block comes, offset pages have every row once, newest first, and rows without events."""
    simulator, wallet, newest_first = busy_wallet(count)
    rows = []
    for offset in range(0, count + limit, limit):
        page = ask_json(simulator, f"{V1}/address/{wallet}/transactions?limit={limit}&offset={offset}")
        assert (page["total"], page["limit"], page["offset"]) == (count, limit, offset)
        rows += page["results"]

    assert [row["tx_id"] for row in rows] == newest_first
    assert all(row["events"] == [] and row["event_count"] > 0 for row in rows)


@given(limit=st.integers(1, 100), offset=st.integers(0, 120))
@settings(max_examples=20, deadline=None)
def test_events_are_paged(limit: int, offset: int) -> None:
    """Any slice of a long transaction's events can be asked for, and 20 by default."""
    simulator = quiet_simulator()
    tx = simulator.chain.swap(kind="multibin")
    simulator.chain.mine()
    total = len(tx.events)

    page = ask_json(simulator, f"{V1}/tx/{tx.tx_id}?event_limit={limit}&event_offset={offset}")
    default = ask_json(simulator, f"{V1}/tx/{tx.tx_id}")

    assert [event["event_index"] for event in page["events"]] == list(range(total))[offset : offset + limit]
    assert len(default["events"]) == 20 < default["event_count"] == total


@pytest.mark.slow
@given(limit=st.integers(1, 50))
@settings(max_examples=15, deadline=None)
def test_balance_changes_are_paged(limit: int) -> None:
    """Twenty ids may need several pages, which together have every transaction and asset once."""
    simulator, wallet, newest_first = busy_wallet(20)
    target = f"{V3}/principals/{wallet}/balance-changes?limit={limit}&tx_id={','.join(newest_first)}"

    pages = walk(simulator, target, "next")

    rows = [row for page in pages for row in page["results"]]
    keys = [(row["tx_id"], row["asset"].get("identifier", "stx")) for row in rows]
    assert len(keys) == len(set(keys)) == pages[0]["total"]
    assert list(dict.fromkeys(tx_id for tx_id, _ in keys)) == newest_first


def test_a_contracts_list_has_the_calls_of_every_sender(simulator: Simulator, chain: Chain) -> None:
    """A contract is a principal: its list has every call of it as 'affected', with the sender."""
    swaps = [chain.swap(wallet, "provider") for wallet in (*chain.wallets, chain.strangers[0])]
    chain.mine()
    contract = swaps[0].payload.contract  # type: ignore[union-attr]  # a provider swap is a call

    rows = ask_json(simulator, f"{V3}/principals/{contract}/transactions")["results"]

    assert {row["transaction"]["sender"]["address"] for row in rows} == {tx.sender for tx in swaps}
    assert {row["involvement"] for row in rows} == {"affected"}


def test_the_sponsor_pays_the_fee(simulator: Simulator) -> None:
    """It is not part of what the sender has sent."""
    tx = simulator.chain.swap(kind="sponsored", token_in=STX.id)
    simulator.chain.mine()
    assert tx.swap is not None
    assert tx.sponsor is not None

    row = ask_json(simulator, f"{V3}/principals/{tx.sender}/transactions")["results"][0]
    sponsored = ask_json(simulator, f"{V3}/principals/{tx.sponsor}/transactions")["results"][0]

    assert row["balance_changes"]["stx"]["sent"] == str(tx.swap.amount_in)
    assert (sponsored["involvement"], sponsored["balance_changes"]["stx"]["sent"]) == ("sponsor", str(tx.fee))


def test_an_unchanged_reply_is_not_sent_again(simulator: Simulator, chain: Chain) -> None:
    """A request with the current ETag gets an empty 304; new activity or another block changes the tag."""
    tx = chain.swap(chain.wallets[0])
    chain.mine()
    targets = [
        f"{V1}/tx/{tx.tx_id}",
        f"{V1}/address/{tx.sender}/transactions",
        f"{V3}/principals/{tx.sender}/transactions",
        "/extended",
    ]
    tags = {target: ask(simulator, target).headers["etag"] for target in targets}

    for target, tag in tags.items():
        reply = ask(simulator, target, {"If-None-Match": tag})
        assert (reply.status, reply.body) == (304, b"")
        assert ask(simulator, target, {"If-None-Match": '"other"'}).status == 200
    chain.reorg(1, "remined")
    changed = {target for target, tag in tags.items() if ask(simulator, target, {"If-None-Match": tag}).status == 200}

    # A principal's tag is only its newest id: it does not change when the transaction moves to another block.
    assert changed == {target for target in targets if "/address/" not in target and "/principals/" not in target}
    chain.swap(chain.wallets[0])
    chain.mine()
    assert all(
        ask(simulator, target, {"If-None-Match": tag}).status == 200
        for target, tag in tags.items()
        if tx.sender in target
    )


def test_ids_are_found_in_any_letter_case_and_returned_in_lower(simulator: Simulator) -> None:
    """An id in upper case is found; an id without 0x is redirected to the full id, with the query."""
    tx = simulator.chain.swap()
    simulator.chain.mine()
    bare = tx.tx_id[2:]

    assert ask_json(simulator, f"{V1}/tx/0x{bare.upper()}")["tx_id"] == tx.tx_id
    redirect = ask(simulator, f"{V1}/tx/{bare}?event_limit=5")
    assert (redirect.status, redirect.headers["location"]) == (302, f"{V1}/tx/{tx.tx_id}?event_limit=5")
    assert ask(simulator, f"{V1}/tx/multiple?tx_id={bare}").status == 400
    upper = f"0x{bare.upper()}"
    several = ask_json(simulator, f"{V1}/tx/multiple?tx_id={upper}")
    assert {tx_id: entry["found"] for tx_id, entry in several.items()} == {tx.tx_id: True, upper: False}


def test_a_limit_of_zero_is_the_default_in_v1(simulator: Simulator) -> None:
    """20 events, and 20 rows; v3 refuses it."""
    tx = simulator.chain.swap(kind="multibin")
    simulator.chain.mine()
    for _ in range(25):
        simulator.chain.swap(tx.sender)
    simulator.chain.mine()

    one = ask_json(simulator, f"{V1}/tx/{tx.tx_id}?event_limit=0")
    several = ask_json(simulator, f"{V1}/tx/multiple?event_limit=0&tx_id={tx.tx_id}")
    rows = ask_json(simulator, f"{V1}/address/{tx.sender}/transactions?limit=0")

    assert one["event_count"] > 20
    assert len(one["events"]) == len(several[tx.tx_id]["result"]["events"]) == 20
    assert (rows["limit"], len(rows["results"])) == (20, 20)


def test_several_transactions_have_one_etag(simulator: Simulator) -> None:
    """It changes when one of them does."""
    first, second = simulator.chain.swap(), simulator.chain.swap(wait_ms=None)
    target = f"{V1}/tx/multiple?tx_id={first.tx_id},{second.tx_id}"
    before = ask(simulator, target)
    again = ask(simulator, target, {"if-none-match": before.headers["etag"]})
    simulator.chain.mine()
    after = ask(simulator, target, {"if-none-match": before.headers["etag"]})

    assert (before.status, again.status, after.status) == (200, 304, 200)


def test_a_new_transaction_is_unknown_for_a_while(simulator: Simulator) -> None:
    """Lookups by id reply 404 until `index_lag_ms` after the broadcast."""
    simulator.hiro.index_lag_ms = 4_000
    tx = simulator.chain.swap(wait_ms=None)

    assert ask(simulator, f"{V1}/tx/{tx.tx_id}").status == 404
    assert ask_json(simulator, f"{V1}/tx/multiple?tx_id={tx.tx_id}")[tx.tx_id]["found"] is False
    simulator.chain.advance(simulator.chain.now_ms + 4_000)
    assert ask_json(simulator, f"{V1}/tx/{tx.tx_id}")["tx_status"] == "pending"


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        (f"{V1}/address/{{w}}/transactions?limit=x", 400, "querystring/limit must be integer"),
        (f"{V1}/address/{{w}}/transactions?offset=-1", 400, "querystring/offset must be >= 0"),
        (f"{V1}/address/nobody/transactions", 400, "params/principal must match"),
        (f"{V1}/tx/{{t}}?event_limit=101", 400, "querystring/event_limit must be <= 100"),
        (f"{V1}/tx/multiple?tx_id=zz", 400, "must match pattern"),
        (f"{V3}/principals/{{w}}/transactions?limit=0", 400, "querystring/limit must be >= 1"),
        (f"{V3}/principals/{{w}}/transactions?cursor=x", 400, "querystring/cursor must match"),
        (f"{V3}/transactions?limit=51", 400, "querystring/limit must be <= 50"),
        (f"{V3}/transactions?cursor=1:2", 400, "querystring/cursor must match"),
        (f"{V3}/principals/{{w}}/balance-changes", 400, "must have required property 'tx_id'"),
        (f"{V1}/tx/multiple", 400, "must have required property 'tx_id'"),
        (f"{V3}/principals/{{w}}/balance-changes?tx_id={','.join(['0x' + 'ab' * 32] * 21)}", 400, "more than 20"),
        (f"{V3}/nothing", 404, "Route GET:/extended/v3/nothing not found"),
    ],
)
def test_wrong_requests_get_the_errors_of_the_real_server(
    target: str, status: int, message: str, simulator: Simulator
) -> None:
    """Each error has the status, the fields and the wording of the real server."""
    wallet = simulator.chain.wallets[0].address

    reply = ask(simulator, target.format(w=wallet, t="0x" + "ab" * 32))

    body = json.loads(reply.body)
    assert (reply.status, body["statusCode"]) == (status, status)
    assert message in body["message"]


def test_a_deprecated_route_says_so() -> None:
    """In a header that the others do not have."""
    simulator, wallet, ids = busy_wallet(1)
    targets = (f"{V1}/tx/{ids[0]}", f"{V1}/tx/multiple?tx_id={ids[0]}", f"{V3}/principals/{wallet}/transactions")
    warnings = [ask(simulator, target).headers.get("warning") for target in targets]

    assert warnings[0] is not None
    assert warnings[0].startswith('299 - "Deprecated: ')
    assert warnings[1:] == [None, None]


def test_arguments_can_be_left_out(simulator: Simulator) -> None:
    tx = simulator.chain.swap(kind="provider")
    simulator.chain.mine()

    full = ask_json(simulator, f"{V1}/tx/{tx.tx_id}")
    lean = ask_json(simulator, f"{V1}/tx/{tx.tx_id}?exclude_function_args=true")

    assert set(full["contract_call"]) - set(lean["contract_call"]) == {"function_args"}


@pytest.mark.parametrize("path", [f"{V1}/address/{{}}/transactions", f"{V3}/principals/{{}}/transactions"])
def test_an_address_with_a_wrong_checksum_has_no_transactions(path: str) -> None:
    """The real server compares addresses with a pattern only."""
    reply = ask(quiet_simulator(), path.format("SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJF"))

    assert (reply.status, json.loads(reply.body)["results"]) == (200, [])
