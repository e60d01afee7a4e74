"""Rows of Hiro's v1 endpoints, and Clarity values as Hiro shows them: the serialized hex and the readable form."""

from datetime import UTC, datetime
from typing import Any, TypeAlias

from stacks_simulator.addresses import decode_address
from stacks_simulator.chain import BURN_BLOCK_S
from stacks_simulator.chain_records import (
    NO_MICROBLOCK,
    STX_KIND,
    AssetEvent,
    CallArgument,
    ChainEvent,
    ChainTransaction,
    ContractLogEvent,
    NftEvent,
    TenureChange,
    TokenTransfer,
)

ClarityValue: TypeAlias = dict[str, str]
HiroRow: TypeAlias = dict[str, Any]


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


def transaction(tx: ChainTransaction, events: slice = slice(0), *, function_args: bool = True) -> HiroRow:
    """A transaction as v1 shows it: mined (on the chain or on a fork), waiting, or dropped."""
    if tx.state in {"mempool", "dropped"}:
        return _in_mempool(tx)
    name = "v1" if function_args else "v1-no-args"
    if name not in tx.rendered:
        tx.rendered[name] = _mined(tx, function_args=function_args)
    row: HiroRow = tx.rendered[name]
    selected = tx.events[events]
    if not selected:
        return row
    first = events.start or 0
    return {**row, "events": [event_row(event, first + n, tx.tx_id) for n, event in enumerate(selected)]}


def with_transfers(tx: ChainTransaction, principal: str, *, function_args: bool) -> HiroRow:
    """A transaction and its transfers to or from one principal, the newest first."""
    key = "v1-transfers:" + principal + str(function_args)
    if key not in tx.rendered:
        transfers = [
            event
            for event in reversed(tx.events)
            if not isinstance(event, ContractLogEvent) and principal in {event.sender, event.recipient}
        ]
        sent, received = tx.balance_changes(principal).get((STX_KIND, "stx"), (0, 0))
        if tx.sponsor and principal == tx.sender:
            sent += tx.fee  # v1 counts the fee for the sender even when the sponsor pays it
        assets = [event for event in transfers if isinstance(event, AssetEvent)]
        tx.rendered[key] = {
            "tx": transaction(tx, function_args=function_args),
            "stx_sent": str(sent),
            "stx_received": str(received),
            "stx_transfers": [_leg(event) for event in assets if event.asset == "stx"],
            "ft_transfers": [
                {"asset_identifier": event.asset, **_leg(event)} for event in assets if event.asset != "stx"
            ],
            "nft_transfers": [
                {"asset_identifier": event.asset, "value": uint(event.item), **_sides(event)}
                for event in transfers
                if isinstance(event, NftEvent)
            ],
        }
    row: HiroRow = tx.rendered[key]
    return row


def event_row(event: ChainEvent, index: int, tx_id: str) -> HiroRow:
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


def iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _base(tx: ChainTransaction) -> HiroRow:
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


def _mined(tx: ChainTransaction, *, function_args: bool) -> HiroRow:
    block = tx.block
    assert block is not None, "only a transaction that was mined is rendered as mined"
    parent_burn_s = block.burn_time_s - BURN_BLOCK_S
    return {
        **_base(tx),
        "block_hash": block.hash,
        "parent_block_hash": block.parent_hash,
        "block_height": block.height,
        "block_time": block.time_s,
        "block_time_iso": iso(block.time_s),
        "burn_block_time": block.burn_time_s,
        "burn_block_time_iso": iso(block.burn_time_s),
        "burn_block_height": block.burn_height,
        "parent_burn_block_time": parent_burn_s,
        "parent_burn_block_time_iso": iso(parent_burn_s),
        "canonical": tx.state == "mined",
        "is_unanchored": False,
        "microblock_hash": "0x",
        "microblock_sequence": NO_MICROBLOCK,
        "microblock_canonical": True,
        "tx_index": tx.index,
        "tx_status": tx.status,
        "tx_result": result(tx),
        "event_count": len(tx.events),
        "events": [],
        "execution_cost_read_count": 30,
        "execution_cost_read_length": 90_000,
        "execution_cost_runtime": 120_000,
        "execution_cost_write_count": 8,
        "execution_cost_write_length": 300,
        "vm_error": None,
        **_payload(tx, mined=True, function_args=function_args),
    }


def _in_mempool(tx: ChainTransaction) -> HiroRow:
    received_s = tx.received_ms // 1000
    return {
        **_base(tx),
        "tx_status": tx.status,
        "replaced_by_tx_id": tx.replaced_by,
        "receipt_time": received_s,
        "receipt_time_iso": iso(received_s),
        **_payload(tx, mined=False, function_args=True),
    }


def result(tx: ChainTransaction) -> ClarityValue:
    if tx.status in {"success", "abort_by_post_condition"}:
        return ok_uint(tx.swap.amount_out if tx.swap else 1)
    return err_uint(1)


def _payload(tx: ChainTransaction, *, mined: bool, function_args: bool) -> HiroRow:
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
        call["function_args"] = [argument_row(argument) for argument in arguments]
    return {"tx_type": "contract_call", "contract_call": call}


def argument_row(argument: CallArgument) -> HiroRow:
    if isinstance(argument.value, int):
        return {**uint(argument.value), "name": argument.name, "type": "uint"}
    return {**optional_principal(argument.value), "name": argument.name, "type": "(optional principal)"}


def _leg(event: AssetEvent) -> HiroRow:
    return {"amount": str(event.amount), **_sides(event)}


def _sides(event: AssetEvent | NftEvent) -> HiroRow:
    """Return the sender and the recipient. A mint has no sender field and a burn no recipient field."""
    sides = {"sender": event.sender, "recipient": event.recipient}
    return {name: address for name, address in sides.items() if address}
