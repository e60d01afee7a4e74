"""The model of the world knows which swap a list may have left out without a trace."""

import pytest

from simulation.machine import SimulatedTime
from simulation.outside import Outside
from simulation.plan import draw_plan


def test_a_swap_is_unseen_only_if_nothing_after_it_was_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later transaction of a wallet reveals an omitted one, if it was listed itself and in time."""
    time = SimulatedTime()
    outside = Outside(draw_plan(1, 1.0), time)
    time.now_s = 86_400.0
    outside.simulator.advance()
    wallet = outside.chain.wallets[0].address
    mined = [each for each in outside.chain.transactions.values() if each.sender == wallet and each.block]
    first, second, last = sorted(mined, key=lambda each: each.nonce)[-3:]

    def unseen(left_out: set[str], listed_s: float = 10.0**12) -> list[bool]:
        monkeypatch.setattr(outside, "may_be_left_out", left_out.__contains__)  # as a list may do
        return [outside.may_be_unseen(each.tx_id, listed_s) for each in (first, second, last)]

    assert unseen(set()) == [False, False, False]
    assert unseen({first.tx_id}) == [False, False, False]
    assert unseen({last.tx_id}) == [False, False, True]
    assert unseen({second.tx_id, last.tx_id}) == [False, True, True]
    assert unseen({first.tx_id, last.tx_id}) == [False, False, True]
    assert outside.may_be_unseen(first.tx_id, lowest=first.nonce) is False
    assert outside.may_be_unseen(first.tx_id, lowest=second.nonce) is True
    assert last.block is not None
    assert unseen({second.tx_id}, last.block.time_s) == [False, False, False]
    assert unseen({second.tx_id}, last.block.time_s - 1) == [False, True, False]
