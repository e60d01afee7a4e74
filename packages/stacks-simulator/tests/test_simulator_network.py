"""The list of the whole network: pages, caching, and what makes it incomplete, late or absent."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks_simulator.chain import BLOCK_MS, Chain
from stacks_simulator.chain_records import NO_MICROBLOCK
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.traffic import Traffic, start_traffic
from support.simulated import HandClock, ask, ask_json, lively_chain, quiet_simulator, walk

V1 = "/extended/v1"
V3 = "/extended/v3"
LIST = f"{V3}/transactions"


@cache
def busy_chain() -> Chain:
    """Some two hundred transactions, and a reorg shortly before the end."""
    chain = lively_chain(hours=0.4)
    assert chain.reorg(12, "mixed")
    chain.advance(chain.now_ms + BLOCK_MS)
    return chain


def busy_simulator() -> Simulator:
    """The busy chain, which no test changes, with switches that a test may change."""
    chain = busy_chain()
    return Simulator(chain, HandClock(chain.now_ms), hiro_rate_limit=HiroRateLimit(UNLIMITED, UNLIMITED))


def newest_first(chain: Chain) -> list[str]:
    return [tx.tx_id for block in reversed(chain.blocks) for tx in reversed(block.transactions)]


def page_at(simulator: Simulator, limit: int, cursor: str | None = None) -> Any:
    at = "" if cursor is None else f"&cursor={cursor}"
    return ask_json(simulator, f"{LIST}?limit={limit}{at}")


def tx_ids(pages: list[Any]) -> list[str]:
    return [row["tx_id"] for page in pages for row in page["results"]]


def etag(simulator: Simulator) -> str:
    return ask(simulator, LIST).headers["etag"]


def is_unchanged(simulator: Simulator, tag: str) -> bool:
    reply = ask(simulator, LIST, {"If-None-Match": tag})
    return (reply.status, reply.body) == (304, b"")


def test_a_page_has_the_fields_of_the_real_one(simulator: Simulator) -> None:
    """Rows are what is under `transaction` in a principal's list, and `current` names the first of them."""
    tx = simulator.chain.swap(kind="sponsored")
    simulator.chain.mine()

    body = ask_json(simulator, LIST)
    of_sender = ask_json(simulator, f"{V3}/principals/{tx.sender}/transactions")

    assert body["results"] == [of_sender["results"][0]["transaction"]]
    current = f"{simulator.chain.tip_height}:{NO_MICROBLOCK}:0"
    assert body["cursor"] == {"next": None, "previous": None, "current": current}
    assert (body["limit"], body["total"], len(body)) == (20, 1, 4)
    assert "warning" not in ask(simulator, LIST).headers


def test_a_cursor_stays_valid_when_blocks_come_and_go(simulator: Simulator, chain: Chain) -> None:
    """It is inclusive, newer blocks do not move it, and after a reorg the page begins below it."""
    for _ in range(4):
        chain.burst(chain.wallets[0], 3)
        chain.mine()
    ids = newest_first(chain)
    second = page_at(simulator, 5)["cursor"]["next"]
    chain.swap()
    chain.mine()

    assert tx_ids([page_at(simulator, 5, second)]) == ids[5:10]
    assert page_at(simulator, 5, second)["cursor"]["current"] == second
    assert tx_ids([page_at(simulator, 5, f"{chain.blocks[1].height}:0:0")]) == ids[6:11]
    chain.reorg(4, "dropped")
    assert tx_ids([page_at(simulator, 5, second)]) == ids[9:]


def test_a_cursor_below_the_list_is_an_error(simulator: Simulator) -> None:
    """Only in this list: an empty page of another one is a page."""
    simulator.chain.mine(simulator.chain.swap())

    reply = ask(simulator, f"{LIST}?cursor=5:0:0")

    assert (reply.status, json.loads(reply.body)["message"]) == (404, "Cursor not found")


def test_an_empty_chain_has_an_empty_page() -> None:
    """Without a cursor an empty page is no error; it has no tag."""
    reply = ask(quiet_simulator(), LIST)

    body = json.loads(reply.body)
    cursor = {"next": None, "previous": None, "current": None}
    assert (reply.status, body["total"], body["results"], body["cursor"]) == (200, 0, [], cursor)
    assert "etag" not in reply.headers


