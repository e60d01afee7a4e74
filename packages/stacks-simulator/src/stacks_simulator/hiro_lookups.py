"""What sites look up at Hiro: names, identities, balances, and read-only contract calls, which cost two.

Names and identities are those of the wallets; a balance changes with each transaction of its principal. An address is
its own name in hex in the result of a contract call, whatever the function.
"""

import json
import re
from collections.abc import Mapping

from stacks_simulator.chain import Chain
from stacks_simulator.hiro_pages import HiroHttpError, HiroQuery, tag_headers
from stacks_simulator.http_messages import SimulatedReply, SimulatedRequest, json_reply

READ_ONLY = re.compile(r"/v2/contracts/call-read/[^/]+/[^/]+/[^/]+")
READ_ONLY_COST = 2


def cost_of(request: SimulatedRequest) -> int:
    """As how many requests Hiro counts one."""
    return READ_ONLY_COST if READ_ONLY.fullmatch(request.path) else 1


class LookupApi:
    """The look-ups on one chain. `names` counts the changes of names, for the ETag."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.names: dict[str, str] = {}  # by address, in addition to those of the wallets

    def name(self, query: HiroQuery, params: Mapping[str, str]) -> SimulatedReply:
        owner = next((owner for owner, name in self._names().items() if name == params["name"]), None)
        if owner is None:
            raise HiroHttpError(404, "cannot find subdomain")
        query.end_if_known(owner)
        return json_reply(200, {"address": owner, "blockchain": "stacks"}, tag_headers(owner))

    def names_of(self, query: HiroQuery, params: Mapping[str, str]) -> SimulatedReply:
        names = [name for owner, name in self._names().items() if owner == params["principal"]]
        query.end_if_known("".join(names) or "none")
        return json_reply(200, {"names": names}, tag_headers("".join(names) or "none"))

    def identities(self, query: HiroQuery, _params: Mapping[str, str]) -> SimulatedReply:
        owner = query.text("principal", r"S[0-9A-Z.a-z_-]+")
        rows = [
            {"asset_identifier": "SP1.identity::agent", "value": {"repr": f"u{wallet.erc8004_agent_id}"}}
            for wallet in self._chain.wallets
            if wallet.address == owner and wallet.erc8004_agent_id is not None
        ]
        query.end_if_known(f"{owner}:{len(rows)}")
        return json_reply(200, {"total": len(rows), "results": rows}, tag_headers(f"{owner}:{len(rows)}"))

    def balances(self, query: HiroQuery, params: Mapping[str, str]) -> SimulatedReply:
        count = len(self._chain.index.of(params["principal"]))
        tag = f"{params['principal']}:{count}"
        query.end_if_known(tag)
        stx = {"balance": str(10_000_000 + count), "locked": "0"}
        return json_reply(200, {"stx": stx, "fungible_tokens": {}}, tag_headers(tag))

    def call(self, request: SimulatedRequest) -> SimulatedReply:
        try:
            asked = json.loads(request.body)
            sender, arguments = asked["sender"], asked["arguments"]
        except (ValueError, KeyError, TypeError):
            raise HiroHttpError(400, "body must have required properties 'sender' and 'arguments'") from None
        return json_reply(200, {"okay": True, "result": "0x" + f"{sender}{len(arguments)}".encode().hex()})

    def _names(self) -> dict[str, str]:
        known = {wallet.address: wallet.bns_name for wallet in self._chain.wallets if wallet.bns_name}
        return {**known, **self.names}
