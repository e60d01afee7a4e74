"""Netting: what the sender gave and got, over all events, in integers; compared with the simulator's truth."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks_simulator.calls import CALL_KINDS, SWAP_KINDS
from support.reference_cases import PARSE_CASES, completed
from support.scripted_fetch import example
from support.simulated import quiet_simulator
from support.simulated_fetch import HIRO_URL, SimulatedFetch
from support.upstreams import Wired
from tocsin.errors import MalformedBody
from tocsin.prices.store import STATIC_TOKENS
from tocsin.stacks import STX, BalanceChange, Transaction, TransferEvent
from tocsin.swaps.swap import (
    Moves,
    NoSwap,
    Swap,
    may_have_fees,
    moves_of_events,
    net_of_changes,
    net_of_events,
    provider_of,
    swap_of,
)
from tocsin.upstream.answer import Ok
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.hiro import HiroClient, hiro_upstream
from tocsin.upstream.hiro_parse import events_v1
from tocsin.upstream.limiter import task_session

WALLET, POOL = "SPWALLET", "SPPOOL.pool"
TREASURY, VAULT = "SPTREASURY", "SPVAULT.vault"


@pytest.mark.parametrize(
    "case", [case for case in PARSE_CASES if case["name"] != "not_contract_call"], ids=lambda c: c["name"]
)
def test_cases_of_the_reference(case: dict[str, Any]) -> None:
    """The reference's own examples give the same swap, or the refusal that the case explains."""
    tx, expected = completed(case["tx"]), case["expected"]
    if case["name"] == "amount_not_a_number":
        with pytest.raises(MalformedBody, match="amount"):
            events_v1(tx)
        return
    found = swap_of(moves_of_events(tx["sender_address"], events_v1(tx)))

    if "ours" in case or not expected["ok"]:
        assert isinstance(found, NoSwap)
        assert found.code == case.get("ours", expected)["code"]
    else:
        parts = ("token_in", "amount_in", "token_out", "amount_out")
        assert found == Swap(*(expected[part] for part in parts))


def test_a_middle_token_that_passes_through_cancels_out() -> None:
    """SBTC to STX to stSTX through the wallet is a swap of sBTC for stSTX."""
    body = example("hiro/swap_multihop_through_wallet_synthetic")["body"]
    sbtc, ststx = STATIC_TOKENS[1:]

    assert swap_of(moves_of_events(body["sender_address"], events_v1(body))) == Swap(sbtc, 50_000, ststx, 99_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALL_KINDS)
async def test_every_kind_of_call_of_the_simulator(kind: str) -> None:
    """Events and balance changes, read through the real client, both give what the simulator's chain did."""
    simulator = quiet_simulator(wallets=1)
    chain = simulator.chain
    sent = [chain.swap(chain.wallets[0], kind) for _ in range(6)]
    chain.mine()
    wired = Wired(hiro_upstream(HIRO_URL, None), lambda _: pytest.fail("not scripted"))
    client = HiroClient(UpstreamClient(hiro_upstream(HIRO_URL, None), SimulatedFetch(simulator), wired.limiter))
    session = task_session(wired.log)
    for tx in sent:
        answer = await client.transactions_with_events([tx.tx_id], session)
        changes = await client.balance_changes(tx.sender, [tx.tx_id], session)
        assert isinstance(answer, Ok)
        assert isinstance(changes, Ok)
        found = answer.value[tx.tx_id]
        assert found is not None
        events = found.events
        if events is None:
            more = await client.all_events([found], session)
            assert isinstance(more, Ok)
            events = more.value[tx.tx_id]
        assert events is not None
        by_events = net_of_events(tx.sender, events)
        swap = swap_of(moves_of_events(tx.sender, events))

        assert net_of_changes(found.transaction, changes.value) == by_events
        if tx.swap is None or tx.outcome != "success":
            assert isinstance(swap, NoSwap)
        else:
            assert isinstance(swap, Swap)
            pair = Swap(tx.swap.token_in, tx.swap.amount_in, tx.swap.token_out, tx.swap.amount_out)
            assert replace(swap, fees={}) == pair
            assert bool(swap.fees) == (kind == "third_token_fee")
        assert isinstance(swap, Swap) == (kind in SWAP_KINDS or kind.startswith("off_list"))


