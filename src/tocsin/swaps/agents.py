"""Agents and claims in import files: their fields, the checks of each row, and the SQL that imports them. Pure.

`commands/rows.py` reads the file and runs the SQL, or writes it for D1.

Rows first go into a temporary table. There they are compared with each other and with the registered agents, so a
file of any size needs little memory, and the database is locked only for the last step.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from holdfast.types import JSON
from tocsin.stacks import decode_address
from tocsin.swaps.rules import without_duplicates

Table: TypeAlias = Literal["agents", "claims"]
Kind: TypeAlias = Literal["text", "whole"]

TABLES: tuple[Table, ...] = get_args(Table)  # in the order of their foreign keys
WHOLE_MAX = 2**63 - 1  # the largest integer of SQLite
NAME_MAX = 128  # characters of a name that pages show
NAMES = ("display_name", "bns_name")
STATUSES = ("pending", "verified", "rewarded", "failed")

COLUMNS: Mapping[Table, Mapping[str, Kind]] = {
    "agents": {
        "btc_address": "text",
        "stx_address": "text",
        "stx_public_key": "text",
        "btc_public_key": "text",
        "taproot_address": "text",
        "display_name": "text",
        "description": "text",
        "bns_name": "text",
        "owner": "text",
        "verified_at": "text",
        "last_active_at": "text",
        "erc8004_agent_id": "whole",
        "nostr_public_key": "text",
        "capabilities_json": "text",
        "last_identity_check": "text",
        "github_username": "text",
        "referred_by_btc": "text",
        "referral_code": "text",
        "last_check_in_at": "text",
    },
    "claims": {
        "btc_address": "text",
        "display_name": "text",
        "tweet_url": "text",
        "tweet_author": "text",
        "claimed_at": "text",
        "reward_satoshis": "whole",
        "reward_txid": "text",
        "status": "text",
    },
}

_BTC_ADDRESS = re.compile(r"[!-~]{1,128}")

# The SQL of an import, for a connection that has temporary tables.
INCOMING = """
CREATE TEMP TABLE incoming (line INTEGER, kind TEXT, btc_address TEXT, stx_address TEXT, fields TEXT)"""
STAGE = "INSERT INTO incoming VALUES (?, ?, ?, ?, ?)"
INDEX = "CREATE INDEX temp.incoming_by_address ON incoming (kind, btc_address)"
# Rows that are valid by themselves, but conflict with each other …
CONFLICTS_WITHIN = """
SELECT line, btc_address || iif(kind = 'claims', ' has a claim', ' is') || ' on {unit} ' || first || ' already'
FROM (
  SELECT line, kind, btc_address, first_value(line) OVER w AS first, row_number() OVER w AS nth FROM incoming
  WINDOW w AS (PARTITION BY kind, btc_address ORDER BY rowid)
) WHERE nth > 1
UNION ALL
SELECT line, 'stx_address ' || stx_address || ' is on {unit} ' || first || ' already'
FROM (
  SELECT line, btc_address, stx_address,
    first_value(line) OVER w AS first, first_value(btc_address) OVER w AS whose
  FROM incoming WHERE stx_address IS NOT NULL
  WINDOW w AS (PARTITION BY stx_address ORDER BY rowid)
) WHERE whose <> btc_address
ORDER BY 1"""
# … or with registered agents.
CONFLICTS_REGISTERED = """
SELECT i.line, 'stx_address ' || i.stx_address || ' is that of the registered agent ' || a.btc_address
FROM incoming i JOIN agents a ON a.stx_address = i.stx_address AND a.btc_address <> i.btc_address
UNION ALL
SELECT i.line, 'stx_address: ' || i.btc_address || ' has swaps recorded as ' || a.stx_address
  || ', so its address cannot become ' || i.stx_address || '; register the new one as an agent of its own'
FROM incoming i JOIN agents a ON a.btc_address = i.btc_address AND a.stx_address <> i.stx_address
WHERE EXISTS (SELECT 1 FROM swaps s WHERE s.sender = a.stx_address)
UNION ALL
SELECT i.line, 'no agent ' || i.btc_address || ' is in this file, and none is registered'
FROM incoming i
WHERE i.kind = 'claims'
  AND NOT EXISTS (SELECT 1 FROM incoming o WHERE o.kind = 'agents' AND o.btc_address = i.btc_address)
  AND NOT EXISTS (SELECT 1 FROM agents a WHERE a.btc_address = i.btc_address)