def test_the_tag_is_that_of_the_newest_block_with_transactions(simulator: Simulator, chain: Chain) -> None:
    """It changes with every such block and with a reorg, and not with an empty block or a broadcast."""
    tags = []
    for _ in range(3):
        chain.swap()
        chain.mine()
        tags.append(etag(simulator))
    assert tags == [f'"{block.index_hash}"' for block in chain.blocks]
    assert len(set(tags)) == 3

    assert ask(simulator, f"{LIST}?cursor=5:0:0", {"If-None-Match": tags[-1]}).status == 304  # checked first
    waiting = chain.swap(wait_ms=None)
    assert is_unchanged(simulator, tags[-1])
    chain.drop(waiting)
    chain.mine()  # an empty block
    chain.advance(chain.now_ms + 10 * BLOCK_MS)
    assert is_unchanged(simulator, tags[-1])

    assert chain.reorg(12, "remined")
    assert etag(simulator) not in tags
    assert chain.reorg(chain.tip_height - chain.blocks[1].height + 1, "vanished")
    assert is_unchanged(simulator, tags[0])  # the list is again as it was then


@pytest.mark.slow
@given(share=st.floats(0.05, 0.9), limit=st.integers(1, 50))
@settings(max_examples=15, deadline=None)
def test_omitted_transactions_are_missing_only_here(share: float, limit: int) -> None:
    """The list permanently lacks about this share; totals, tags, other lists and lookups have them."""
    simulator = busy_simulator()
    everything, tag = newest_first(simulator.chain), etag(simulator)
    simulator.hiro.omitted_share = share
    down = walk(simulator, f"{LIST}?limit={limit}")
    up = walk(simulator, f"{LIST}?limit={limit}", "previous", down[-1]["cursor"]["current"])
    shown = tx_ids(down)
    missing = [tx_id for tx_id in everything if tx_id not in set(shown)]
    first = simulator.chain.transactions[missing[0]]
    of_sender = ask_json(simulator, f"{V3}/principals/{first.sender}/transactions?limit=50")["results"]

    assert shown == [tx_id for tx_id in everything if tx_id in set(shown)]
    assert abs(len(missing) / len(everything) - share) < 0.12
    assert set(tx_ids(up)) == set(shown)
    assert {page["total"] for page in down} == {len(everything)}
    assert tx_ids(walk(simulator, f"{LIST}?limit=50")) == shown
    assert first.tx_id in {row["transaction"]["tx_id"] for row in of_sender}
    assert ask(simulator, f"{V1}/tx/{first.tx_id}").status == 200
    assert etag(simulator) == tag
    simulator.hiro.omitted_share = share / 2
    assert set(shown) < set(tx_ids(walk(simulator, f"{LIST}?limit=50")))


def test_an_omitted_transaction_stays_omitted_when_it_is_mined_again(simulator: Simulator, chain: Chain) -> None:
    """The id decides, not the block or the position in it."""
    simulator.hiro.omitted_share = 0.5
    chain.burst(chain.wallets[0], 40)
    chain.mine()
    shown = set(tx_ids(walk(simulator, f"{LIST}?limit=50")))

    chain.reorg(1, "pending")
    chain.mine(*reversed(chain.transactions.values()))

    assert 0 < len(shown) < 40
    assert set(tx_ids(walk(simulator, f"{LIST}?limit=50"))) == shown
    simulator.hiro.omitted_share = 1.0
    assert ask_json(simulator, LIST)["results"] == []


