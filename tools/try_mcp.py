"""Ask a running service like an agent, with the official client of the Model Context Protocol: `make mcp`.

This needs a running service, such as `make demo`, at TOCSIN_URL. It prints the answer to each question.
"""

import asyncio
import json
import os
import sys
import urllib.request
from typing import Any

from mcp import Client

URL = os.environ.get("TOCSIN_URL", "http://127.0.0.1:8787").rstrip("/")
UNKNOWN = "0x" + "ab" * 32


def get(path: str) -> Any:
    with urllib.request.urlopen(f"{URL}{path}", timeout=10) as response:
        return json.load(response)


async def main() -> int:
    trade = get("/api/competition/trades?limit=1")["trades"][0]
    questions: list[tuple[str, str, dict[str, str], str]] = [
        ("Is the service up to date?", "status", {}, "service"),
        ("What is my rank?", "rank", {"address": trade["sender"]}, "ranks"),
        ("What is missing before my swaps count?", "rank", {"address": trade["sender"]}, "missing"),
        ("Does this transaction count?", "explain", {"txid": trade["txid"]}, "status"),
        ("Why does this one not count?", "explain", {"txid": UNKNOWN}, "code"),
        ("Is this contract allowed?", "allow_list", {"contract_id": trade["contract_id"]}, "allowed"),
        ("Which contracts are allowed?", "allow_list", {}, "total_contracts"),
        ("Count my trade.", "submit", {"txid": trade["txid"]}, "code"),
    ]
    async with Client(f"{URL}/mcp") as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        print(f"{URL}/mcp offers {', '.join(tools)}")
        for question, tool, arguments, field in questions:
            result = await client.call_tool(tool, arguments)
            content = result.structured_content or {}
            if field not in content:
                print(f"{question} {tool} answered without {field}: {content}")
                return 1
            print(f"{question:40} {tool:12} {field}: {json.dumps(content[field])[:90]}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
