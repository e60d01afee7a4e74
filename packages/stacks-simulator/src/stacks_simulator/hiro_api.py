"""Hiro's Stacks API on the model: request in, reply out.

Modeled: the v1 and v3 endpoints that a sweep, a verifier or a site asks, their paging, ETag/304, 302, 400, 404 and
410. `index_lag_ms` is how long lookups by id do not find a new transaction.

The network's list has its own switches: `network_list` switches it off, `omitted_share` is the share of transactions
that it never shows, `list_lag_ms` is how far it lags behind, as a read replica can, and since `list_stopped_ms` it has
no new blocks. With `etag_stuck` its ETag does not change, as with a broken cache: whoever sends it gets 304 although
there are new blocks.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from stacks_simulator import hiro_pages as pages
from stacks_simulator import hiro_rows
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.hiro_hooks import HookApi
from stacks_simulator.hiro_lookups import READ_ONLY, LookupApi
from stacks_simulator.hiro_pages import HiroHttpError, HiroQuery, tag_headers
from stacks_simulator.http_messages import SimulatedReply, SimulatedRequest, json_reply

VERSION = "stacks-blockchain-api v9.0.2 (simulated)"
DEPRECATED = '299 - "Deprecated: See https://docs.hiro.so/stacks/api for more information"'
GONE = "This endpoint has been disabled. See https://docs.hiro.so/stacks/api for more information"
PRINCIPAL = re.compile(r"^S[0-9A-HJKMNP-TV-Z]{28,41}(\.[a-zA-Z][a-zA-Z0-9_-]{0,127})?$")
TX_ID = re.compile(r"(0x)?[a-fA-F0-9]{64}")
MULTIPLE_TX_ID_RULE = 'querystring/tx_id/0 must match pattern "^0x[a-fA-F0-9]{64}$"'
TX_ID_RULE = 'params/tx_id must match pattern "^(0x)?[a-fA-F0-9]{64}$"'
TX_IDS_MAX = 20
NETWORK_LIST_PATH = "/extended/v3/transactions"

NetworkListState: TypeAlias = Literal["served", "absent", "gone"]
HiroHandler: TypeAlias = Callable[[HiroQuery, Mapping[str, str]], SimulatedReply]


@dataclass(frozen=True, slots=True)
class HiroRoute:
    """A path, its handler, and whether Hiro has deprecated it."""

    pattern: re.Pattern[str]
    handler: HiroHandler
    deprecated: bool = False


class HiroApi:
    """Hiro's API on one chain."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.index_lag_ms = 0
        self.network_list: NetworkListState = "served"
        self.omitted_share = 0.0
        self.list_lag_ms = 0
        self.list_stopped_ms: int | None = None
        self.etag_stuck = False
        self._last_etag = ""  # of the network's list
        self.hooks = HookApi(chain)
        self.lookups = LookupApi(chain)
        self._routes = (
            _route("/extended/v3/principals/{principal}/transactions", self.v3_principal_transactions),
            _route("/extended/v3/principals/{principal}/balance-changes", self.v3_balance_changes),
            _route(NETWORK_LIST_PATH, self.v3_network_transactions),
            _route("/extended/v1/tx/multiple", self.v1_multiple),
            _route("/extended/v1/tx/{tx_id}", self.v1_transaction, deprecated=True),
            _route("/extended/v1/address/{principal}/transactions", self.v1_transactions, deprecated=True),
            _route("/v1/names/{name}", self.lookups.name),
            _route("/v1/addresses/stacks/{principal}", self.lookups.names_of),
            _route("/extended/v1/tokens/nft/holdings", self.lookups.identities, deprecated=True),
            _route("/extended/v1/address/{principal}/balances", self.lookups.balances, deprecated=True),
            _route("/extended", self.status),
        )

    def reply(self, request: SimulatedRequest) -> SimulatedReply:
        """The reply to a request, without limits and faults."""
        headers = {"x-api-version": VERSION}
        try:
            if request.path.startswith("/chainhooks/"):
                reply = self.hooks.reply(request)
            elif READ_ONLY.fullmatch(request.path) and request.method == "POST":
                reply = self.lookups.call(request)
            else:
                route, params = self._route_of(request)
                if route.deprecated:
                    headers["warning"] = DEPRECATED
                _check_params(request, params)
                reply = route.handler(HiroQuery(request), params)
        except HiroHttpError as error:
            reply = error.reply
        return reply.with_headers(headers)

    def _route_of(self, request: SimulatedRequest) -> tuple[HiroRoute, dict[str, str]]:
        for route in self._routes:
            match = route.pattern.fullmatch(request.path)
            if match and request.method == "GET":
                return route, match.groupdict()
        raise HiroHttpError(404, f"Route {request.method}:{request.path} not found")

    # v1

    def v1_transactions(self, query: HiroQuery, params: Mapping[str, str]) -> SimulatedReply:
        limit, offset = query.count("limit", 20, 50), query.integer("offset", 0, 0)
        etag = self._principal_tag(params["principal"])
        query.end_if_known(etag)
        transactions = self.chain.index.of(params["principal"])
        newest = range(len(transactions) - 1 - offset, max(-1, len(transactions) - 1 - offset - limit), -1)
        results = [_v1_row(transactions[at], (0, 0), query) for at in newest]
        return _tagged({"limit": limit, "offset": offset, "total": len(transactions), "results": results}, etag)

    def v1_transaction(self, query: HiroQuery, params: Mapping[str, str]) -> SimulatedReply:
        events = query.count("event_limit", 20, 100), query.integer("event_offset", 0, 0)
        tx = self._find_transaction(params["tx_id"])
        if tx is None:
            raise HiroHttpError(404, "could not find transaction by ID")
        etag = _transaction_tag(tx)
        query.end_if_known(etag)
        return _tagged(_v1_row(tx, events, query), etag)

    def v1_multiple(self, query: HiroQuery, _params: Mapping[str, str]) -> SimulatedReply:
        events = query.count("event_limit", 20, 100), query.integer("event_offset", 0, 0)
        ids = _tx_ids(query)
        if any(not tx_id.startswith("0x") for tx_id in ids):
            raise HiroHttpError(400, MULTIPLE_TX_ID_RULE)
        known = {tx.tx_id: tx for tx_id in ids if (tx := self._find_transaction(tx_id))}
        # A transaction is found under its own id. The request's spelling of an id is looked up unchanged.
        entries = {tx_id: {"found": True, "result": _v1_row(tx, events, query)} for tx_id, tx in known.items()} | {
            tx_id: {"found": False, "result": {"tx_id": tx_id}} for tx_id in ids if tx_id not in known
        }
        etag = sha256("".join(map(_transaction_tag, known.values())).encode()).hexdigest()
        query.end_if_known(etag)
        return _tagged(entries, etag)

    # v3

    def v3_principal_transactions(self, query: HiroQuery, params: Mapping[str, str]) -> SimulatedReply:
        principal, limit = params["principal"], query.integer("limit", 20, 1, 50)
        page = pages.v3_transactions(self.chain.index.of(principal), limit, query.text("cursor", r"\d+:\d+:\d+"))
        etag = self._principal_tag(principal)
        query.end_if_known(etag)
        return _tagged(page.body(limit, lambda tx: hiro_rows.v3_principal_transaction(tx, principal)), etag)

    def v3_network_transactions(self, query: HiroQuery, _params: Mapping[str, str]) -> SimulatedReply:
        if self.network_list == "absent":
            raise HiroHttpError(404, f"Route GET:{NETWORK_LIST_PATH} not found")
        if self.network_list == "gone":
            return json_reply(410, {"error": "Gone", "message": GONE}, {"warning": DEPRECATED})
        limit, cursor = query.integer("limit", 20, 1, 50), query.text("cursor", r"\d+:\d+:\d+")
        end = self._network_list_end()
        etag = _index_hash(self.chain.index.all[end - 1]) if end else ""
        if self.etag_stuck and self._last_etag:
            etag = self._last_etag
        self._last_etag = etag
        query.end_if_known(etag)
        page = pages.v3_transactions(self.chain.index.all, limit, cursor, end=end, is_shown=self._is_listed)
        if cursor is not None and not page.rows:
            raise HiroHttpError(404, "Cursor not found")
        return _tagged(page.body(limit, hiro_rows.v3_summary), etag)

    def v3_balance_changes(self, query: HiroQuery, params: Mapping[str, str]) -> SimulatedReply:
        ids, limit = _tx_ids(query), query.integer("limit", 20, 1, 50)
        if len(ids) > TX_IDS_MAX:
            raise HiroHttpError(400, f"querystring/tx_id must NOT have more than {TX_IDS_MAX} items")
        etag = self._principal_tag(params["principal"])
        query.end_if_known(etag)
        if any(not tx_id.startswith("0x") for tx_id in ids):
            raise HiroHttpError(500, "Internal Server Error")
        own = dict.fromkeys(tx_id.lower() for tx_id in ids)
        transactions = [tx for tx_id in own if (tx := self.chain.transactions.get(tx_id))]
        cursor = query.text("cursor", r"\d+:\d+:\d+:\d+:.+")
        page = pages.v3_balance_changes(transactions, params["principal"], limit, cursor)
        return _tagged(page.body(limit, lambda row: hiro_rows.v3_balance_change(*row)), etag)

    # The node

    def status(self, query: HiroQuery, _params: Mapping[str, str]) -> SimulatedReply:
        height = self.chain.tip_height
        block_hash = self.chain.block_hash(height)
        query.end_if_known(block_hash)
        tip = {"block_height": height, "block_hash": block_hash}
        return _tagged({"server_version": VERSION, "status": "ready", "chain_tip": tip}, block_hash)

    # Look-ups

    def _find_transaction(self, tx_id: str) -> ChainTransaction | None:
        """A transaction by id, in any letter case; None when it vanished or is still within the lag."""
        tx = self.chain.transactions.get(tx_id.lower())
        if tx is None or tx.state == "vanished":
            return None
        return None if self.chain.now_ms < tx.received_ms + self.index_lag_ms else tx

    def _network_list_end(self) -> int:
        """How many of the chain's transactions are old enough for the network's list."""
        newest_ms = self.chain.now_ms - self.list_lag_ms
        if self.list_stopped_ms is not None:
            newest_ms = min(newest_ms, self.list_stopped_ms)
        newest_s = newest_ms // 1000
        return bisect_right(self.chain.index.all, newest_s, key=_block_time_s)

    def _is_listed(self, tx: ChainTransaction) -> bool:
        """Return whether the network's list shows it. The id decides: a larger share omits the same ones and more."""
        return int(tx.tx_id[2:14], 16) >= self.omitted_share * 16**12

    def _principal_tag(self, principal: str) -> str:
        """Return a tag of the newest id only: a transaction mined again in another block does not change it."""
        transactions = self.chain.index.of(principal)
        return transactions[-1].tx_id if transactions else ""