def test_the_list_can_be_late(simulator: Simulator, chain: Chain) -> None:
    """With `list_lag_ms` it shows, counts and tags only blocks that are that old; other lists are current."""
    simulator.hiro.list_lag_ms = 3 * BLOCK_MS
    old = chain.swap(chain.wallets[0])
    chain.advance(chain.start_ms + BLOCK_MS)
    new = chain.swap(chain.wallets[0])
    chain.advance(chain.start_ms + 4 * BLOCK_MS - 1)
    assert ask_json(simulator, LIST)["total"] == 0

    chain.advance(chain.start_ms + 4 * BLOCK_MS)
    body, tag = ask_json(simulator, LIST), etag(simulator)
    assert (tx_ids([body]), body["total"]) == ([old.tx_id], 1)
    assert tag == f'"{chain.blocks[0].index_hash}"'
    assert ask_json(simulator, f"{V3}/principals/{new.sender}/transactions")["total"] == 2
    cursor = f"{chain.blocks[1].height}:{NO_MICROBLOCK}:0"
    page = page_at(simulator, 5, cursor)
    assert (tx_ids([page]), page["cursor"]["previous"]) == ([old.tx_id], None)

    chain.advance(chain.start_ms + 5 * BLOCK_MS)
    assert not is_unchanged(simulator, tag)
    assert tx_ids([ask_json(simulator, LIST)]) == [new.tx_id, old.tx_id]


@pytest.mark.parametrize(("state", "status"), [("absent", 404), ("gone", 410)])
def test_only_this_list_can_be_switched_off(state: Any, status: int, simulator: Simulator) -> None:
    """It is an unknown route or a disabled endpoint, whatever the query; all else replies as before."""
    tx = simulator.chain.swap()
    simulator.chain.mine()
    simulator.hiro.network_list = state

    for query in ("", "?limit=0", "?limit=5&cursor=5:0:0"):
        reply = ask(simulator, LIST + query)
        body = json.loads(reply.body)
        assert reply.status == status
        if state == "absent":
            assert body["message"] == f"Route GET:{LIST} not found"
    assert ask(simulator, f"{V1}/tx/{tx.tx_id}").status == 200
    assert ask(simulator, f"{V3}/principals/{tx.sender}/transactions").status == 200
    simulator.hiro.network_list = "served"
    assert ask_json(simulator, LIST)["total"] == 1


def test_a_stuck_etag_hides_new_blocks_from_whoever_sends_it(simulator: Simulator, chain: Chain) -> None:
    """A request without it gets the true page, with the old ETag."""
    chain.mine(chain.swap())
    tag = etag(simulator)
    simulator.hiro.etag_stuck = True
    chain.mine(chain.swap())
    stuck = (etag(simulator), is_unchanged(simulator, tag), len(page_at(simulator, 50)["results"]))
    simulator.hiro.etag_stuck = False

    assert stuck == (tag, True, 2)
    assert not is_unchanged(simulator, tag)


def test_a_list_that_has_stopped_shows_no_later_block(simulator: Simulator, chain: Chain) -> None:
    """The other lists go on."""
    early = chain.swap(chain.wallets[0])
    chain.mine()
    simulator.hiro.list_stopped_ms = chain.now_ms
    chain.advance(chain.now_ms + 5_000)
    late = chain.swap(chain.wallets[0])
    chain.mine()
    own = ask_json(simulator, f"{V3}/principals/{chain.wallets[0].address}/transactions")["results"]

    assert tx_ids([page_at(simulator, 50)]) == [early.tx_id]
    assert [row["transaction"]["tx_id"] for row in own] == [late.tx_id, early.tx_id]
    simulator.hiro.list_stopped_ms = None
    assert tx_ids([page_at(simulator, 50)]) == [late.tx_id, early.tx_id]


def test_each_bitcoin_block_begins_a_tenure(simulator: Simulator, chain: Chain) -> None:
    """The miner's transaction is in a block of the next seconds, and every route shows its type."""
    start_traffic(chain, Traffic(0, 0, 0, 0, 0, tenures=True))
    chain.advance(chain.now_ms + 1_805_000)
    rows = page_at(simulator, 50)["results"]
    v1 = ask_json(simulator, f"/extended/v1/tx/{rows[0]['tx_id']}")

    assert [(row["type"], row["tenure_change"], row["sender"]["nonce"]) for row in rows] == [
        ("tenure_change", {"cause": "block_found"}, nonce) for nonce in (2, 1, 0)
    ]
    assert all(row["block"]["time"] - row["bitcoin_block"]["time"] <= 5 for row in rows)
    assert (v1["tx_type"], v1["tenure_change_payload"]) == ("tenure_change", {"cause": "block_found"})
