"""Rows of Hiro's v1 and v3 endpoints.

Hiro shows a Clarity value in two forms: the serialized hex and the readable one.
"""

from datetime import UTC, datetime
from typing import Any, TypeAlias

from stacks_simulator.addresses import decode_address
from stacks_simulator.chain import BURN_BLOCK_S
from stacks_simulator.chain_records import (
    FT_KIND,
    NFT_KIND,
    NO_MICROBLOCK,
    STX_KIND,
    AssetKey,
    Block,
    CallArgument,
    ChainEvent,
    ChainTransaction,
    ContractLogEvent,
    NftEvent,
    SimulatedCall,
    TenureChange,
    TokenTransfer,
)

ClarityValue: TypeAlias = dict[str, str]
HiroRow: TypeAlias = dict[str, Any]

ASSET_TYPES = {STX_KIND: "stx", FT_KIND: "ft", NFT_KIND: "nft"}


def uint(value: int) -> ClarityValue:
    return {"hex": "0x01" + f"{value:032x}", "repr": f"u{value}"}


def ok_uint(value: int) -> ClarityValue:
    return {"hex": "0x07" + uint(value)["hex"][2:], "repr": f"(ok u{value})"}


def err_uint(value: int) -> ClarityValue:
    return {"hex": "0x08" + uint(value)["hex"][2:], "repr": f"(err u{value})"}


def optional_principal(address: str | None) -> ClarityValue:
    if address is None:
        return {"hex": "0x09", "repr": "none"}
    version, hash160 = decode_address(address)
    principal = f"05{version:02x}{hash160.hex()}"
    return {"hex": "0x0a" + principal, "repr": f"(some '{address})"}


def action_tuple(action: str) -> ClarityValue:
    """`(tuple (action "…"))`, which swap contracts print."""
    name, text = b"action", action.encode("ascii")
    head = f"0x0c00000001{len(name):02x}{name.hex()}"
    return {"hex": f"{head}0d{len(text):08x}{text.hex()}", "repr": f'(tuple (action "{action}"))'}


# v1


def v1_transaction(tx: ChainTransaction, events: slice = slice(0), *, function_args: bool = True) -> HiroRow:
    """A transaction as v1 shows it: mined (on the chain or on a fork), waiting, or dropped."""
    if tx.state in {"mempool", "dropped"}:
        return _v1_in_mempool(tx)
    name = "v1" if function_args else "v1-no-args"
    if name not in tx.rendered:
        tx.rendered[name] = _v1_mined(tx, function_args=function_args)
    row: HiroRow = tx.rendered[name]
    selected = tx.events[events]
    if not selected:
        return row
    first = events.start or 0
    return {**row, "events": [_v1_event(event, first + n, tx.tx_id) for n, event in enumerate(selected)]}


def _v1_event(event: ChainEvent, index: int, tx_id: str) -> HiroRow:
    if isinstance(event, ContractLogEvent):
        log = {"contract_id": event.contract, "topic": "print", "value": action_tuple(event.action)}
        return {"event_index": index, "event_type": "smart_contract_log", "tx_id": tx_id, "contract_log": log}
    asset: HiroRow = {"asset_event_type": event.action, "sender": event.sender, "recipient": event.recipient}
    if isinstance(event, NftEvent):
        event_type = "non_fungible_token_asset"
        asset |= {"asset_id": event.asset, "value": uint(event.item)}
    elif event.asset == "stx":
        event_type = "stx_asset"
        asset |= {"amount": str(event.amount)}
    else:
        event_type = "fungible_token_asset"
        asset |= {"asset_id": event.asset, "amount": str(event.amount)}
    return {"event_index": index, "event_type": event_type, "tx_id": tx_id, "asset": asset}


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _v1_base(tx: ChainTransaction) -> HiroRow:
    base: HiroRow = {
        "tx_id": tx.tx_id,
        "nonce": tx.nonce,
        "fee_rate": str(tx.fee),
        "sender_address": tx.sender,
        "sponsored": tx.sponsor is not None,
        "post_condition_mode": "deny",
        "post_conditions": [],
        "anchor_mode": "any",
    }
    if tx.sponsor is not None:
        base |= {"sponsor_nonce": tx.sponsor_nonce, "sponsor_address": tx.sponsor}
    return base


