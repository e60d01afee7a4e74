"""`tocsin round …`: rounds of the running service, which closes, captures and finalizes them itself."""

import re
from typing import Annotated, Any

import typer

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.commands.options import AsJson, Host, Port, Reason, Url, print_answer, service_client

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


@app.command()
def add(
    round_id: RoundId,
    start: Annotated[str, typer.Option(help="2026-05-13T00:00Z, or unix ms.", metavar="TIME")],
    end: Annotated[str, typer.Option(help="Like the start; not part of the round.", metavar="TIME")],
    grace: Grace = "1h",
    min_volume: MinVolume = "50",
    min_trades: MinTrades = 3,
    reward: Reward = None,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Add a round."""
    fields = {"startsAt": _seconds(start), "endsAt": _seconds(end), **_ruled(grace, min_volume, min_trades, reward)}
    _act("add", round_id, dry_run, reason, fields, (url, host, port))


@app.command()
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
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Set a rule that adds rounds one after another: `tocsin round every 7d --start 2026-05-13T00:00Z`."""
    where = (url, host, port)
    if end:
        _act("rule", None, dry_run, reason, {"end": True}, where)
        return
    if period is None or start is None:
        raise UsageError("Give a period and a start: `tocsin round every 7d --start 2026-05-13T00:00Z`, or --end.")
    fields = {
        "firstStartsAt": _seconds(start),
        "periodS": _duration_s(period),
        "prefix": prefix,
        "firstNumber": number,
        **_ruled(grace, min_volume, min_trades, reward),
    }
    _act("rule", None, dry_run, reason, fields, where)


@app.command("list")
def list_(as_json: AsJson = False, url: Url = None, host: Host = None, port: Port = None) -> None:
    """List all rounds, newest first, and what each waits for."""
    from tocsin.commands import render as render_rounds
    from tocsin.rounds.round import RoundList

    client = service_client(url, host, port)
    answer = client.get(PATH, keyed=True)
    print_answer(answer, as_json, render_rounds.rounds(client.read(RoundList, answer)))


@app.command()
def show(round_id: RoundId, as_json: AsJson = False, url: Url = None, host: Host = None, port: Port = None) -> None:
    """Show the result of a round, as visitors see it."""
    from urllib.parse import quote

    from tocsin.commands import render as render_rounds
    from tocsin.rounds.round import RoundDetail

    client = service_client(url, host, port)
    answer = client.get(f"/api/competition/rounds/{quote(round_id, safe='')}")
    print_answer(answer, as_json, render_rounds.detail(client.read(RoundDetail, answer)))


@app.command()
def close(
    round_id: RoundId,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Close a round whose grace is over, without waiting for the scheduler."""
    _act("close", round_id, dry_run, reason, {}, (url, host, port))


@app.command()
def snapshot(
    round_id: RoundId,
    force: Annotated[bool, typer.Option("--force", help="Capture even if the record is incomplete.")] = False,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Capture the agents, swaps and prices of the end of a closed round."""
    _act("snapshot", round_id, dry_run, reason, {"force": True} if force else {}, (url, host, port))


@app.command()
def finalize(
    round_id: RoundId,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Write the result of a captured round. With --dry-run, the round may still be running."""
    _act("finalize", round_id, dry_run, reason, {}, (url, host, port))


@app.command()
def void(
    round_id: RoundId,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Void a round: it will have no result. Needs a reason."""
    _act("void", round_id, dry_run, reason, {}, (url, host, port))


@app.command()
def reopen(
    round_id: RoundId,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Have the result of a round computed again, as its next version. Needs a reason."""
    _act("reopen", round_id, dry_run, reason, {}, (url, host, port))


@app.command()
def price(
    round_id: RoundId,
    token: Annotated[str, typer.Argument(help="stx, or SP….contract::asset.")],
    usd: Annotated[str, typer.Argument(help="Such as 0.85.")],
    decimals: Annotated[int | None, typer.Option(help="The token's decimals, if it has never had a price.")] = None,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Set the price of a token at the end of a round that is not captured yet. Needs a reason."""
    fields: dict[str, JSON] = {
        "tokenId": token,
        "priceUsd": usd,
        **({} if decimals is None else {"decimals": decimals}),
    }
    _act("price", round_id, dry_run, reason, fields, (url, host, port))


@app.command()
def flag(
    round_id: RoundId,
    agent: Annotated[int, typer.Argument(help="The number of the agent's on-chain identity.")],
    decision: Annotated[str, typer.Argument(help="clear or exclude.")],
    kind: Annotated[str | None, typer.Option(help="Only this kind of flag.")] = None,
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Decide on an agent's flags in a round that is not captured yet. Needs a reason."""
    fields: dict[str, JSON] = {"agentId": agent, "decision": decision, **({} if kind is None else {"kind": kind})}
    _act("flag", round_id, dry_run, reason, fields, (url, host, port))


@app.command()
def pay(
    round_id: RoundId,
    category: Annotated[str, typer.Argument(help="overall_pnl, volume or return.")],
    txid: Annotated[str | None, typer.Option(help="The transaction that paid it.")] = None,
    status: Annotated[str, typer.Option(help="paid, failed or void.")] = "paid",
    dry_run: Dry = False,
    reason: Reason = None,
    url: Url = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Record that a prize was paid."""
    fields: dict[str, JSON] = {"category": category, "status": status, **({} if txid is None else {"payoutTxid": txid})}
    _act("pay", round_id, dry_run, reason, fields, (url, host, port))


def _act(
    action: str,
    round_id: str | None,
    dry_run: bool,
    reason: str | None,
    fields: dict[str, Any],
    where: tuple[str | None, str | None, int | None],
) -> None:
    from tocsin.commands import render as render_rounds
    from tocsin.rounds.round import RoundAnswer

    body = {"action": action, **({} if round_id is None else {"roundId": round_id}), **fields}
    if reason is not None:
        body["reason"] = reason
    client = service_client(*where)
    answer = client.send(PATH, body, {"dry-run": "true"} if dry_run else {})
    print_answer(answer, False, render_rounds.done(client.read(RoundAnswer, answer)))


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
