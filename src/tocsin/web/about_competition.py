"""What `/openapi.json` and `/api/docs` say of the competition's routes."""

from tocsin.bindings import JSON
from tocsin.competition import board, trades
from tocsin.competition.codes import MEANINGS
from tocsin.web import schemas
from tocsin.web.operations import OperationDoc, Parameter, ResponseDoc
from tocsin.web.schemas import BOOLEAN, INTEGER, TEXT, listed, or_null, record

_TXID = "0x46bc5587ae56e5bd4453daa2bf63c2a9e0414953fd21a82eb44f2f926f0ee0e4"
_SENDER = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
_STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
_SWAP: dict[str, JSON] = {
    "txid": _TXID,
    "sender": _SENDER,
    "contract_id": "SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M.stableswap-stx-ststx-v-1-2",
    "function_name": "swap-x-for-y",
    "token_in": "stx",
    "amount_in": "1000000",
    "token_out": _STSTX,
    "amount_out": "859839",
    "burn_block_time": 1778787000,
    "block_height": 7929497,
    "tx_status": "success",
    "source": "agent",
    "provider": None,
    "scored_value": None,
    "scored_at": None,
}
_ADDRESS = Parameter(
    "address",
    {"type": "string", "pattern": trades.ADDRESS_PATTERN},
    "a Stacks mainnet address",
    required=True,
)
_CURSOR = Parameter("cursor", TEXT, "where the page before ended, in its own words")


def _limit(default: int, largest: int) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": largest}
    return Parameter("limit", schema, f"1 to {largest}, {default} by default")


BOARD = OperationDoc(
    summary="The leaderboard, valued at cached prices. A pair counts when both its tokens are priced.",
    parameters=(
        Parameter("sort", {"enum": list(board.SORTS)}, "trades by default"),
        Parameter("dir", {"enum": list(board.DIRECTIONS)}, "desc by default"),
        _limit(board.PAGE_DEFAULT, board.PAGE_MAX),
        _CURSOR,
    ),
    answers={
        200: ResponseDoc(
            "a page; `next` is the cursor of the one after it",
            record(
                rows=listed(schemas.BOARD_ROW),
                asOf=schemas.MS,
                pricesAsOf=or_null(schemas.MS),
                next=or_null(TEXT),
            ),
            {
                "rows": [
                    {
                        "rank": 1,
                        "stxAddress": _SENDER,
                        "btcAddress": "bc1qexample",
                        "displayName": "Sly Fox",
                        "bnsName": "slyfox.btc",
                        "erc8004AgentId": 12,
                        "tradeCount": 34,
                        "latestTradeAt": 1778787000000,
                        "volumeUsd": 1204.5,
                        "pnlUsd": -3.1,
                        "pnlPercent": -0.26,
                        "unpricedTokens": [_STSTX],
                        "wallets": [_SENDER],
                    }
                ],
                "asOf": 1778787060000,
                "pricesAsOf": 1778787010000,
                "next": None,
            },
        )
    },
)
TRADES = OperationDoc(
    summary="An agent's swaps, newest first.",
    parameters=(_ADDRESS, _limit(trades.PAGE_DEFAULT, trades.PAGE_MAX), _CURSOR),
    answers={
        200: ResponseDoc(
            "a page; amounts are exact, in the token's smallest unit",
            record(trades=listed(schemas.SWAP), next_cursor=or_null(TEXT)),
            {"trades": [_SWAP], "next_cursor": None},
        )
    },
)
SUBMIT = OperationDoc(
    summary="Report a swap. It is checked on chain while you wait; the sweep would find it by itself.",
    body={"txid": _TXID},
    answers={
        200: ResponseDoc("it counts, and was not known before", schemas.SWAP, _SWAP),
        **{
            status: ResponseDoc(
                " · ".join(f"{code}: {meaning.sentence}" for code, meaning in found), schemas.ERROR
            )
            for status in sorted({meaning.status for meaning in MEANINGS.values()} - {500})
            if (found := [(code, meaning) for code, meaning in MEANINGS.items() if meaning.status == status])
        },
    },
)
STANDING = OperationDoc(
    summary="An agent's counts. One that is not registered has zeros.",
    parameters=(_ADDRESS,),
    answers={
        200: ResponseDoc(
            "the counts; times are seconds, as on chain",
            record(
                address=TEXT,
                agent_id=or_null(INTEGER),
                registered=BOOLEAN,
                trade_count=INTEGER,
                verified_trade_count=INTEGER,
                first_trade_at=or_null(INTEGER),
                last_trade_at=or_null(INTEGER),
            ),
        )
    },
)
ALLOWLIST = OperationDoc(
    summary="The contracts and functions that count.",
    answers={
        200: ResponseDoc(
            "the list; its version changes whenever it does",
            record(
                version=TEXT,
                entries=schemas.by_name(listed(TEXT)),
                total_contracts=INTEGER,
                total_functions=INTEGER,
                provider_address=TEXT,
                protocols=schemas.by_name(listed(TEXT)),
            ),
        )
    },
)
TRACKED = OperationDoc(
    summary="The tokens whose prices are kept fresh.",
    answers={
        200: ResponseDoc(
            "the tokens; `source` is static-fallback until the first refresh",
            record(
                tokens=listed(schemas.TOKEN_ID),
                count=INTEGER,
                source={"enum": ["dynamic", "static-fallback"]},
                staticCore=listed(schemas.TOKEN_ID),
                maxTracked=INTEGER,
            ),
        )
    },
)
CHAINHOOK = OperationDoc(
    summary="Blocks that Hiro's Chainhook pushes, 2.0 or v1.",
    key="Authorization",
    body={"event": {"apply": [], "rollback": []}},
    answers={
        200: ResponseDoc(
            "what it names is stored and will be settled",
            record(queued=INTEGER, alreadyKnown=INTEGER, ignored=INTEGER, rolledBack=INTEGER),
            {"queued": 1, "alreadyKnown": 0, "ignored": 3, "rolledBack": 0},
        )
    },
)