ORDER BY 1"""

# Wrangler searches for these even inside quotes, and deletes transaction statements wherever it finds them.
_CUT_BY_WRANGLER = re.compile(r"(?<=BEGIN) (?=TRANSACTION)|[;']")
_ONE_ROW = "(SELECT value AS fields, json_extract(value, '$.btc_address') AS btc_address FROM json_each('[{row}]'))"


@dataclass(frozen=True, slots=True)
class ImportRow:
    """A row of a file. Columns that are not among its fields stay unchanged."""

    table: Table
    line: int
    fields: Mapping[str, JSON]

    def staged(self) -> tuple[int, str, str, str | None, str]:
        fields: Mapping[str, Any] = self.fields
        text = json.dumps(fields, ensure_ascii=False)
        return self.line, self.table, fields["btc_address"], fields.get("stx_address"), text


@dataclass(frozen=True, slots=True)
class RowError:
    """An invalid row, and why it is invalid."""

    line: int
    reason: str


def read_line(line: int, raw: bytes) -> Iterator[ImportRow | RowError]:
    """Read one line of JSON: an agent, and its claim if it has one. An invalid line gives one error."""
    try:
        agent = _parse(raw)
        if not isinstance(agent, dict):
            raise ValueError('it is not an object like {"btc_address": "bc1…", "stx_address": "SP…"}')  # noqa: TRY301, TRY004 - an error of the row, returned below
        claim = agent.pop("claim", None)
        found = [ImportRow("agents", line, agent)]
        _check(found[0])
        if claim is not None:
            if not isinstance(claim, dict) or "btc_address" in claim:
                raise ValueError('claim: expected an object like {"status": "verified"}')  # noqa: TRY301 - an error of the row, returned below
            found.append(ImportRow("claims", line, {"btc_address": agent["btc_address"], **claim}))
            _check(found[1], "claim.")
    except ValueError as error:
        yield RowError(line, str(error))
    else:
        yield from found


def read_results(raw: bytes) -> Iterator[ImportRow | RowError]:
    """Read what `wrangler d1 execute --json` prints for the rows of both tables. The rows are numbered from 1.

    Columns that Tocsin does not have are left out: the site may have added some. Raises ValueError for anything else.
    """
    printed = _parse(raw)
    results: list[Any] = [_object(result).get("results") for result in printed] if isinstance(printed, list) else [None]
    if not all(isinstance(rows, list) for rows in results):
        raise ValueError('it is not what wrangler prints with --json: [{"results": […]}]')
    for number, found in enumerate((row for rows in results for row in rows), 1):
        row = _object(found)
        table: Table = "agents" if "stx_address" in row else "claims"
        fields = {name: value for name, value in row.items() if name in COLUMNS[table]}
        given = ImportRow(table, number, fields)
        try:
            _check(given)
        except ValueError as error:
            yield RowError(number, str(error))
        else:
            yield given


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _parse(raw: bytes) -> Any:  # noqa: ANN401 - any JSON; its readers check it
    try:
        return json.loads(raw.decode(), object_pairs_hook=without_duplicates)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8: save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("it is not JSON of an agent: nested too deeply") from None


def _check(given: ImportRow, prefix: str = "") -> None:
    """Raise ValueError that names the invalid field and what it should be."""
    columns = COLUMNS[given.table]
    fields: Mapping[str, Any] = given.fields
    for name, value in fields.items():
        if name not in columns:
            known = ", ".join(columns)
            raise ValueError(f"there is no field {prefix}{_shown(name)}; the fields are {known}")
        _check_kind(prefix + name, value, columns[name])
        if name in NAMES and value is not None and len(value) > NAME_MAX:
            raise ValueError(f"{prefix}{name}: has {len(value)} characters, at most {NAME_MAX} are allowed; shorten it")
    if given.table == "agents":
        _check_stx_address(fields.get("stx_address"))
    elif fields.get("status") not in STATUSES:
        raise ValueError(f"{prefix}status: expected one of {', '.join(STATUSES)}{_found(fields, 'status')}")
    _check_btc_address(fields.get("btc_address"))


def _check_kind(name: str, value: object, kind: Kind) -> None:
    if value is None:
        return
    if kind == "whole":
        if type(value) is not int or not 0 <= value <= WHOLE_MAX:
            raise ValueError(f"{name}: expected a whole number of 0 or more, or null, found {_shown(value)}")
    elif type(value) is not str:
        raise ValueError(f"{name}: expected text or null, found {_shown(value)}")
    elif "\0" in value or not _is_encodable(value):
        raise ValueError(f"{name}: has a character that text cannot have (NUL, or a lone surrogate)")


def _check_stx_address(value: str | None) -> None:
    if value is None:
        raise ValueError("stx_address is missing")
    try:
        decode_address(value)
    except ValueError as error:
        raise ValueError(
            f"stx_address: expected a Stacks mainnet address, SP… or SM…; {_shown(value)} {error}"
        ) from None


def _check_btc_address(value: str | None) -> None:
    if value is None:
        raise ValueError("btc_address is missing")
    if _BTC_ADDRESS.fullmatch(value) is None:
        raise ValueError(f"btc_address: expected 1 to 128 letters and digits, found {_shown(value)}")


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _found(fields: Mapping[str, Any], name: str) -> str:
    return f", found {_shown(fields[name])}" if name in fields else ""


def _shown(value: object) -> str:
    """Return a short form: a hostile value may have megabytes, and Python cannot print a number of many digits."""
    if isinstance(value, str):
        return ascii(value[:40])
    if isinstance(value, dict | list | bytes):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) > WHOLE_MAX:
        return "a number of more than 64 bits"
    return str(value)


def incoming(table: Table) -> str:
    """SQL: the rows of a file for a table."""
    return f"(SELECT btc_address, fields FROM incoming WHERE kind = '{table}')"  # noqa: S608 - names of our own


def count_new(table: Table) -> str:
    """SQL: how many rows there are for a table, and how many of them are new to it."""
    return f"""