parties = st.sampled_from([WALLET, POOL, "SPSTRANGER"])


events = st.builds(
    TransferEvent,
    index=st.integers(0, 9),
    kind=st.just("transfer"),
    asset=st.sampled_from([STX, "A", "B"]),
    sender=st.one_of(st.none(), parties),
    recipient=st.one_of(st.none(), parties),
    amount=st.integers(0, 2**128 - 1),
)


@pytest.mark.slow
@given(st.lists(events, max_size=12), st.integers(0, 10**9), st.booleans())
def test_both_views_agree(moves: list[TransferEvent], fee: int, sponsored: bool) -> None:
    """Hiro's balance changes without the fee are the same as the sums of the events."""
    changes: dict[str, BalanceChange] = {}
    if not sponsored:
        changes[STX] = BalanceChange("0x1", STX, fee, 0)
    for move in moves:
        before = changes.get(move.asset, BalanceChange("0x1", move.asset, 0, 0))
        changes[move.asset] = BalanceChange(
            "0x1",
            move.asset,
            before.sent + (move.amount or 0) * (move.sender == WALLET),
            before.received + (move.amount or 0) * (move.recipient == WALLET),
        )
    net = net_of_changes(transaction(fee, sponsored=sponsored), changes.values())

    assert net == (net_of_events(WALLET, moves) if changes else None)


def transaction(fee: int, *, sponsored: bool) -> Transaction:
    return Transaction("0x1", WALLET, sponsored, fee, "success", "contract_call", None, None, True, None)


def test_changes_without_the_fee_are_not_believed() -> None:
    """A transaction that left the chain has no rows, and rows without the fee are not all of them."""
    token = BalanceChange("0x1", "A", 0, 5)

    assert net_of_changes(transaction(100, sponsored=False), []) is None
    assert net_of_changes(transaction(100, sponsored=False), [token]) is None
    assert net_of_changes(transaction(100, sponsored=False), [token, BalanceChange("0x1", STX, 99, 0)]) is None
    assert net_of_changes(transaction(1, sponsored=False), [token]) is None
    assert net_of_changes(transaction(0, sponsored=False), [token]) == {"A": 5}
    assert net_of_changes(transaction(100, sponsored=True), [token]) == {"A": 5}
    others = BalanceChange("0x2", "B", 3, 0)
    assert net_of_changes(transaction(100, sponsored=True), [others, token, others]) == {"A": 5}
    assert net_of_changes(transaction(100, sponsored=True), [BalanceChange("0x2", "A", 0, 5)]) is None


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        ({}, "no token changed hands for the sender"),
        ({"A": -1}, "the sender gave one token and got nothing"),
        ({"A": 1, "B": 2}, "the sender got 2 tokens and gave nothing"),
        (
            {"A": -1, "B": -2, "C": 3},
            "the sender gave 2 tokens and got one token: a swap has one of each, besides fees",
        ),
        ({"A": -1, "B": 2, "C": 3}, "the sender gave one token and got 2 tokens: a swap has one of each, besides fees"),
    ],
)
def test_what_is_not_a_swap_has_a_reason(net: dict[str, int], reason: str) -> None:
    """The refusal names what is missing or too much, and keeps what moved."""
    found = swap_of(Moves(net))

    assert isinstance(found, NoSwap)
    assert (found.code, found.reason, found.net) == ("incomplete_events", reason, net)


