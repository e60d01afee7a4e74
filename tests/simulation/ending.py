"""What must hold when all faults and all trades have ended for a while."""

from typing import TYPE_CHECKING

from simulation.earlier_service import check_kept_runs
from simulation.process import SimulatedProcess
from support.competition import as_rows, summed, sums_of
from tocsin.scheduler.health import health_of
from tocsin.swaps import store as totals

if TYPE_CHECKING:
    from simulation.history import History

_SWAPS = """
SELECT txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out, burn_block_time,
  block_height FROM swaps ORDER BY block_height, txid"""


async def check_ending(history: "History", process: SimulatedProcess) -> None:
    await history.look(process)
    await _complete(history, process)
    history.rounds.ending()
    await history.damage.check(process)
    history.damage.ending()
    check_kept_runs(history)
    status = await process.scheduler().status()
    await process.app.health.check()
    health = health_of(process.app.health.seen(), process.clock.now())
    if not health.ready or health.state != "ready":
        history.broken("readiness", f"after the calm it is {health.state}: {health.reasons} {health.notes}")
    history.site.ending(status, process.clock.now())
    receiver = history.outside.receiver
    if not receiver.says_ready and not receiver.given_up:
        history.broken("alerts", f"after the calm, the last of {receiver.taken} alerts says: not ready")
    held = {name: at for name, at in status.next_run_after.items() if at is not None}
    if held or any(status.consecutive_failures.values()):
        history.broken("back-off", f"after the calm: {held}, failures {status.consecutive_failures}")


async def _complete(history: "History", process: SimulatedProcess) -> None:
    outside = history.outside
    rows = [
        {**row, "amount_in": int(row["amount_in"]), "amount_out": int(row["amount_out"])}
        for row in (await process.db.prepare(_SWAPS).all()).results
    ]
    found = {row["txid"] for row in rows}
    # Swaps recorded while an agent was eligible stay after it loses eligibility.
    truth = [
        swap
        for swap in outside.truth(outside.demoted)
        if swap.txid in found or (swap.sender in outside.eligible and not outside.may_be_unseen(swap.txid))
    ]
    true = as_rows(truth)
    if rows != true:
        wanted = {row["txid"] for row in true}
        history.broken(
            "complete",
            f"missing {sorted(wanted - found)}, wrong {sorted(found - wanted)}, of {len(true)};"
            f" other values: {[row for row in rows if row['txid'] in wanted and row not in true][:3]}",
        )
    drift = await totals.drift(process.db)
    pairs = (await process.db.prepare("SELECT * FROM pair_totals").all()).results
    left_out = {row["txid"] for row in (await process.db.prepare("SELECT txid FROM excess_swaps").all()).results}
    if drift or summed(pairs) != sums_of([swap for swap in truth if swap.txid not in left_out]):
        history.broken("totals", f"they drift: {drift}")
    refused = (await process.db.prepare("SELECT txid, code FROM refusals").all()).results
    wrong = [row for row in refused if row["txid"] in {swap.txid for swap in truth}]
    if wrong:
        history.broken("refusals", f"refused, and true: {wrong}")
