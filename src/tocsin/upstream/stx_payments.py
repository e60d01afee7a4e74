"""STX that somebody received by listed transactions, if Hiro's rows show it. Pure.

It is evidence of who funded a wallet, and nothing else depends on it: an unreadable payment counts as none.
"""

from tocsin.chain_model import StxPayment
from tocsin.errors import MalformedBody
from tocsin.upstream.decode import JsonObject, amount, record, text


def transferred(row: JsonObject) -> StxPayment | None:
    """The payment of a plain STX transfer."""
    if row.get("type") != "token_transfer" or row.get("status") != "success":
        return None
    try:
        transfer = record(row, "token_transfer")
        return StxPayment(text(transfer, "recipient"), amount(transfer, "amount"))
    except MalformedBody:
        return None


def received(row: JsonObject, principal: str) -> StxPayment | None:
    """The STX that the principal received by a transaction in its list, by a transfer or by a contract."""
    try:
        gotten = amount(record(record(row, "balance_changes"), "stx"), "received")
    except MalformedBody:
        return None
    return StxPayment(principal, gotten) if gotten else None
