"""Clarity values as Hiro shows them: the serialised hex and the readable form."""

from tocsin.stacks_address import decode_address

ClarityValue = dict[str, str]


def uint(value: int) -> ClarityValue:
    return {"hex": "0x01" + f"{value:032x}", "repr": f"u{value}"}


def ok_uint(value: int) -> ClarityValue:
    return {"hex": "0x07" + uint(value)["hex"][2:], "repr": f"(ok u{value})"}


def err_uint(value: int) -> ClarityValue:
    return {"hex": "0x08" + uint(value)["hex"][2:], "repr": f"(err u{value})"}


def optional_principal(address: str | None) -> ClarityValue:
    if address is None:
        return {"hex": "0x09", "repr": "none"}
    version, hash160 = decode_address(address)
    principal = f"05{version:02x}{hash160.hex()}"
    return {"hex": "0x0a" + principal, "repr": f"(some '{address})"}


def action_tuple(action: str) -> ClarityValue:
    """`(tuple (action "…"))`, which swap contracts print."""
    name, text = b"action", action.encode("ascii")
    head = f"0x0c00000001{len(name):02x}{name.hex()}"
    return {"hex": f"{head}0d{len(text):08x}{text.hex()}", "repr": f'(tuple (action "{action}"))'}
