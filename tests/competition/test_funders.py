"""Who sent each wallet its first STX: from its own list, from the network's, and unknown where neither shows it."""

from pathlib import Path
from typing import Any

from stacks_simulator.chain_records import AssetEvent, SimulatedCall
from stacks_simulator.truth import Campaign
from support.changed_fetch import ChangedFetch
from support.competition import World, chain_of, feed, open_world, sweep
from tocsin.stacks import AccountNonce, MinedAt, StxPayment, Transaction
from tocsin.swaps.lists import first_funders, record_funders

STX_1 = 1_000_000
MINUTE_S = 60


def paid(number: int, sender: str, to: str, *, height: int, amount: int = STX_1, nonce: int = 3) -> Transaction:
    return Transaction(
        tx_id=f"0x{number}",
        sender=sender,
        sponsored=False,
        fee=0,
        status="success",
        type="token_transfer",
        contract_call=None,
        mined=MinedAt(height, "0x", 0, 0),
        canonical=True,
        event_count=None,
        nonces=(AccountNonce(sender, nonce),),
        payment=StxPayment(to, amount),
    )


async def register_two(world: World) -> None:
    sql = "INSERT INTO agents (btc_address, stx_address) VALUES ('bc1w', 'W'), ('bc1v', 'V')"
    await world.db.prepare(sql).run()


async def keep(world: World, *rows: Transaction, ended: str | None = None) -> dict[str, str]:
    """What is known after these rows."""
    statements = record_funders(world.db, rows, {"W", "V"}, ended=ended)
    if statements:
        await world.db.batch(statements)
    return await first_funders(world.db, ["W", "V"])


async def test_the_earliest_is_the_funder_once_the_list_was_seen_to_its_end(tmp_path: Path) -> None:
    """In any order of the rows; an incomplete list leaves it unknown."""
    async with open_world(tmp_path, chain_of(1)) as world:
        await register_two(world)
        assert await keep(world, paid(3, "C", "W", height=30)) == {}
        assert await keep(world, paid(2, "B", "W", height=20), paid(4, "D", "V", height=5)) == {}
        assert await keep(world, paid(1, "A", "W", height=10), ended="W") == {"W": "A"}
        assert await keep(world, paid(5, "E", "W", height=40), ended="W") == {"W": "A"}


async def test_a_wallet_without_any_gets_its_funder_from_the_network(tmp_path: Path) -> None:
    """Its list was empty; the first transfer after that is the first of all."""
    async with open_world(tmp_path, chain_of(1)) as world:
        await register_two(world)
        assert await keep(world, ended="W") == {}
        assert await keep(world, paid(1, "A", "W", height=10)) == {"W": "A"}
        assert await keep(world, paid(2, "B", "W", height=11)) == {"W": "A"}


async def test_dust_services_and_oneself_fund_nobody(tmp_path: Path) -> None:
    async with open_world(tmp_path, chain_of(1)) as world:
        await register_two(world)
        await keep(world, ended="W")
        assert await keep(world, paid(1, "SPAM", "W", height=10, amount=99_999)) == {}
        assert await keep(world, paid(2, "W", "W", height=11)) == {}
        assert await keep(world, paid(3, "X", "W", height=12, nonce=10_000)) == {}
        await keep(world, ended="V")
        assert await keep(world, paid(4, "X", "V", height=13, nonce=9_999)) == {"V": "X"}


async def test_the_sweep_learns_the_funder_from_the_list_of_a_wallet(tmp_path: Path) -> None:
    """Even if a contract paid: then it is the sender of that transaction. It takes no extra call."""
    simulator = chain_of(3)
    chain = simulator.chain
    first, second, third = chain.wallets[:3]
    funder, other = (stranger.address for stranger in chain.strangers[:2])
    send_many = SimulatedCall(f"{funder}.send-many", "send-many")
    events = tuple(AssetEvent("stx", "transfer", funder, wallet.address, 5 * STX_1) for wallet in (first, second))
    chain.broadcast(funder, send_many, events, fee=180)
    chain.mine()
    for wallet in (first, third):
        chain.transfer(other, wallet, 9 * STX_1)
        chain.mine()
    async with open_world(tmp_path, simulator) as world:
        await sweep(world)
        known = await first_funders(world.db, [wallet.address for wallet in chain.wallets])

    assert known == {first.address: funder, second.address: funder, third.address: other}


async def test_a_list_with_a_row_that_cannot_be_read_proves_no_funder(tmp_path: Path) -> None:
    """That row may be an earlier payment. Once it can be read, the funder is known."""
    simulator = chain_of(1)
    chain = simulator.chain
    wallet, funder, later = chain.wallets[0].address, chain.strangers[0].address, chain.strangers[1].address
    first = chain.transfer(funder, wallet, STX_1)
    chain.mine()
    chain.transfer(later, wallet, STX_1)
    chain.mine()
    fetch = ChangedFetch(simulator, f"{wallet}/transactions")

    def spoilt(_: str, body: dict[str, Any]) -> None:
        for row in body["results"]:
            if row["transaction"]["tx_id"] == first.tx_id:
                row["transaction"]["fee_rate"] = None

    async with open_world(tmp_path, simulator, fetch=lambda _: fetch) as world:
        fetch.change = spoilt
        await sweep(world)
        unread = await first_funders(world.db, [wallet])
        fetch.change = None
        await world.db.prepare("DELETE FROM marks").run()  # it is read again
        await sweep(world)
        read = await first_funders(world.db, [wallet])

    assert unread == {}
    assert read == {wallet: funder}


async def test_the_feed_learns_who_funds_an_empty_wallet(tmp_path: Path) -> None:
    simulator = chain_of(2)
    chain = simulator.chain
    wallet, funder = chain.wallets[0].address, chain.strangers[0].address
    async with open_world(tmp_path, simulator) as world:
        await feed(world)
        await sweep(world)
        assert await first_funders(world.db, [wallet]) == {}
        chain.transfer(funder, wallet, STX_1)
        chain.mine()
        await world.clock.sleep(2 * MINUTE_S)
        await feed(world)

        assert await first_funders(world.db, [wallet]) == {wallet: funder}


async def test_the_funder_of_an_old_wallet_is_unknown(tmp_path: Path) -> None:
    """Its list goes back further than the campaign, over several pages, and is not read to its end."""
    simulator = chain_of(1)
    chain = simulator.chain
    wallet, funder = chain.wallets[0].address, chain.strangers[0].address
    chain.transfer(funder, wallet, STX_1)
    chain.mine()
    chain.dust(wallet, 60)
    chain.mine()
    chain.campaign = Campaign(start_s=chain.now_ms // 1000 + 3_600)
    chain.advance(chain.now_ms + 2 * 3_600_000)
    chain.transfer(chain.strangers[1], wallet, STX_1)
    chain.mine()
    async with open_world(tmp_path, simulator) as world:
        await sweep(world)

        assert await first_funders(world.db, [wallet]) == {}
        rows = (await world.db.prepare("SELECT funder, complete FROM funders").all()).results
        assert [(row["funder"], row["complete"]) for row in rows] == [(chain.strangers[1].address, 0)]
