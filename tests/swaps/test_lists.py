"""The lists of contracts and wallets: which rows are worth a call, and what the next run continues."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stacks_simulator.addresses import address_of
from stacks_simulator.chain_records import AssetEvent, SimulatedCall
from stacks_simulator.faults import FaultKind, SimulatedFault
from stacks_simulator.traffic import start_tenures
from stacks_simulator.truth import Campaign
from support.competition import World, chain_of, feed, followed, open_world, started, sweep, trading, transaction
from tocsin.stacks import AccountNonce, ContractCall, MinedAt, StxPayment, Transaction
from tocsin.swaps import proof as nonces
from tocsin.swaps import store as swap_store
from tocsin.swaps.lists import ListReader, first_funders, record_funders, relevant, triage
from tocsin.swaps.rules import Code, Rules, built_in
from tocsin.swaps.store import Candidate, Known
from tocsin.swaps.sweep import Sweep
from tocsin.upstream.answer import BadRequest, NoAnswer

WALLET, OTHER = address_of("wallet"), address_of("other")
ALLOWED = built_in()
CONTRACT, FUNCTIONS = next((name, sorted(functions)) for name, functions in ALLOWED.contracts.items() if functions)
RULES = Rules(ALLOWED, 1_700_000_000)
MINUTE_MS = 60_000
SWEEP_MS = 15 * MINUTE_MS
STX_1 = 1_000_000
MINUTE_S = 60


# Which rows of a list matter


def call(
    tx_id: str, sender: str = WALLET, *, contract: str = CONTRACT, function: str = FUNCTIONS[0], **values: Any
) -> Transaction:
    made = {"contract_call": ContractCall(contract, function), "mined": MinedAt(7, "0xb7", 0, 1_778_000_000), **values}
    return transaction(tx_id, sender, **made)


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

    assert [each.tx_id for each in relevant(rows, tiers, RULES, WALLET)] == ["listed", "odd"]
    assert [each.tx_id for each in relevant(rows, tiers, RULES, CONTRACT)] == ["listed"]
    assert [each.tx_id for each in relevant(rows, tiers, RULES)] == ["listed", "odd"]


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
    assert sorted_out.candidates[0] == Candidate("new", "cron", block_height=7)


# Lists that one run does not finish


async def test_a_transaction_that_cannot_be_read_is_asked_for_less_and_less_often(tmp_path: Path) -> None:
    """Each look counts: after 5 minutes, then 10, then 20. It is neither refused nor dismissed."""
    async with trading(tmp_path, 1) as (world, chain):
        [tx] = world.trade(chain.wallets[0])

        def unreadable(_url: str, body: dict[str, Any]) -> None:
            body[tx.tx_id]["result"]["burn_block_time"] = 10**15

        # Another one can be read, in the same answer: Hiro does not know it.
        txids = (tx.tx_id, f"0x{'ab' * 32}")
        candidates = [Candidate(txid, "agent", rank=swap_store.SUBMITTED) for txid in txids]
        await world.db.batch(swap_store.enqueue(world.db, candidates, world.clock.now()))
        waits = []
        for attempts in (1, 2, 3):
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS)
            with world.changing("/tx/multiple", unreadable):
                await made.queue.verify_queued()
            [row] = await world.all("SELECT attempts, due_at FROM candidates WHERE txid = ?", tx.tx_id)
            assert (row["attempts"], made.counts.tally.failed) == (attempts, 1)
            waits.append((row["due_at"] - world.clock.now()) / MINUTE_MS)
            await world.clock.sleep((row["due_at"] - world.clock.now()) / 1000)
        await sweep(world)
        await world.check()

    assert waits == [5, 10, 20]


@pytest.mark.parametrize(
    ("kind", "attempts", "waits"), [("wrong_json", [1, 2, 3], [1, 4, 25]), ("status", [0, 0, 0], [1, 1, 1])]
)
async def test_a_group_without_an_answer_is_asked_for_again(
    kind: FaultKind, attempts: list[int], waits: list[int], tmp_path: Path
) -> None:
    """After a minute. A broken answer may be the transaction's own, so it counts as an attempt; an outage does not."""
    async with trading(tmp_path, 1) as (world, chain):
        [tx] = world.trade(chain.wallets[0])
        await world.db.batch(swap_store.enqueue(world.db, [Candidate(tx.tx_id, "agent")], world.clock.now()))
        world.simulator.faults.add(SimulatedFault(kind=kind, status=500, path="/tx/multiple"))
        seen = []
        for _ in range(3):
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS)
            await made.queue.verify_queued()
            [row] = await world.all("SELECT attempts, due_at FROM candidates")
            seen.append((row["attempts"], (row["due_at"] - world.clock.now()) / MINUTE_MS))
            await world.clock.sleep((row["due_at"] - world.clock.now()) / 1000)

    assert seen == list(zip(attempts, waits, strict=True))


