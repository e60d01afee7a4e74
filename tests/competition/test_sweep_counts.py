"""Every way a queued transaction can end is counted in the sweep's counters, in the field meant for it."""

from pathlib import Path
from typing import Any

import pytest

from holdfast_testing.virtual_time import VirtualClock
from stacks_simulator.faults import SimulatedFault
from support.competition import CADENCE_MS, World, open_world
from support.simulated import quiet_simulator
from tocsin.swaps import store as swap_store
from tocsin.swaps.codes import Code
from tocsin.swaps.rules import Rules
from tocsin.swaps.store import Candidate
from tocsin.swaps.submit import SubmissionLane, submit
from tocsin.swaps.sweep import Sweep
from tocsin.swaps.verify import Verifier

REFUSED = {
    Code.TX_FAILED: "abort_by_response",
    Code.CONTRACT_NOT_ALLOWLISTED: "off_list_contract",
    Code.INCOMPLETE_EVENTS: "one_sided",
}
SENDERS = {Code.SENDER_NOT_REGISTERED: 9, Code.SENDER_NOT_GENESIS: 10}
# A malformed id is never queued, a database that fails ends the run, and an amount of more than 40 digits
# does not exist on the chain: `test_swap.py` has it. Only submissions have shares: `test_submission_lane.py`.
ELSEWHERE = {Code.MALFORMED_TXID, Code.DB_UNAVAILABLE, Code.INVALID_AMOUNT, Code.TOO_MANY_REQUESTS}
COUNTERS = {
    Code.TXID_ALREADY_VERIFIED: "alreadyKnown",
    Code.PENDING: "pending",
    Code.TX_NOT_FOUND: "pending",
    Code.TX_FETCH_FAILED: "failed",
}


async def queued(world: World, code: Code) -> tuple[str, Rules]:
    """A transaction that will end with this code, and the rules under which it does."""
    chain, rules = world.simulator.chain, world.rules
    if code is Code.TX_NOT_FOUND:
        return "0x" + "ab" * 32, rules
    if code is Code.MALFORMED_TX:
        tx = chain.transfer(chain.wallets[0], chain.wallets[1], 5)
    else:
        wait_ms = None if code is Code.PENDING else 0
        wallet = chain.wallets[SENDERS.get(code, 0)]
        tx = chain.swap(wallet, REFUSED.get(code, "simple"), wait_ms=wait_ms)
    if code is not Code.PENDING:
        chain.mine(tx)
        assert tx.block is not None
        if code is Code.BEFORE_COMP_START:
            rules = Rules(rules.allowlist, tx.block.burn_time_s + 1)
        if code is Code.AFTER_COMP_END:
            rules = Rules(rules.allowlist, rules.start_s - 1, tx.block.burn_time_s)
    if code is Code.TXID_ALREADY_VERIFIED:
        await submit(world.request(), rules, {"txid": tx.tx_id}, SubmissionLane())
    return tx.tx_id, rules


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(set(Code) - ELSEWHERE))
async def test_every_code_is_counted_where_it_belongs(
    code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction, one count; a refusal is named by its code, and only refusals are."""
    async with open_world(tmp_path, quiet_simulator(VirtualClock(), wallets=11)) as world:
        txid, rules = await queued(world, code)
        await world.db.batch(swap_store.enqueue(world.db, [Candidate(txid, "agent")], world.clock.now()))
        if code is Code.TX_FETCH_FAILED:
            world.simulator.faults.add(SimulatedFault(kind="truncated", path="tx/multiple"))
        if code is Code.VERIFY_THREW:

            async def broken(*_: Any) -> None:
                raise ZeroDivisionError

            monkeypatch.setattr(Verifier, "verify", broken)
        run = Sweep(world.run(), rules, cadence_ms=CADENCE_MS)
        await run.prepare()
        await run.verify_queued()  # the queue alone: the lists would find it too
        counters = run.counters()

    counter = COUNTERS.get(code, "rejected")
    counted = {name: counters[name] for name in ("rejected", "pending", "failed", "alreadyKnown")}
    expected = dict.fromkeys(counted, 0) | {counter: 1}
    if code is Code.VERIFY_THREW:
        expected["failed"] = 1  # it stays queued, and is tried again
    assert counted == expected
    assert counters["rejectionReasons"] == ({str(code): 1} if counter == "rejected" else {})