def _v1_mined(tx: ChainTransaction, *, function_args: bool) -> HiroRow:
    block = _block(tx)
    parent_burn_s = block.burn_time_s - BURN_BLOCK_S
    return {
        **_v1_base(tx),
        "block_hash": block.hash,
        "parent_block_hash": block.parent_hash,
        "block_height": block.height,
        "block_time": block.time_s,
        "block_time_iso": _iso(block.time_s),
        "burn_block_time": block.burn_time_s,
        "burn_block_time_iso": _iso(block.burn_time_s),
        "burn_block_height": block.burn_height,
        "parent_burn_block_time": parent_burn_s,
        "parent_burn_block_time_iso": _iso(parent_burn_s),
        "canonical": tx.state == "mined",
        "is_unanchored": False,
        "microblock_hash": "0x",
        "microblock_sequence": NO_MICROBLOCK,
        "microblock_canonical": True,
        "tx_index": tx.index,
        "tx_status": tx.status,
        "tx_result": _result(tx),
        "event_count": len(tx.events),
        "events": [],
        "execution_cost_read_count": 30,
        "execution_cost_read_length": 90_000,
        "execution_cost_runtime": 120_000,
        "execution_cost_write_count": 8,
        "execution_cost_write_length": 300,
        "vm_error": None,
        **_v1_payload(tx, mined=True, function_args=function_args),
    }


def _v1_in_mempool(tx: ChainTransaction) -> HiroRow:
    received_s = tx.received_ms // 1000
    return {
        **_v1_base(tx),
        "tx_status": tx.status,
        "replaced_by_tx_id": tx.replaced_by,
        "receipt_time": received_s,
        "receipt_time_iso": _iso(received_s),
        **_v1_payload(tx, mined=False, function_args=True),
    }


def _result(tx: ChainTransaction) -> ClarityValue:
    if tx.status in {"success", "abort_by_post_condition"}:
        return ok_uint(tx.swap.amount_out if tx.swap else 1)
    return err_uint(1)


def _v1_payload(tx: ChainTransaction, *, mined: bool, function_args: bool) -> HiroRow:
    if isinstance(tx.payload, TenureChange):
        return {"tx_type": "tenure_change", "tenure_change_payload": {"cause": "block_found"}}
    if isinstance(tx.payload, TokenTransfer):
        memo = "0x" + "00" * 34
        transfer = {"recipient_address": tx.payload.recipient, "amount": str(tx.payload.amount), "memo": memo}
        return {"tx_type": "token_transfer", "token_transfer": transfer}
    call: HiroRow = {
        "contract_id": tx.payload.contract,
        "function_name": tx.payload.function,
        "function_signature": f"(define-public ({tx.payload.function} ...))" if mined else "",
    }
    if function_args:
        # Hiro joins the contract's interface, and with it the arguments, only to a mined transaction.
        arguments = tx.payload.arguments if mined else ()
        call["function_args"] = [_argument(argument) for argument in arguments]
    return {"tx_type": "contract_call", "contract_call": call}


def _argument(argument: CallArgument) -> HiroRow:
    if isinstance(argument.value, int):
        return {**uint(argument.value), "name": argument.name, "type": "uint"}
    return {**optional_principal(argument.value), "name": argument.name, "type": "(optional principal)"}


# v3


def v3_summary(tx: ChainTransaction) -> HiroRow:
    """A mined transaction as every list shows it."""
    if "v3" not in tx.rendered:
        block = _block(tx)
        tx.rendered["v3"] = {
            "tx_id": tx.tx_id,
            "sender": {"address": tx.sender, "nonce": tx.nonce},
            "sponsor": {"address": tx.sponsor, "nonce": tx.sponsor_nonce} if tx.sponsor else None,
            "fee_rate": str(tx.fee),
            "block": {
                "height": block.height,
                "hash": block.hash,
                "index_hash": block.index_hash,
                "time": block.time_s,
                "tx_index": tx.index,
            },
            "bitcoin_block": {"height": block.burn_height, "time": block.burn_time_s},
            "status": tx.status,
            **_v3_payload(tx),
        }
    row: HiroRow = tx.rendered["v3"]
    return row


def v3_principal_transaction(tx: ChainTransaction, principal: str) -> HiroRow:
    """A row of a principal's list: the transaction's summary and its effect on the principal."""
    key = "v3:" + principal
    if key not in tx.rendered:
        changes = tx.balance_changes(principal)
        sent, received = changes.get((STX_KIND, "stx"), (0, 0))
        kinds = {kind for kind, _ in changes}
        tx.rendered[key] = {
            "transaction": v3_summary(tx),
            "involvement": _involvement(tx, principal),
            "balance_changes": {"stx": _change(sent, received)},
            "affected_balances": {"stx": STX_KIND in kinds, "ft": FT_KIND in kinds, "nft": NFT_KIND in kinds},
        }
    row: HiroRow = tx.rendered[key]
    return row


def v3_balance_change(tx: ChainTransaction, asset: AssetKey, sent: int, received: int) -> HiroRow:
    kind, identifier = asset
    asset_row = {"type": ASSET_TYPES[kind]}
    if kind != STX_KIND:
        asset_row["identifier"] = identifier
    return {"tx_id": tx.tx_id, "asset": asset_row, "balance_change": _change(sent, received)}


def _v3_payload(tx: ChainTransaction) -> HiroRow:
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