async def test_one_sweep_reads_twenty_pages_of_a_wallet(tmp_path: Path) -> None:
    """The rest of a flood waits for the next sweep, which goes on where this one stopped."""
    async with trading(tmp_path, 1) as (world, chain):
        wallet = chain.wallets[0].address
        world.trade(chain.wallets[0])
        await world.wait(3_600)
        chain.mine(*chain.dust(wallet, 1_070))
        await world.wait(3_600)
        pages = []
        for _ in range(2):
            before = world.calls(f"/{wallet}/transactions")
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS)
            await made.prepare()
            await made.read_lists((), made.visits())
            pages.append(world.calls(f"/{wallet}/transactions") - before)
            await world.clock.sleep(900)
        await world.check(1)

    assert pages == [20, 3]  # 22 pages, and the head of the list once more


async def test_while_the_network_is_followed_a_wallet_has_its_turn_every_six_hours(tmp_path: Path) -> None:
    """In one of 24 sweeps, by the number of the slot; the others read no wallet's list."""
    async with followed(tmp_path, 3) as (world, _):
        start_tenures(world.simulator.chain)
        await sweep(world)
        visited = []
        for _ in range(48):
            await feed(world, after_s=(SWEEP_MS - world.clock.now() % SWEEP_MS) / 1000)
            made = Sweep(world.run(), world.rules, cadence_ms=SWEEP_MS, feed_ms=MINUTE_MS)
            await made.prepare()
            slot = world.clock.now() // SWEEP_MS
            visited.append((slot % 24, len(made.visits())))

    assert [remainder for remainder, count in visited if count == 1] == [0, 0]
    assert sum(count for _, count in visited) == 2


async def lacking_wallet(world: World) -> str:
    """A wallet with a missing nonce, which its own list shows on the seventh page."""
    chain = world.simulator.chain
    wallet = chain.wallets[0]
    [hidden] = world.trade(wallet)
    await world.wait(3_600)
    chain.dust(wallet.address, 320)
    world.trade(wallet)
    await world.wait(3_600)
    world.simulator.hiro._is_listed = lambda tx: tx is not hidden  # type: ignore[method-assign]  # of our choice
    return wallet.address


async def test_a_wallet_whose_list_is_not_finished_is_visited_again(tmp_path: Path) -> None:
    """Five pages in each run. Only a list that was read to its end without the transaction counts as lagging."""
    async with trading(tmp_path, 2) as (world, chain):
        for each in chain.wallets:
            chain.transfer(each, chain.strangers[0], 5)
        await started(world)
        wallet = await lacking_wallet(world)
        pages, failures = [], []
        for _ in range(3):
            before = world.calls(f"/{wallet}/transactions")
            await feed(world)
            pages.append(world.calls(f"/{wallet}/transactions") - before)
            failures += [
                row["failures"] for row in await world.all("SELECT failures FROM marks WHERE principal = ?", wallet)
            ]
            await world.clock.sleep(60)
        lacking = await nonces.lacking(world.db, 5, world.clock.now())
        await world.check()

    assert pages[0] == 5
    assert pages[1] > 0
    assert pages[2] == 0
    assert failures == [0, 0, 0]
    assert lacking == {}


