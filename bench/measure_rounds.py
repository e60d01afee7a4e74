"""Measure closing a round of a million swaps by 1,000 agents, and recounting it.

`python bench/measure_rounds.py [--swaps 1000000] [--times 3]`. Each figure is the best of several: wall time, and
processor time, which is more reliable on a shared machine.
"""

import argparse
import gc
import hashlib
import random
import time
from collections.abc import Callable
from typing import TypeVar

from tocsin.rounds.file import file_lines, lines_of, parts_of, read_round_file
from tocsin.rounds.round import RoundAgent, RoundInputs, RoundPrice, RoundRules, RoundSwap
from tocsin.rounds.score import score

T = TypeVar("T")

AGENTS = 1_000
STARTS_AT, ENDS_AT = 1_778_700_000, 1_779_304_800
POOL = "SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR.xyk-swap-helper-v-1-3"
TOKENS = (
    "stx",
    "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token",
    "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx",
    "SP3NE50GEXFG9SZGTT51P40X2CKYSZ5CC4ZTZ7A2G.welshcorgicoin-token::welshcorgicoin",
    "SP1AY6K3PQV5MRT6R4S671NWW2FRVPKM0BR162CT6.leo-token::leo",
)


def competition(swaps: int, seed: int = 1) -> RoundInputs:
    """Inputs as a database gives them: rows in the order of the chain."""
    chance = random.Random(seed)
    agents = [RoundAgent(f"SP{number:039d}", f"bc1{number:039d}", number) for number in range(AGENTS)]
    prices = [
        RoundPrice(token, price, decimals, "tenero", ENDS_AT * 1000, "500000", "20000")
        for token, price, decimals in zip(
            TOKENS, ("0.8512345678", "97321.12", "1", "0.00041327", "0.0000012"), (6, 8, 6, 6, 6), strict=True
        )
    ]
    rows = []
    for number in range(swaps):
        token_in, token_out = chance.sample(TOKENS, 2)
        rows.append(
            RoundSwap(
                *(f"0x{chance.getrandbits(256):064x}", agents[chance.randrange(AGENTS)].stx_address),
                *(POOL, "swap-helper-a", token_in, str(chance.randrange(1, 10**9)), token_out),
                amount_out=str(chance.randrange(1, 10**9)),
                burn_block_time=STARTS_AT + number * 604_800 // swaps,
                block_height=1_000_000 + number // 10,
                tx_index=number % 10,
                source="cron",
            )
        )
    rules = RoundRules("week-1", STARTS_AT, ENDS_AT, ENDS_AT + 3600)
    return RoundInputs(rules, "2026-05", 1_000_000 + swaps // 10, agents, prices, rows)


def best(name: str, times: int, work: Callable[[], T]) -> T:
    took: list[tuple[float, float]] = []
    results: list[T] = []
    for _ in range(times):
        results.clear()
        gc.collect()
        began, used = time.perf_counter(), time.process_time()
        results.append(work())
        took.append((time.perf_counter() - began, time.process_time() - used))
    by_clock, of_processor = (min(figures) for figures in zip(*took, strict=True))
    print(f"{name:<44} {by_clock:6.2f} s, {of_processor:6.2f} s of CPU")
    return results[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    inputs = competition(asked.swaps)
    gc.freeze()  # as in a process that read them from its database: garbage collections skip them
    outcome = best("score", asked.times, lambda: score(inputs))
    parts = best(
        "write the file, with its digest, in parts", asked.times, lambda: [*parts_of(file_lines(inputs, outcome))]
    )
    content = [part.encode() for part in parts]
    best("  of which the digest", asked.times, lambda: [hashlib.sha256(part).digest() for part in content])
    print(f"the file: {sum(map(len, content)) / 1e6:.0f} MB in {len(parts)} parts")
    file = best("read the file, with its digest", asked.times, lambda: read_round_file(lines_of("".join(parts))))
    best("recount: read, score and write again", 1, lambda: recounted(parts))
    assert file.outcome == outcome


def recounted(parts: list[str]) -> None:
    file = read_round_file(lines_of("".join(parts)))
    assert [*parts_of(file_lines(file.inputs, score(file.inputs)))] == parts


if __name__ == "__main__":
    main()