def test_a_swap_that_is_fees_only_names_what_is_not_known() -> None:
    shown = "the sender gave 2 tokens and got one token"
    net = {"A": -1, "B": -2, "C": 3}
    assert swap_of(Moves(net, frozenset("AB"))) == NoSwap(
        "incomplete_events",
        f"{shown}, and nobody who received one gave anything: it is unclear which one was swapped",
        net,
    )
    assert swap_of(Moves(net, frozenset("B"))) == Swap("A", 1, "C", 3, {"B": 2})
    more = {**net, "D": -1}
    assert swap_of(Moves(more, frozenset("B"))) == NoSwap(
        "incomplete_events", "the sender gave 3 tokens and got one token: a swap has one of each, besides fees", more
    )


def test_only_several_given_for_one_may_be_fees() -> None:
    for net in ({"A": -1, "B": -1, "C": 1}, {"A": -1, "B": -1, "D": -1, "C": 1}):
        assert may_have_fees(net)
    for net in ({"A": -1, "C": 1}, {"A": -1, "B": -1}, {"A": -1, "B": -1, "C": 1, "D": 1}):
        assert not may_have_fees(net)


def test_amounts_are_exact_up_to_what_the_table_holds() -> None:
    """Forty digits are kept to the last one; more are refused."""
    most = int("9" * 40)
    assert swap_of(Moves({"A": -most, "B": 1})) == Swap("A", most, "B", 1)
    assert swap_of(Moves({"A": -1, "B": most})) == Swap("A", 1, "B", most)
    for net in ({"A": -most - 1, "B": 1}, {"A": -1, "B": most + 1}):
        assert swap_of(Moves(net)) == NoSwap("invalid_amount", "an amount has more than 40 digits", net)


def move(asset: str, sender: str | None, recipient: str | None, amount: int | None = 5) -> TransferEvent:
    kind = "mint" if sender is None else "burn" if recipient is None else "transfer"
    return TransferEvent(0, kind, asset, sender, recipient, amount)  # type: ignore[arg-type]  # a word of three


PAID, GOT = move("A", WALLET, POOL), move("B", POOL, WALLET)


FEE = move("C", WALLET, TREASURY, 1)


@pytest.mark.parametrize(
    ("moves", "fees"),
    [
        ([PAID, FEE, GOT], {"C": 1}),
        ([PAID, FEE, move("D", WALLET, "SPOTHER", 2), GOT], {"C": 1, "D": 2}),
        ([PAID, FEE, move("A", WALLET, TREASURY, 1), GOT], {"C": 1}),  # part of the main token, too
        ([PAID, FEE, move("A", POOL, TREASURY, 1), GOT], {"C": 1}),  # the pool pays a fee of its own
        ([move("A", WALLET, None), FEE, GOT], {"C": 1}),  # given by a burn
        ([PAID, FEE, move("B", POOL, "SPSTRANGER"), move("B", None, WALLET)], {"C": 1}),  # got by a mint
        ([PAID, FEE, move("C", TREASURY, TREASURY, 1), GOT], {"C": 1}),  # a transfer to oneself gives nothing
        ([PAID, FEE, move("C", WALLET, WALLET, 9), GOT], {"C": 1}),
        ([PAID, FEE, move("C", WALLET, POOL, 0), GOT], {"C": 1}),  # nothing was moved
        ([PAID, FEE, move("D", TREASURY, "SPSTRANGER", 0), GOT], {"C": 1}),
        ([PAID, FEE, move("C", TREASURY, None, 1), GOT], {"C": 1}),  # burned by the receiver: nobody gets it
    ],
)
def test_a_third_token_that_only_pays_somebody_is_a_fee(moves: list[TransferEvent], fees: dict[str, int]) -> None:
    """The main pair is the swap, and the fees are named."""
    found = swap_of(moves_of_events(WALLET, moves))

    assert isinstance(found, Swap)
    assert (found.token_in, found.token_out, dict(found.fees)) == ("A", "B", fees)