async def test_a_head_that_is_refused_after_the_rest_is_asked_for_once(tmp_path: Path) -> None:
    """A refused cursor may be outdated, so the list is read from its head; a refused head is a failure at once."""
    async with trading(tmp_path, 1) as (world, chain):
        chain.mine(*chain.burst(chain.wallets[0], 110, "multihop"))
        [contract] = {swap.contract_id for swap in chain.truth()}
        await world.wait(3_600)
        marks: dict[str, Any] = {}
        first = ListReader(world.run(), world.rules, {}, marks)
        assert len([page async for page in first.pages(contract, pages_max=1)]) == 1
        assert first.unfinished == {contract}
        await world.clock.sleep(900)
        asked: list[str | None] = []
        whole = world.hiro.principal_transactions

        async def without_head(principal: str, session: Any, cursor: str | None = None) -> Any:
            asked.append(cursor)
            return await whole(principal, session, cursor) if cursor else BadRequest("no head", 400)

        world.hiro.principal_transactions = without_head  # type: ignore[method-assign]  # a head that is refused
        second = ListReader(world.run(), world.rules, {}, marks)
        with pytest.raises(NoAnswer, match="no head"):
            [page async for page in second.pages(contract)]

    assert [cursor is None for cursor in asked] == [False, False, True]


# Who sent each wallet its first STX


def paid(number: int, sender: str, to: str, *, height: int, amount: int = STX_1, nonce: int = 3) -> Transaction:
    used, payment = AccountNonce(sender, nonce), StxPayment(to, amount)
    return transaction(f"0x{number}", sender, mined=MinedAt(height, "0x", 0, 0), nonces=(used,), payment=payment)


@asynccontextmanager
async def two_wallets(directory: Path) -> AsyncIterator[World]:
    async with open_world(directory, chain_of(1)) as world:
        sql = "INSERT INTO agents (btc_address, stx_address) VALUES ('bc1w', 'W'), ('bc1v', 'V')"
        await world.db.prepare(sql).run()
        yield world


async def keep(world: World, *rows: Transaction, ended: str | None = None) -> dict[str, str]:
    """What is known after these rows."""
    statements = record_funders(world.db, rows, {"W", "V"}, ended=ended)
    if statements:
        await world.db.batch(statements)
    return await first_funders(world.db, ["W", "V"])


async def test_the_earliest_is_the_funder_once_the_list_was_seen_to_its_end(tmp_path: Path) -> None:
    """In any order of the rows; an incomplete list leaves it unknown."""
    async with two_wallets(tmp_path) as world:
        assert await keep(world, paid(3, "C", "W", height=30)) == {}
        assert await keep(world, paid(2, "B", "W", height=20), paid(4, "D", "V", height=5)) == {}
        assert await keep(world, paid(1, "A", "W", height=10), ended="W") == {"W": "A"}
        assert await keep(world, paid(5, "E", "W", height=40), ended="W") == {"W": "A"}


async def test_a_wallet_without_any_gets_its_funder_from_the_network(tmp_path: Path) -> None:
    """Its list was empty; the first transfer after that is the first of all."""
    async with two_wallets(tmp_path) as world:
        assert await keep(world, ended="W") == {}
        assert await keep(world, paid(1, "A", "W", height=10)) == {"W": "A"}
        assert await keep(world, paid(2, "B", "W", height=11)) == {"W": "A"}


