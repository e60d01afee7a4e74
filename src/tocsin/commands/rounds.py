"""`tocsin round …`: rounds of the running service, which closes, captures and finalizes them itself."""

import re
import time
from collections.abc import Callable
from typing import Annotated

import typer

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.commands.options import AsJson, Connect, Reason, calls_service, print_answer, with_options

PATH = "/api/admin/competition/finalize"

_NO_GRACE = re.compile(r"\s*0+\s*(ms|s|m|h|d)?\s*")

app = typer.Typer(no_args_is_help=True, help="Add, show, close, correct and pay rounds.")

RoundId = Annotated[str, typer.Argument(metavar="ROUND", help="Such as week-1-2026-05-13.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Show the result without writing anything.")]
Grace = Annotated[str, typer.Option(help="How long to look for swaps after the end.", metavar="DURATION")]
MinVolume = Annotated[str, typer.Option(help="Volume in USD required for the return prize.")]
MinTrades = Annotated[int, typer.Option(help="Priced trades required for the return prize.")]
Reward = Annotated[
    list[str] | None, typer.Option(help="overall_pnl=50000, volume=…, return=…: sats.", metavar="CATEGORY=SATS")
]


def acts(command: Callable[..., dict[str, JSON]]) -> Callable[..., None]:
    """Make a command of a function that returns an action: it gets its options, and prints the answer."""

    def run(
        connect: Connect, *, dry_run: Dry = False, reason: Reason = None, as_json: AsJson = False, **given: object
    ) -> None:
        from tocsin.commands import render
        from tocsin.rounds.round import RoundAnswer

        action = command(**given)
        if reason is not None:
            action["reason"] = reason
        client = connect()
        answer = client.send(PATH, action, {"dry-run": "true"} if dry_run else {})
        print_answer(answer, as_json, render.done(client.read(RoundAnswer, answer)))

    return calls_service(with_options(run, command))


@app.command()
@acts
def add(
    round_id: RoundId,
    start: Annotated[str, typer.Option(help="2026-05-13T00:00Z, or unix ms.", metavar="TIME")],
    end: Annotated[str, typer.Option(help="Like the start; not part of the round.", metavar="TIME")],
    grace: Grace = "1h",
    min_volume: MinVolume = "50",
    min_trades: MinTrades = 3,
    reward: Reward = None,
) -> dict[str, JSON]:
    """Add a round."""
    times: dict[str, JSON] = {"startsAt": _seconds(start), "endsAt": _seconds(end)}
    return {"action": "add", "roundId": round_id, **times, **_ruled(grace, min_volume, min_trades, reward)}


@app.command()
@acts
def every(
    period: Annotated[str | None, typer.Argument(help="Such as 7d; omit it with --end.")] = None,
    start: Annotated[
        str | None, typer.Option(help="When the first round starts: 2026-05-13T00:00Z.", metavar="TIME")
    ] = None,
    prefix: Annotated[str, typer.Option(help="The first part of each id.")] = "week",
    number: Annotated[int, typer.Option(help="The number of the first round.")] = 1,
    grace: Grace = "1h",
    min_volume: MinVolume = "50",
    min_trades: MinTrades = 3,
    reward: Reward = None,
    end: Annotated[bool, typer.Option("--end", help="Add no further rounds.")] = False,
) -> dict[str, JSON]:
    """Set a rule that adds rounds one after another: `tocsin round every 7d --start 2026-05-13T00:00Z`."""
    if end:
        return {"action": "rule", "end": True}
    if period is None or start is None:
        raise UsageError("Give a period and a start: `tocsin round every 7d --start 2026-05-13T00:00Z`, or --end.")
    return {
        "action": "rule",
        "firstStartsAt": _seconds(start),
        "periodS": _duration_s(period),
        "prefix": prefix,
        "firstNumber": number,
        **_ruled(grace, min_volume, min_trades, reward),
    }


@app.command("list")
@calls_service
def list_(connect: Connect, as_json: AsJson = False) -> None:
    """List all rounds, newest first, and what each waits for."""
    from tocsin.commands import render
    from tocsin.rounds.round import RoundList

    client = connect()
    answer = client.get(PATH, keyed=True)
    print_answer(answer, as_json, render.rounds(client.read(RoundList, answer)))


