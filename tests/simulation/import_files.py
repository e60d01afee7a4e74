"""Files of agents as operators have them: JSON lines, what wrangler prints, and both with a mistake."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from simulation.spoilt_answers import with_odd_part
from stacks_simulator.addresses import address_of
from stacks_simulator.wallets import Wallet

Form: TypeAlias = Literal["lines", "results"]

# Values that a file may hold and that a reader may stumble over.
NAMES = (None, "Ann", "it's", "a;b", "BEGIN TRANSACTION;", "two\nlines", "ünïcode", 'a "name"', "back\\slash", "-- x")
MISTAKES = ("'", '"', "\\", "(", ")", ",", ";", "\n", "/*", "--", "[", "x'0", "\0", "é", "9" * 30, "NULL", "char(")


@dataclass(frozen=True, slots=True)
class FileAgent:
    """An agent and its claim, as a file names them."""

    btc_address: str
    stx_address: str
    erc8004_agent_id: int | None
    status: str
    names: Mapping[str, str | None]  # other fields that the file has


def agent_of(wallet: Wallet) -> FileAgent:
    status = "verified" if wallet.tier in {"eligible", "genesis"} else "failed"
    address = wallet.btc_address or f"bc1{wallet.address}"
    return FileAgent(address, wallet.address, wallet.erc8004_agent_id, status, {})


def drawn_agents(known: Sequence[Wallet], rng: Random) -> list[FileAgent]:
    """Return some registered agents with other names, and some new ones."""
    names = [
        {"display_name": rng.choice(NAMES), "owner": rng.choice(NAMES)} if rng.random() < 0.7 else {} for _ in range(8)
    ]
    some = [agent_of(wallet) for wallet in rng.sample(known, min(3, len(known)))]
    new = [rng.randrange(10**6) for _ in range(rng.choice((0, 1, 4)))]
    some += [FileAgent(f"bc1new{n}", address_of(f"new {n}"), n, "pending", {}) for n in new]
    return [
        FileAgent(each.btc_address, each.stx_address, each.erc8004_agent_id, each.status, names[number])
        for number, each in enumerate(some)
    ]


def write_file(directory: Path, agents: Sequence[FileAgent], form: Form, rng: Random) -> Path:
    """Write the file in one of the forms that an import accepts."""
    file = directory / ("agents.json" if form == "results" else "agents.jsonl")
    text = _results(agents, rng) if form == "results" else _lines(agents)
    file.write_bytes(text.encode())
    return file


def with_mistake(file: Path, rng: Random) -> None:
    """Put a mistake into the file: it is cut off, has a misplaced part, or has its last part twice."""
    text = file.read_bytes().decode()
    at = rng.randrange(len(text))
    if file.suffix == ".jsonl" and rng.random() < 0.6:
        file.write_text("".join(_odd_line(line, rng) + "\n" for line in text.splitlines() if line))
        return
    match rng.choice(("cut", "put", "put", "put", "twice", "without")):
        case "cut":
            text = text[:at]
        case "put":
            text = text[:at] + rng.choice(MISTAKES) + text[at:]
        case "twice":
            text += "\n" + text[text.rstrip().rfind("\n") + 1 :]
        case "without":
            text = text[:at] + text[at + rng.choice((1, 1, 30)) :]
    file.write_bytes(text.encode())


def _odd_line(line: str, rng: Random) -> str:
    """Return an agent with one field of the wrong type, unknown, too long or missing."""
    agent: dict[str, Any] = json.loads(line)
    match rng.choice(("as it is", "odd", "odd", "unknown", "long", "less", "claim", "list")):
        case "odd":
            agent = with_odd_part(agent, rng)
        case "unknown":
            agent["luck"] = 7
        case "long":
            agent["display_name"] = "n" * 200
        case "less":
            del agent[rng.choice(list(agent))]
        case "claim":
            agent["claim"] = rng.choice(({"status": "lost"}, {"status": "failed", "btc_address": "bc1"}, []))
        case "list":
            return json.dumps([agent])
        case _:
            agent["erc8004_agent_id"] = rng.choice((None, 2**70, -1, True, 5))
    return json.dumps(agent)


def _lines(agents: Sequence[FileAgent]) -> str:
    return "".join(
        json.dumps({**_agent_fields(each), "claim": {"status": each.status}}, ensure_ascii=False) + "\n\n"
        for each in agents
    )


def _agent_fields(each: FileAgent) -> dict[str, Any]:
    return {
        "btc_address": each.btc_address,
        "stx_address": each.stx_address,
        "erc8004_agent_id": each.erc8004_agent_id,
        **each.names,
    }


def _results(agents: Sequence[FileAgent], rng: Random) -> str:
    """Return what `wrangler d1 execute --json` prints, with columns that only the site has."""
    rows = [{**_agent_fields(each), "score": rng.choice((-5, 1.5, "x", None))} for each in agents]
    claims = [{"btc_address": each.btc_address, "status": each.status} for each in agents]
    results: list[Any] = [{"results": found, "success": True, "meta": {}} for found in (rows, claims)]
    rng.shuffle(results)
    return json.dumps(results, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5) + "\n"


# The tables


def tables_of(database: sqlite3.Connection) -> dict[str, dict[str, dict[str, Any]]]:
    """Return agents and claims by address."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table in ("agents", "claims"):
        cursor = database.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        found[table] = {row["btc_address"]: row for row in rows}
    return found


def tables_with(
    before: Mapping[str, Mapping[str, dict[str, Any]]], agents: Sequence[FileAgent]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the tables after importing these agents. Fields that the file does not name stay unchanged."""
    after = {table: dict(rows) for table, rows in before.items()}
    for each in agents:
        for table, fields in (
            ("agents", _agent_fields(each)),
            ("claims", {"btc_address": each.btc_address, "status": each.status}),
        ):
            after[table][each.btc_address] = {**after[table].get(each.btc_address, {}), **fields}
    return after


def same_tables(
    found: Mapping[str, Mapping[str, Mapping[str, Any]]], wanted: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> bool:
    """Return whether they have the same content; a field that a row does not name is NULL."""
    return all(
        found[table].keys() == wanted[table].keys()
        and all(
            value == wanted[table][address].get(name)
            for address, row in found[table].items()
            for name, value in row.items()
        )
        for table in wanted
    )