SELECT count(*), count(*) FILTER (WHERE t.btc_address IS NULL)
FROM {incoming(table)} i LEFT JOIN {table} t ON t.btc_address = i.btc_address"""  # noqa: S608 - names of our own


def upsert(table: Table, rows: str) -> str:
    """SQL: insert new rows, update rows that differ, touch nothing else. `rows` have `btc_address` and `fields`."""
    names = list(COLUMNS[table])
    merged = ", ".join(_merged(name) for name in names)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names)
    differs = " OR ".join(f"{table}.{name} IS NOT excluded.{name}" for name in names)
    return f"""
INSERT INTO {table} ({", ".join(names)})
SELECT {merged} FROM {rows} i LEFT JOIN {table} t ON t.btc_address = i.btc_address WHERE true
ON CONFLICT (btc_address) DO UPDATE SET {updates} WHERE {differs}"""  # noqa: S608 - names of our own


def _merged(name: str) -> str:
    """SQL: the new value of a column. It is the field of the file, even if null; without a field, the stored value.

    It avoids CASE: wrangler takes that for the start of a compound statement and does not split what follows.
    """
    path = f"i.fields, '$.{name}'"
    return f"iif(json_type({path}) IS NULL, t.{name}, json_extract({path}))"


def d1_statement(table: Table, fields: Mapping[str, JSON]) -> str:
    """SQL for `wrangler d1 execute`: what an import does with this row, as one line without parameters.

    The row is JSON in which nothing ends the string, the statement or the line, and wrangler finds nothing to cut.
    """
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    row = _CUT_BY_WRANGLER.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return " ".join(upsert(table, "{rows}").split()).replace("{rows}", _ONE_ROW.replace("{row}", row)) + ";\n"


def lines_of(agents: Iterable[str]) -> Iterator[ImportRow | RowError]:
    for number, line in enumerate(agents, 1):
        yield from read_line(number, line.encode())
