"""Well-formed Stacks addresses and hashes derived from text: repeatable, and owned by nobody."""

import hashlib

from tocsin.stacks_address import HASH_BYTES, SINGLE_SIG, encode_address


def digest(text: str) -> str:
    """A 32-byte hash as Stacks writes it: `0x` and 64 lower-case hex digits."""
    return "0x" + hashlib.sha256(text.encode()).hexdigest()


def address_of(text: str) -> str:
    """An `SP…` address with a valid checksum, the same for the same text. Lengths vary, as on the chain."""
    return encode_address(SINGLE_SIG, hashlib.sha256(text.encode()).digest()[:HASH_BYTES])