@pytest.mark.parametrize(
    "moves",
    [
        [PAID, move("C", WALLET, POOL), GOT],  # liquidity: the pool gives for both
        [PAID, move("C", WALLET, POOL), move("B", None, WALLET)],  # liquidity: the pool gives for neither
        [move("A", WALLET, VAULT), FEE, move("B", None, WALLET)],  # no main leg: a vault that gives nothing
        [PAID, FEE, move("C", WALLET, POOL, 1), GOT],  # some of it went to a principal that gives
        [PAID, FEE, move("C", TREASURY, POOL, 1), GOT],  # passed on: the receiver gives
        [PAID, FEE, move("D", TREASURY, "SPSTRANGER", None), GOT],  # gives what cannot be read
        [PAID, move("C", WALLET, None, 1), GOT],  # burned: nobody was paid
        [PAID, FEE, GOT, move("D", POOL, WALLET)],  # two received
    ],
)
def test_what_may_be_more_than_a_fee_is_refused(moves: list[TransferEvent]) -> None:
    """A principal that received it gives something, or nobody who received anything does."""
    found = swap_of(moves_of_events(WALLET, moves))

    assert isinstance(found, NoSwap)
    assert found.code == "incomplete_events"


transfers = st.builds(
    move,
    st.sampled_from(["A", "B", "C"]),
    st.sampled_from([WALLET, POOL, TREASURY, None]),
    st.sampled_from([WALLET, POOL, TREASURY, VAULT]),
    st.integers(0, 3),
)


burns = st.builds(move, st.sampled_from(["A", "B"]), st.just(WALLET), st.none(), st.integers(0, 3))


@pytest.mark.slow
@given(st.lists(transfers | burns, max_size=10), st.randoms(use_true_random=False))
def test_fees_are_what_the_rule_says_in_any_order(moves: list[TransferEvent], rng: Any) -> None:
    """The same as the rule in plain words, and the order of the events does not matter."""
    found = swap_of(moves_of_events(WALLET, moves))
    shuffled = list(moves)
    rng.shuffle(shuffled)

    assert swap_of(moves_of_events(WALLET, shuffled)) == found
    assert (found if isinstance(found, Swap) else None) == by_plain_words(moves)


def by_plain_words(moves: list[TransferEvent]) -> Swap | None:
    real = [(m.asset, m.sender, m.recipient, m.amount or 0) for m in moves if m.amount]
    real = [m for m in real if m[1] != m[2]]
    change = {
        asset: sum(n for a, _, to, n in real if (a, to) == (asset, WALLET))
        - sum(n for a, by, _, n in real if (a, by) == (asset, WALLET))
        for asset in "ABC"
    }
    given_ = [asset for asset in "ABC" if change[asset] < 0]
    gotten = [asset for asset in "ABC" if change[asset] > 0]
    fees = []
    for asset in given_:
        receivers = [to for a, by, to, _ in real if (a, by) == (asset, WALLET)]
        if all(to is not None and not gives_anything(to, real) for to in receivers):
            fees.append(asset)
    main = given_ if len(given_) == 1 else [asset for asset in given_ if asset not in fees]
    if len(main) != 1 or len(gotten) != 1:
        return None
    rest = {asset: -change[asset] for asset in given_ if asset not in main}
    return Swap(main[0], -change[main[0]], gotten[0], change[gotten[0]], rest)


def gives_anything(principal: str, moves: list[tuple[str, str | None, str | None, int]]) -> bool:
    return any(by == principal and to is not None for _, by, to, _ in moves)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (None, None),
        ("none", None),
        ("(some 'SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B)", "SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B"),
        ("'SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B", "SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B"),
        ("(some 'SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B.v-1)", "SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B.v-1"),
        ("u5", None),
        ("(some u5)", None),
        ("(some '", None),
        ("(some 'SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17BX", None),
    ],
)
def test_the_provider_argument_is_decoded(argument: str | None, expected: str | None) -> None:
    """An optional principal is the address inside it, or none."""
    assert provider_of(argument) == expected
