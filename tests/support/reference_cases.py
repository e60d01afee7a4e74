"""The reference's own test cases, and a Hiro that sends what they contain, from `tx/multiple`."""

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
    return {"fee_rate": "3000", "sponsored": False, **mined, **tx, "events": events}


def answering(case: Mapping[str, Any], request: Request) -> FetchResponse:
    """Return what Hiro would send: `case` is a case's `hiro` field."""
    if "network_error" in case:
        raise FetchFailed(case["network_error"])
    if case["status"] not in {200, 404}:
        return response({"error": "unavailable"}, status=case["status"])
    body = completed(case["body"]) if case["status"] == 200 else None
    (txid,) = re.findall(r"/tx/multiple\?.*tx_id=(0x[0-9a-f]{64})$", request.url)
    entry = {"found": True, "result": body} if body else {"found": False, "result": {"tx_id": txid}}
    return response({txid: entry})
