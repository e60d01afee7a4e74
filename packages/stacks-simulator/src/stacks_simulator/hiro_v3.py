"""Rows of Hiro's v3 endpoints."""

from collections.abc import Collection

from stacks_simulator.chain_records import (
    FT_KIND,
    NFT_KIND,
    STX_KIND,
    AssetEvent,
    AssetKey,
    Block,
    ChainEvent,
    ChainTransaction,
    ContractLogEvent,
    NftEvent,
    SimulatedCall,
    TenureChange,
)
from stacks_simulator.hiro_v1 import HiroRow, action_tuple, argument_row, result, uint

ASSET_TYPES = {STX_KIND: "stx", FT_KIND: "ft", NFT_KIND: "nft"}
INCLUDES = ("function_args", "post_conditions", "source_code", "result")


def transaction(tx: ChainTransaction, include: Collection[str]) -> HiroRow:
    """One transaction, with the optional fields that were requested."""
    row = {**(summary(tx) if tx.state == "mined" else _in_mempool(tx))}
    if "post_conditions" in include:
        row["post_conditions"] = []
    if "function_args" in include and isinstance(tx.payload, SimulatedCall):
        rows = [argument_row(argument) for argument in tx.payload.arguments]
        arguments = [{"hex": row["hex"], "repr": row["repr"]} for row in rows]
        row["contract_call"] = {**row["contract_call"], "function_args": arguments}
    if tx.state != "mined":
        return row
    if "result" in include:
        row["result"] = result(tx)
    block = _block(tx)
    return {
        **row,
        "parent_block": {"hash": block.parent_hash, "index_hash": block.parent_index_hash},
        "event_count": len(tx.events),
        "execution_cost": {
            "read_count": 30,
            "read_length": 90_000,
            "runtime": 120_000,
            "write_count": 8,
            "write_length": 300,
        },
        "vm_error": None,
    }


def summary(tx: ChainTransaction) -> HiroRow:
    """A mined transaction as every list shows it."""
    if "v3" not in tx.rendered:
        block = _block(tx)
        tx.rendered["v3"] = {
            **_parties(tx),
            "block": {
                "height": block.height,
                "hash": block.hash,
                "index_hash": block.index_hash,
                "time": block.time_s,
                "tx_index": tx.index,
            },
            "bitcoin_block": {"height": block.burn_height, "time": block.burn_time_s},
            "status": tx.status,
            **_payload(tx),
        }
    row: HiroRow = tx.rendered["v3"]
    return row


def principal_transaction(tx: ChainTransaction, principal: str) -> HiroRow:
    """A row of a principal's list: the transaction's summary and its effect on the principal."""
    key = "v3:" + principal
    if key not in tx.rendered:
        changes = tx.balance_changes(principal)
        sent, received = changes.get((STX_KIND, "stx"), (0, 0))
        kinds = {kind for kind, _ in changes}
        tx.rendered[key] = {
            "transaction": summary(tx),
            "involvement": _involvement(tx, principal),
            "balance_changes": {"stx": _change(sent, received)},
            "affected_balances": {"stx": STX_KIND in kinds, "ft": FT_KIND in kinds, "nft": NFT_KIND in kinds},
        }
    row: HiroRow = tx.rendered[key]
    return row


def balance_change(asset: AssetKey, sent: int, received: int) -> HiroRow:
    kind, identifier = asset
    asset_row = {"type": ASSET_TYPES[kind]}
    if kind != STX_KIND:
        asset_row["identifier"] = identifier
    return {"asset": asset_row, "balance_change": _change(sent, received)}


def event_row(event: ChainEvent, index: int) -> HiroRow:
    if isinstance(event, ContractLogEvent):
        log = {"contract_id": event.contract, "topic": "print", "value": action_tuple(event.action)}
        return {"event_index": index, "type": "contract_log", "contract_log": log}
    asset: HiroRow = {"type": event.action}
    if event.sender:
        asset["sender"] = event.sender
    if event.recipient:
        asset["recipient"] = event.recipient
    if isinstance(event, NftEvent):
        name = "nft_asset"
        asset |= {"asset_identifier": event.asset, "value": uint(event.item)}
    else:
        name = "stx_asset" if event.asset == "stx" else "ft_asset"
        asset |= _amount(event)
    return {"event_index": index, "type": name, name: asset}


def _amount(event: AssetEvent) -> HiroRow:
    if event.asset != "stx":
        return {"asset_identifier": event.asset, "amount": str(event.amount)}
    memo = {"memo": None} if event.action == "transfer" else {}
    return {"amount": str(event.amount), **memo}


def _in_mempool(tx: ChainTransaction) -> HiroRow:
    return {
        **_parties(tx),
        "receipt_time": tx.received_ms // 1000,
        "receipt_block_height": tx.received_height,
        "status": tx.status,
        **_payload(tx),
        "replaced_by_tx_id": tx.replaced_by,
    }


def _parties(tx: ChainTransaction) -> HiroRow:
    sponsor = {"address": tx.sponsor, "nonce": tx.sponsor_nonce} if tx.sponsor else None
    sender = {"address": tx.sender, "nonce": tx.nonce}
    return {"tx_id": tx.tx_id, "sender": sender, "sponsor": sponsor, "fee_rate": str(tx.fee)}


def _payload(tx: ChainTransaction) -> HiroRow:
    if isinstance(tx.payload, SimulatedCall):
        call = {"contract_id": tx.payload.contract, "function_name": tx.payload.function}
        return {"type": "contract_call", "contract_call": call}
    if isinstance(tx.payload, TenureChange):
        return {"type": "tenure_change", "tenure_change": {"cause": "block_found"}}
    transfer = {"recipient": tx.payload.recipient, "amount": str(tx.payload.amount), "memo": None}
    return {"type": "token_transfer", "token_transfer": transfer}


def _involvement(tx: ChainTransaction, principal: str) -> str:
    if principal == tx.sender:
        return "sender"
    return "sponsor" if principal == tx.sponsor else "affected"


def _change(sent: int, received: int) -> HiroRow:
    return {"sent": str(sent), "received": str(received), "net": str(received - sent)}


def _block(tx: ChainTransaction) -> Block:
    assert tx.block is not None, "only a transaction that was mined is rendered as mined"
    return tx.block
