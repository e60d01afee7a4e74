"""STX that listed transactions brought somebody, where Hiro's rows tell. Pure.

It is evidence of who funded a wallet, and nothing else rests on it: what cannot be read is none.
"""

from tocsin.chain_model import StxPayment
from tocsin.errors import MalformedBody
from tocsin.upstream.decode import JsonObject, amount, record, text


def transferred(row: JsonObject) -> StxPayment | None:
    """What a plain transfer of STX brought its recipient."""
    if row.get("type") != "token_transfer" or row.get("status") != "success":
        return None
    try:
        transfer = record(row, "token_transfer")
        return StxPayment(text(transfer, "recipient"), amount(transfer, "amount"))
    except MalformedBody:
        return None


def received(row: JsonObject, principal: str) -> StxPayment | None:
    """What a transaction brought the principal in whose list it is, be it by a transfer or by a contract."""
    try:
        gotten = amount(record(record(row, "balance_changes"), "stx"), "received")
    except MalformedBody:
        return None
    return StxPayment(principal, gotten) if gotten else None
