"""Well-formed Stacks addresses and hashes derived from text: repeatable, and owned by nobody."""

import hashlib

C32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SINGLE_SIG = 22  # the version that gives the prefix SP
HASH_BYTES = 20
CHECKSUM_BYTES = 4


def digest(text: str) -> str:
    """A 32-byte hash as Stacks writes it: `0x` and 64 lower-case hex digits."""
    return "0x" + hashlib.sha256(text.encode()).hexdigest()


def address_of(text: str) -> str:
    """An `SP…` address with a valid checksum, the same for the same text. Lengths vary, as on the chain."""
    return encode_address(SINGLE_SIG, hashlib.sha256(text.encode()).digest()[:HASH_BYTES])


def encode_address(version: int, hash160: bytes) -> str:
    """The address of a version and 20 bytes."""
    payload = hash160 + _checksum(version, hash160)
    number = int.from_bytes(payload, "big")
    digits = ["0"] * (len(payload) - len(payload.lstrip(b"\0")))
    for place in reversed(range((number.bit_length() + 4) // 5)):
        digits.append(C32[number >> 5 * place & 31])
    return "S" + C32[version] + "".join(digits)


def decode_address(text: str) -> tuple[int, bytes]:
    """The version and the 20 bytes of an address that `encode_address` made."""
    number = 0
    for digit in text[2:]:
        number = number << 5 | C32.index(digit)
    return C32.index(text[1]), number.to_bytes(HASH_BYTES + CHECKSUM_BYTES, "big")[:HASH_BYTES]


def _checksum(version: int, hash160: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(bytes([version]) + hash160).digest()).digest()[:CHECKSUM_BYTES]
