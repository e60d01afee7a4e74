"""Stacks mainnet addresses, and the ids that begin with one: contracts and tokens. Pure.

An address is `S`, a version and 24 bytes in c32check: the 20 bytes of a hash and 4 bytes of checksum. Each leading zero
byte is one `0`, and the rest has no leading zeros. So an address has 28 to 41 characters: three of four have 41, one of
234 has 39. Each address has one spelling. Characters that c32 would read as others (lower case, `O`, `I`, `L`) are
refused, because stored addresses are compared as text.
"""

import re
from hashlib import sha256

from tocsin.chain_model import STX

C32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SINGLE_SIG = 22  # the version that gives the prefix SP
MULTI_SIG = 20  # the version that gives the prefix SM
HASH_BYTES = 20
CHECKSUM_BYTES = 4

_VERSIONS = {"P": SINGLE_SIG, "M": MULTI_SIG}
_PAYLOAD_BYTES = HASH_BYTES + CHECKSUM_BYTES
_ADDRESS = "S[MP][0-9A-HJKMNP-TV-Z]{26,39}"
_NAME = "[A-Za-z][A-Za-z0-9_-]{0,127}"
_CONTRACT = rf"{_ADDRESS}\.{_NAME}"

# Everything that a pattern can check; the functions below check the checksum.
ADDRESS_PATTERN = f"^{_ADDRESS}$"
TOKEN_ID_PATTERN = f"^(?:{STX}|{_CONTRACT}(?:::{_NAME})?)$"

_ADDRESS_FORM = re.compile(_ADDRESS)
_NAME_FORM = re.compile(_NAME)
_TO_PYTHON = str.maketrans(C32, "0123456789abcdefghijklmnopqrstuv")  # the digits of int(…, 32)


def decode_address(text: str) -> tuple[int, bytes]:
    """The version and the 20 bytes of a mainnet address; raises ValueError with what is wrong with it."""
    if _ADDRESS_FORM.fullmatch(text) is None:
        raise ValueError("is not SP or SM and 26 to 39 digits and capital letters without I, L, O and U")
    digits = text[2:]
    number = int(digits.translate(_TO_PYTHON), 32)
    bits = number.bit_length()
    zero_bytes = _PAYLOAD_BYTES - (bits + 7) // 8
    if zero_bytes < 0 or len(digits) != zero_bytes + (bits + 4) // 5:
        raise ValueError("has a wrong number of characters: one is missing or too many")
    payload = number.to_bytes(_PAYLOAD_BYTES, "big")
    version = _VERSIONS[text[1]]
    if payload[HASH_BYTES:] != _checksum(version, payload[:HASH_BYTES]):
        raise ValueError("has a wrong checksum: at least one character is wrong")
    return version, payload[:HASH_BYTES]


def encode_address(version: int, hash160: bytes) -> str:
    """The address of a version and 20 bytes."""
    payload = hash160 + _checksum(version, hash160)
    number = int.from_bytes(payload, "big")
    digits = ["0"] * (len(payload) - len(payload.lstrip(b"\0")))
    for place in reversed(range((number.bit_length() + 4) // 5)):
        digits.append(C32[number >> 5 * place & 31])
    return "S" + C32[version] + "".join(digits)


def is_address(text: str) -> bool:
    """Whether it is a mainnet address with the right checksum."""
    try:
        decode_address(text)
    except ValueError:
        return False
    return True


def is_contract_id(text: str) -> bool:
    """Whether it is `ADDRESS.name`."""
    deployer, _, name = text.partition(".")
    return _NAME_FORM.fullmatch(name) is not None and is_address(deployer)


def is_principal(text: str) -> bool:
    """Whether it is an address or a contract."""
    return is_contract_id(text) if "." in text else is_address(text)


def is_token_id(text: str) -> bool:
    """Whether it is `stx`, a contract, or `contract::asset`."""
    contract, separator, asset = text.partition("::")
    if separator and _NAME_FORM.fullmatch(asset) is None:
        return False
    return text == STX or is_contract_id(contract)


def _checksum(version: int, hash160: bytes) -> bytes:
    return sha256(sha256(bytes((version,)) + hash160).digest()).digest()[:CHECKSUM_BYTES]
