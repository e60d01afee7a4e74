"""The swaps that a perfect sweep would find, from the generator's intent and never from events."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass

from stacks_simulator.chain_records import ChainTransaction, SimulatedCall

COMPETITION_START_S = 1_778_700_600


@dataclass(frozen=True, slots=True)
class Campaign:
    """The time in which swaps count, by burn block time in seconds: start inclusive, end exclusive."""

    start_s: int = COMPETITION_START_S
    end_s: int | None = None

    def covers(self, burn_time_s: int) -> bool:
        return self.start_s <= burn_time_s and (self.end_s is None or burn_time_s < self.end_s)


@dataclass(frozen=True, slots=True)
class TrueSwap:
    """A row that the `swaps` table must have, with its column names."""

    txid: str
    sender: str
    contract_id: str
    function_name: str
    token_in: str
    amount_in: int
    token_out: str
    amount_out: int
    burn_block_time: int
    block_height: int

    def as_json(self) -> dict[str, str | int]:
        """The row with its amounts as text, which is exact at any size."""
        return {**asdict(self), "amount_in": str(self.amount_in), "amount_out": str(self.amount_out)}


def true_swaps(
    transactions: Iterable[ChainTransaction],
    senders: Collection[str],
    allowlist: Mapping[str, Collection[str]],
    campaign: Campaign,
) -> list[TrueSwap]:
    """The canonical, successful, listed swaps of these senders in the campaign, oldest first."""
    rows = [row for tx in transactions if (row := _row(tx, senders, allowlist, campaign))]
    return sorted(rows, key=lambda row: (row.block_height, row.txid))


def _row(
    tx: ChainTransaction, senders: Collection[str], allowlist: Mapping[str, Collection[str]], campaign: Campaign
) -> TrueSwap | None:
    call, swap, block = tx.payload, tx.swap, tx.block
    if not isinstance(call, SimulatedCall) or swap is None or block is None:
        return None
    if tx.state != "mined" or tx.status != "success" or tx.sender not in senders:
        return None
    if call.function not in allowlist.get(call.contract, ()) or not campaign.covers(block.burn_time_s):
        return None
    return TrueSwap(
        tx.tx_id,
        tx.sender,
        call.contract,
        call.function,
        burn_block_time=block.burn_time_s,
        block_height=block.height,
        **asdict(swap),
    )
