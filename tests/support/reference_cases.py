"""The reference's own test cases, and a Hiro that sends what they contain, in v3 and `tx/multiple`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.scripted_fetch import Request, response
from tocsin.errors import FetchFailed
from tocsin.fetch import FetchResponse

DATA = Path(__file__).parent.parent / "data" / "competition"

PARSE_CASES = json.loads((DATA / "parse_cases.json").read_text())["cases"]
VERIFY_CASES = json.loads((DATA / "verify_cases.json").read_text())["cases"]

FEE = 3000
NOT_FOUND = response({"statusCode": 404, "error": "Not Found", "message": "Transaction not found"}, status=404)


def completed(tx: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case's transaction with the fields that Hiro always sends and the cases omit."""
    mined = {
        "canonical": True,
        "microblock_canonical": True,
        "block_height": 7_929_497,
        "block_hash": "0x" + "a1" * 32,
        "tx_index": 3,
        "event_count": len(tx.get("events") or []),
    }
    if tx["tx_status"] == "pending" or tx["tx_status"].startswith("dropped"):
        tx, mined = {k: v for k, v in tx.items() if k not in {"events", "burn_block_time"}}, {}
    events = [{"event_index": number, **event} for number, event in enumerate(tx.get("events") or [])]
    return {"fee_rate": str(FEE), "sponsored": False, **mined, **tx, "events": events}


def answering(case: Mapping[str, Any], request: Request) -> FetchResponse:
    """Return what Hiro would send: `case` is a case's `hiro` field."""
    if "network_error" in case:
        raise FetchFailed(case["network_error"])
    if case["status"] not in {200, 404}:
        return response({"error": "unavailable"}, status=case["status"])
    body = completed(case["body"]) if case["status"] == 200 else None
    path, _, query = request.url.partition("://")[2].partition("/")[2].partition("?")
    if "tx/multiple" in path:
        (txid,) = re.findall(r"tx_id=(0x[0-9a-f]{64})$", query)
        entry = {"found": True, "result": body} if body else {"found": False, "result": {"tx_id": txid}}
        return response({txid: entry})
    if body is None or body["tx_status"].startswith("dropped"):
        return NOT_FOUND
    if path.endswith("/balance-changes"):
        return response(_balance_changes(body))
    return response(_v3(body))


def _v3(body: Mapping[str, Any]) -> dict[str, Any]:
    block = (
        {"height": body["block_height"], "hash": body["block_hash"], "tx_index": body["tx_index"]}
        if "canonical" in body
        else None
    )
    return {
        "tx_id": body["tx_id"],
        "sender": {"address": body["sender_address"]},
        "sponsor": None,
        "fee_rate": body["fee_rate"],
        "block": block,
        "bitcoin_block": {"time": body["burn_block_time"]} if block else None,
        "status": body["tx_status"],
        "type": body["tx_type"],
        "contract_call": body.get("contract_call"),
    }


def _balance_changes(body: Mapping[str, Any]) -> dict[str, Any]:
    sums = {"stx": [FEE, 0]}
    for event in body["events"]:
        asset = event["asset"]
        sides = sums.setdefault(asset.get("asset_id", "stx"), [0, 0])
        sides[0] += int(asset["amount"]) * (asset["sender"] == body["sender_address"])
        sides[1] += int(asset["amount"]) * (asset["recipient"] == body["sender_address"])
    rows = [
        {
            "tx_id": body["tx_id"],
            "asset": {"type": "stx"} if asset == "stx" else {"type": "ft", "identifier": asset},
            "balance_change": {"sent": str(sent), "received": str(got), "net": str(got - sent)},
        }
        for asset, (sent, got) in sums.items()
    ]
    return {"total": len(rows), "limit": 50, "cursor": {"next": None}, "results": rows}
