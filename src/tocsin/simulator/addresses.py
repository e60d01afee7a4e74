"""Well-formed Stacks addresses and hashes derived from text: repeatable, and owned by nobody."""

import hashlib

C32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
MAINNET_SINGLE_SIG = 22  # the address version that gives the prefix "SP"
CHECKSUM_BYTES = 4


def digest(text: str) -> str:
    """A 32-byte hash as Stacks writes it: `0x` and 64 lower-case hex digits."""
    return "0x" + hashlib.sha256(text.encode()).hexdigest()


def address_of(text: str) -> str:
    """An `SP…` address with a valid checksum, the same for the same text."""
    raw = hashlib.sha256(text.encode()).digest()[:20]
    hash160 = bytes([raw[0] | 0x80]) + raw[1:]  # no leading zero, so that every address has 41 characters
    return "S" + C32[MAINNET_SINGLE_SIG] + _c32(hash160 + _checksum(MAINNET_SINGLE_SIG, hash160))


def hash160_of(address: str) -> bytes:
    """The 20 bytes that an address encodes; ValueError when its checksum is wrong."""
    number = 0
    for digit in address[2:]:
        number = number * 32 + C32.index(digit)
    payload = number.to_bytes(20 + CHECKSUM_BYTES, "big")
    hash160, checksum = payload[:20], payload[20:]
    if checksum != _checksum(C32.index(address[1]), hash160):
        raise ValueError(f"{address} is not a Stacks address: its checksum does not match")
    return hash160


def _checksum(version: int, hash160: bytes) -> bytes:
    inner = hashlib.sha256(bytes([version]) + hash160).digest()
    return hashlib.sha256(inner).digest()[:CHECKSUM_BYTES]


def _c32(payload: bytes) -> str:
    number = int.from_bytes(payload, "big")
    digits = []
    while number:
        number, digit = divmod(number, 32)
        digits.append(C32[digit])
    return "".join(reversed(digits))
