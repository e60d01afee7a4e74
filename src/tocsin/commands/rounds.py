"""`tocsin round …`: rounds of the running service, which closes, captures and finalizes them itself."""

import re
import time
from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote

import typer

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.commands import render
from tocsin.commands.options import AsJson, Client, Reason, calls_service, print_answer, with_options
from tocsin.text import camel_case, check_duration, parse_duration, parse_instant_ms

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


def acts(command: Callable[..., dict[str, JSON] | None]) -> Callable[..., None]:
    """Make a command that sends an action: what the function returns or, without that, its name and its arguments."""

    def run(
        client: Client, *, dry_run: Dry = False, reason: Reason = None, as_json: AsJson = False, **given: JSON
    ) -> None:
        fields = {camel_case(name): value for name, value in given.items() if value is not None and value is not False}
        action = command(**given) or {"action": command.__name__, **fields}
        if reason is not None:
            action["reason"] = reason
        answer = client.send(PATH, action, {"dry-run": "true" if dry_run else None})
        print_answer(answer, as_json, render.done(answer, action.get("roundId")))

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
def list_(client: Client, as_json: AsJson = False) -> None:
    """List all rounds, newest first, and what each waits for."""
    answer = client.get(PATH, keyed=True)
    print_answer(answer, as_json, render.rounds(answer))


@app.command()
@calls_service
def show(client: Client, round_id: RoundId, as_json: AsJson = False) -> None:
    """Show the result of a round as visitors see it, or when it ends."""
    answer = client.get(f"/api/competition/rounds/{quote(round_id, safe='')}")
    agents = client.get("/api/competition/curves")["agents"] if answer["results"] else []
    names = {agent["erc8004AgentId"]: agent["displayName"] for agent in agents}
    print_answer(answer, as_json, render.detail(answer, time.time_ns() // 1_000_000_000, names))


@app.command()
@acts
def close(round_id: RoundId) -> None:
    """Close a round whose grace is over, without waiting for the scheduler."""


@app.command()
@acts
def snapshot(
    round_id: RoundId,
    force: Annotated[bool, typer.Option("--force", help="Capture even if the record is incomplete.")] = False,
) -> None:
    """Capture the agents, swaps and prices of the end of a closed round."""


@app.command()
@acts
def finalize(round_id: RoundId) -> None:
    """Write the result of a captured round. With --dry-run, the round may still be running."""


@app.command()
@acts
def void(round_id: RoundId) -> None:
    """Void a round: it will have no result. Needs a reason."""


@app.command()
@acts
def reopen(round_id: RoundId) -> None:
    """Have the result of a round computed again, as its next version. Needs a reason."""


@app.command()
@acts
def price(
    round_id: RoundId,
    token_id: Annotated[str, typer.Argument(help="stx, or SP….contract::asset.", metavar="TOKEN")],
    price_usd: Annotated[str, typer.Argument(help="Such as 0.85.", metavar="USD")],
    decimals: Annotated[int | None, typer.Option(help="The token's decimals, if it has never had a price.")] = None,
) -> None:
    """Set the price of a token at the end of a round that is not captured yet. Needs a reason."""


@app.command()
@acts
def flag(
    round_id: RoundId,
    agent_id: Annotated[int, typer.Argument(help="The number of the agent's on-chain identity.", metavar="AGENT")],
    decision: Annotated[str, typer.Argument(help="clear or exclude.")],
    kind: Annotated[str | None, typer.Option(help="Only this kind of flag.")] = None,
) -> None:
    """Decide on an agent's flags in a round that is not captured yet. Needs a reason."""


@app.command()
@acts
def pay(
    round_id: RoundId,
    category: Annotated[str, typer.Argument(help="overall_pnl, volume or return.")],
    payout_txid: Annotated[str | None, typer.Option("--txid", help="The transaction that paid it.")] = None,
    status: Annotated[str, typer.Option(help="paid, failed or void.")] = "paid",
) -> None:
    """Record that a prize was paid."""


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
    return parse_instant_ms(text) // 1000


def _duration_s(text: str) -> int:
    return parse_duration(check_duration(text)) // 1000