@app.command()
@calls_service
def show(connect: Connect, round_id: RoundId, as_json: AsJson = False) -> None:
    """Show the result of a round as visitors see it, or when it ends."""
    from urllib.parse import quote

    from tocsin.board.types import Curves
    from tocsin.commands import render
    from tocsin.rounds.round import RoundDetail

    client = connect()
    answer = client.get(f"/api/competition/rounds/{quote(round_id, safe='')}")
    detail = client.read(RoundDetail, answer)
    agents = client.read(Curves, client.get("/api/competition/curves")).agents if detail.results else []
    names = {agent.erc8004_agent_id: agent.display_name for agent in agents}
    print_answer(answer, as_json, render.detail(detail, time.time_ns() // 1_000_000_000, names))


@app.command()
@acts
def close(round_id: RoundId) -> dict[str, JSON]:
    """Close a round whose grace is over, without waiting for the scheduler."""
    return {"action": "close", "roundId": round_id}


@app.command()
@acts
def snapshot(
    round_id: RoundId,
    force: Annotated[bool, typer.Option("--force", help="Capture even if the record is incomplete.")] = False,
) -> dict[str, JSON]:
    """Capture the agents, swaps and prices of the end of a closed round."""
    return {"action": "snapshot", "roundId": round_id, **({"force": True} if force else {})}


@app.command()
@acts
def finalize(round_id: RoundId) -> dict[str, JSON]:
    """Write the result of a captured round. With --dry-run, the round may still be running."""
    return {"action": "finalize", "roundId": round_id}


@app.command()
@acts
def void(round_id: RoundId) -> dict[str, JSON]:
    """Void a round: it will have no result. Needs a reason."""
    return {"action": "void", "roundId": round_id}


@app.command()
@acts
def reopen(round_id: RoundId) -> dict[str, JSON]:
    """Have the result of a round computed again, as its next version. Needs a reason."""
    return {"action": "reopen", "roundId": round_id}


@app.command()
@acts
def price(
    round_id: RoundId,
    token: Annotated[str, typer.Argument(help="stx, or SP….contract::asset.")],
    usd: Annotated[str, typer.Argument(help="Such as 0.85.")],
    decimals: Annotated[int | None, typer.Option(help="The token's decimals, if it has never had a price.")] = None,
) -> dict[str, JSON]:
    """Set the price of a token at the end of a round that is not captured yet. Needs a reason."""
    known: dict[str, JSON] = {} if decimals is None else {"decimals": decimals}
    return {"action": "price", "roundId": round_id, "tokenId": token, "priceUsd": usd, **known}


@app.command()
@acts
def flag(
    round_id: RoundId,
    agent: Annotated[int, typer.Argument(help="The number of the agent's on-chain identity.")],
    decision: Annotated[str, typer.Argument(help="clear or exclude.")],
    kind: Annotated[str | None, typer.Option(help="Only this kind of flag.")] = None,
) -> dict[str, JSON]:
    """Decide on an agent's flags in a round that is not captured yet. Needs a reason."""
    only: dict[str, JSON] = {} if kind is None else {"kind": kind}
    return {"action": "flag", "roundId": round_id, "agentId": agent, "decision": decision, **only}


@app.command()
@acts
def pay(
    round_id: RoundId,
    category: Annotated[str, typer.Argument(help="overall_pnl, volume or return.")],
    txid: Annotated[str | None, typer.Option(help="The transaction that paid it.")] = None,
    status: Annotated[str, typer.Option(help="paid, failed or void.")] = "paid",
) -> dict[str, JSON]:
    """Record that a prize was paid."""
    by: dict[str, JSON] = {} if txid is None else {"payoutTxid": txid}
    return {"action": "pay", "roundId": round_id, "category": category, "status": status, **by}


def _ruled(grace: str, min_volume: str, min_trades: int, reward: list[str] | None) -> dict[str, JSON]:
    rewards: dict[str, JSON] = {}
    for each in reward or ():
        category, _, sats = each.partition("=")
        if not sats.isdecimal():
            raise UsageError(f"--reward is CATEGORY=SATS, such as overall_pnl=50000, not {each[:40]!r}.")
        rewards[category] = int(sats)
    return {
        "graceS": 0 if _NO_GRACE.fullmatch(grace) else _duration_s(grace),
        "minVolumeUsd": min_volume,
        "minPricedTradeCount": min_trades,
        "rewards": rewards,
    }


def _seconds(text: str) -> int:
    from tocsin.text import parse_instant_ms

    return parse_instant_ms(text) // 1000


def _duration_s(text: str) -> int:
    from tocsin.text import check_duration, parse_duration

    return parse_duration(check_duration(text)) // 1000
