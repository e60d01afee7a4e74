"""Recount the P&L of every agent from the file of a round, with the standard library alone: docs/round-file.md."""

import json
import sys
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

found: defaultdict[str, list[Any]] = defaultdict(list)
for line in Path(sys.argv[1]).read_bytes().split(b"\n")[:-1]:
    kind, *values = json.loads(line)
    found[kind].append(values)
[[header]] = found["header"]
rules = header["rules"]


def thin(price: dict[str, Any]) -> bool:
    """Whether the pools of a token hold or trade too little."""
    if price["source"] != "tenero":
        return False
    held, traded = price["liquidity_usd"], price["volume_usd"]
    if held is None:
        short = Fraction(rules["min_liquidity_usd"]) > 0 and price["token_id"] not in rules["core_tokens"]
    else:
        short = Fraction(held) < Fraction(rules["min_liquidity_usd"])
    return short or (traded is not None and Fraction(traded) < Fraction(rules["min_day_volume_usd"]))


def excessive(excess: dict[str, str | None]) -> bool:
    """Whether a swap was worth more than a pool of its tokens, or received more than five times what it gave."""
    gave, got = (None if (text := excess[f"{side}_usd"]) is None else Fraction(text) for side in ("given", "received"))
    pools = (excess["given_liquidity_usd"], excess["received_liquidity_usd"])
    for usd, pool in zip((gave, got), pools, strict=True):
        if usd is not None and pool is not None and usd > Fraction(pool):
            return True
    return gave is not None and got is not None and got > 5 * gave


worth = {p["token_id"]: Fraction(p["price_usd"]) / 10 ** p["decimals"] for [p] in found["price"] if not thin(p)}
left_out = {excess["txid"] for [excess] in found["excess"] if excessive(excess)}
agent_of = {agent["stx_address"]: agent["erc8004_agent_id"] for [agent] in found["agent"]}
pnl: defaultdict[int, Fraction] = defaultdict(Fraction)
for txid, sender, _, _, token_in, given, token_out, received, *_ in found["swap"]:
    if token_in in worth and token_out in worth and txid not in left_out:
        pnl[agent_of[sender]] += int(received) * worth[token_out] - int(given) * worth[token_in]
for [result] in found["result"]:
    right = pnl[result["erc8004_agent_id"]] == Fraction(result["pnl_usd"])
    print(result["rank"], result["stx_address"], result["pnl_usd"], "right" if right else "WRONG")  # noqa: T201 - its result