async def test_dust_services_and_oneself_fund_nobody(tmp_path: Path) -> None:
    async with two_wallets(tmp_path) as world:
        await keep(world, ended="W")
        assert await keep(world, paid(1, "SPAM", "W", height=10, amount=99_999)) == {}
        assert await keep(world, paid(2, "W", "W", height=11)) == {}
        assert await keep(world, paid(3, "X", "W", height=12, nonce=10_000)) == {}
        await keep(world, ended="V")
        assert await keep(world, paid(4, "X", "V", height=13, nonce=9_999)) == {"V": "X"}


async def test_the_sweep_learns_the_funder_from_the_list_of_a_wallet(tmp_path: Path) -> None:
    """Even if a contract paid: then it is the sender of that transaction. It takes no extra call."""
    async with trading(tmp_path, 3) as (world, chain):
        first, second, third = chain.wallets[:3]
        funder, other = (stranger.address for stranger in chain.strangers[:2])
        send_many = SimulatedCall(f"{funder}.send-many", "send-many")
        events = tuple(AssetEvent("stx", "transfer", funder, wallet.address, 5 * STX_1) for wallet in (first, second))
        chain.mine(chain.broadcast(funder, send_many, events, fee=180))
        for wallet in (first, third):
            chain.mine(chain.transfer(other, wallet, 9 * STX_1))
        await sweep(world)
        known = await first_funders(world.db, [wallet.address for wallet in chain.wallets])

    assert known == {first.address: funder, second.address: funder, third.address: other}


async def test_a_list_with_a_row_that_cannot_be_read_proves_no_funder(tmp_path: Path) -> None:
    """That row may be an earlier payment. Once it can be read, the funder is known."""
    async with trading(tmp_path, 1) as (world, chain):
        wallet, funder, later = chain.wallets[0].address, chain.strangers[0].address, chain.strangers[1].address
        first = chain.transfer(funder, wallet, STX_1)
        chain.mine()
        chain.mine(chain.transfer(later, wallet, STX_1))

        def spoilt(_: str, body: dict[str, Any]) -> None:
            for row in body["results"]:
                if row["transaction"]["tx_id"] == first.tx_id:
                    row["transaction"]["fee_rate"] = None

        with world.changing(f"{wallet}/transactions", spoilt):
            await sweep(world)
        unread = await first_funders(world.db, [wallet])
        await world.db.prepare("DELETE FROM marks").run()  # it is read again
        await sweep(world)
        read = await first_funders(world.db, [wallet])

    assert unread == {}
    assert read == {wallet: funder}


async def test_the_feed_learns_who_funds_an_empty_wallet(tmp_path: Path) -> None:
    async with trading(tmp_path, 2) as (world, chain):
        wallet, funder = chain.wallets[0].address, chain.strangers[0].address
        await feed(world)
        await sweep(world)
        assert await first_funders(world.db, [wallet]) == {}
        chain.mine(chain.transfer(funder, wallet, STX_1))
        await feed(world, after_s=2 * MINUTE_S)

        assert await first_funders(world.db, [wallet]) == {wallet: funder}


async def test_the_funder_of_an_old_wallet_is_unknown(tmp_path: Path) -> None:
    """Its list goes back further than the campaign, over several pages, and is not read to its end."""
    simulator = chain_of(1)
    chain = simulator.chain
    wallet, funder = chain.wallets[0].address, chain.strangers[0].address
    chain.mine(chain.transfer(funder, wallet, STX_1))
    chain.mine(*chain.dust(wallet, 60))
    chain.campaign = Campaign(start_s=chain.now_ms // 1000 + 3_600)
    chain.advance(chain.now_ms + 2 * 3_600_000)
    chain.mine(chain.transfer(chain.strangers[1], wallet, STX_1))
    async with open_world(tmp_path, simulator) as world:
        await sweep(world)

        assert await first_funders(world.db, [wallet]) == {}
        rows = (await world.db.prepare("SELECT funder, complete FROM funders").all()).results
        assert [(row["funder"], row["complete"]) for row in rows] == [(chain.strangers[1].address, 0)]