def _route(path: str, handler: HiroHandler, *, deprecated: bool = False) -> HiroRoute:
    return HiroRoute(re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), handler, deprecated)


def _check_params(request: SimulatedRequest, params: Mapping[str, str]) -> None:
    if "principal" in params and not PRINCIPAL.fullmatch(params["principal"]):
        raise HiroHttpError(400, f'params/principal must match pattern "{PRINCIPAL.pattern}"')
    tx_id = params.get("tx_id")
    if tx_id is None:
        return
    if not TX_ID.fullmatch(tx_id):
        raise HiroHttpError(400, TX_ID_RULE)
    if tx_id.startswith("0x"):
        return
    query = f"?{request.query_text}" if request.query_text else ""
    target = request.path.replace(tx_id, "0x" + tx_id) + query
    raise HiroHttpError(302, "", SimulatedReply(302, b"", {"location": target}))


def _tx_ids(query: HiroQuery) -> list[str]:
    ids = [tx_id for text in query.all("tx_id") for tx_id in text.split(",") if tx_id]
    if not ids:
        raise HiroHttpError(400, "querystring must have required property 'tx_id'")
    if any(not TX_ID.fullmatch(tx_id) for tx_id in ids):
        raise HiroHttpError(400, TX_ID_RULE.replace("params/tx_id", "querystring/tx_id/0"))
    return ids


def _v1_row(tx: ChainTransaction, events: tuple[int, int], query: HiroQuery) -> dict[str, Any]:
    limit, offset = events
    args = not query.flag("exclude_function_args")
    return hiro_rows.v1_transaction(tx, slice(offset, offset + limit), function_args=args)


def _transaction_tag(tx: ChainTransaction) -> str:
    return f"{tx.tx_id}:{_index_hash(tx) if tx.state == 'mined' else ''}:{tx.status}"


def _index_hash(tx: ChainTransaction) -> str:
    return tx.block.index_hash if tx.block else ""


def _block_time_s(tx: ChainTransaction) -> int:
    return tx.block.time_s if tx.block else 0


def _tagged(body: object, etag: str) -> SimulatedReply:
    return json_reply(200, body, tag_headers(etag))
