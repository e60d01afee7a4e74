"""JSON Schemas of what the routes answer, for `/openapi.json`."""

from tocsin.bindings import JSON
from tocsin.prices.tracked_tokens import TOKEN_ID_PATTERN

Schema = dict[str, JSON]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
ANY: Schema = {}
TOKEN_ID: Schema = {"type": "string", "pattern": TOKEN_ID_PATTERN}


def record(**properties: Schema) -> Schema:
    """An object that has at least these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def by_name(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


MS = {"type": "integer", "description": "unix milliseconds"}
PRICE_USD = or_null({"type": "number", "exclusiveMinimum": 0})
DECIMALS = or_null({"type": "integer", "minimum": 0, "maximum": 38})

ERROR = record(error=TEXT, code=TEXT, retryable=BOOLEAN)

PRICE = record(
    priceUsd=PRICE_USD,
    decimals=DECIMALS,
    fetchedAt=or_null(MS),
    stale=BOOLEAN,
    source={"enum": ["tenero", "peg"]},
)
PRICES = record(prices=by_name(PRICE), missing=listed(TOKEN_ID), supportedTokens=listed(TOKEN_ID))
ONE_PRICE = record(tokenId=TOKEN_ID, priceUsd=PRICE_USD, decimals=DECIMALS, fetchedAt=or_null(MS))

TASK = record(
    enabled=BOOLEAN,
    cadenceMs=INTEGER,
    effectiveCadenceMs=INTEGER,
    cadenceReason=TEXT,
    nextDueAt=or_null(MS),
    running=or_null(by_name(ANY)),
    lastSuccessAt=or_null(MS),
    lastError=ANY,
    overdue=BOOLEAN,
)
STATUS = record(
    now=MS,
    nextAlarmAt=or_null(MS),
    pausedUntil=or_null(MS),
    lastTeneroRunAt=or_null(MS),
    lastSweepRunAt=or_null(MS),
    lastTeneroResult=or_null(by_name(ANY)),
    lastSweepResult=or_null(by_name(ANY)),
    consecutiveFailures=by_name(INTEGER),
    nextRunAfter=by_name(or_null(MS)),
    tasks=by_name(TASK),
    budgets=by_name(by_name(ANY)),
)

NUMBER: Schema = {"type": "number"}
AMOUNT: Schema = {"type": "string", "pattern": "^[0-9]+$"}
SWAP = record(
    txid=TEXT,
    sender=TEXT,
    contract_id=TEXT,
    function_name=TEXT,
    token_in=TEXT,
    amount_in=AMOUNT,
    token_out=TEXT,
    amount_out=AMOUNT,
    burn_block_time=INTEGER,
    block_height=INTEGER,
    source={"enum": ["agent", "cron", "chainhook"]},
)
BOARD_ROW = record(
    rank=INTEGER,
    stxAddress=TEXT,
    btcAddress=TEXT,
    displayName=or_null(TEXT),
    bnsName=or_null(TEXT),
    erc8004AgentId=INTEGER,
    tradeCount=INTEGER,
    latestTradeAt=MS,
    volumeUsd=or_null(NUMBER),
    pnlUsd=or_null(NUMBER),
    pnlPercent=or_null(NUMBER),
    unpricedTokens=listed(TEXT),
    wallets=listed(TEXT),
)
