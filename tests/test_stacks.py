"""Stacks addresses are decoded: every valid one is accepted, and a wrong character is noticed."""

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks_simulator.addresses import encode_address
from tocsin.stacks import (
    ADDRESS_PATTERN,
    C32,
    MULTI_SIG,
    SINGLE_SIG,
    TOKEN_ID_PATTERN,
    decode_address,
    is_address,
    is_contract_id,
    is_principal,
    is_token_id,
)

AGENT = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
SHORT = "SPG4A1SAV4F6E9GJYPNVH1NDC28STBW9DRHBN37"  # 39 characters
MANY = 20_000

hashes = st.binary(min_size=20, max_size=20)
versions = st.sampled_from([SINGLE_SIG, MULTI_SIG])


@pytest.mark.parametrize(
    ("address", "version", "hash160"),
    [
        # The vectors of the c32check library.
        ("SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7", 22, "a46ff88886c2ef9762d970b4d2c63678835bd39d"),
        ("SP000000000000000000002Q6VF78", 22, "00" * 20),
        ("SP00000000000000000005JA84HQ", 22, "00" * 19 + "01"),
        ("SP80000000000000000000000000000004R0CMNV", 22, "10" + "00" * 18 + "01"),
        ("SP800000000000000000000000000000033H8YKK", 22, "10" + "00" * 19),
        ("SM2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKQVX8X0G", 20, "a46ff88886c2ef9762d970b4d2c63678835bd39d"),
        ("SM0000000000000000000062QV6X", 20, "00" * 20),
        ("SM00000000000000000005VR75B2", 20, "00" * 19 + "01"),
        ("SM80000000000000000000000000000004WBEWKC", 20, "10" + "00" * 18 + "01"),
        ("SM80000000000000000000000000000000JGSYGV", 20, "10" + "00" * 19),
    ],
)
def test_published_vectors(address: str, version: int, hash160: str) -> None:
    """Both directions, with zeros in front as well."""
    assert decode_address(address) == (version, bytes.fromhex(hash160))
    assert encode_address(version, bytes.fromhex(hash160)) == address


@pytest.mark.slow
def test_every_valid_address_is_accepted_and_every_wrong_character_noticed() -> None:
    """20,000 random addresses of 39 to 41 characters; then each with one other character at a random place."""
    random = Random(5)
    lengths: Counter[int] = Counter()
    form = re.compile(ADDRESS_PATTERN)
    for _ in range(MANY):
        address = encode_address(random.choice((SINGLE_SIG, MULTI_SIG)), random.randbytes(20))
        lengths[len(address)] += 1
        place = random.randrange(len(address))
        other = random.choice(C32.replace(address[place], ""))

        assert is_address(address), address
        assert form.match(address), address
        assert not is_address(address[:place] + other + address[place + 1 :]), (address, place, other)

    assert set(lengths) >= {39, 40, 41}
    assert max(lengths) == 41


@given(versions, hashes)
def test_what_is_encoded_is_decoded(version: int, hash160: bytes) -> None:
    """And the pattern of the API allows it."""
    address = encode_address(version, hash160)

    assert decode_address(address) == (version, hash160)
    assert re.match(ADDRESS_PATTERN, address)


@given(versions, hashes, st.integers(1, 3))
def test_zeros_in_front_belong_to_the_address(version: int, hash160: bytes, count: int) -> None:
    """An address has one spelling: with one zero more or less it is another text, and none."""
    address = encode_address(version, hash160)
    digits = address[2:]

    assert not is_address(address[:2] + "0" * count + digits)
    assert not is_address(address[:2] + digits[1:])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be SP or SM"),
        ("SP", "must be SP or SM"),
        (f"{AGENT}\n", "must be SP or SM"),
        (f" {AGENT}", "must be SP or SM"),
        (AGENT.lower(), "must be SP or SM"),
        (AGENT.replace("0", "O"), "must be SP or SM"),
        (AGENT.replace("1", "I"), "must be SP or SM"),
        ("ST13F481SBR0R7Z6NMMH8YV2FJJYXA5JPA0AD3HP9", "must be SP or SM"),  # testnet
        ("bc1qexample", "must be SP or SM"),
        ("SP" + "Z" * 40, "must be SP or SM"),  # 42 characters
        ("SP" + "Z" * 39, "wrong number of characters"),  # more than 24 bytes
        (AGENT[:-1], "wrong number of characters|wrong checksum"),
        (AGENT[:-1] + "F", "wrong checksum"),
        ("SM" + AGENT[2:], "wrong checksum"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    """Form, length or checksum."""
    with pytest.raises(ValueError, match=problem):
        decode_address(text)


@pytest.mark.slow
@given(st.text(max_size=50) | st.from_regex(ADDRESS_PATTERN))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    """With True or False, and nothing else."""
    assert is_address(text) in {True, False}
    assert is_principal(text) is is_address(text) or "." in text


def test_a_contract_is_an_address_and_a_name() -> None:
    """The deployer is decoded like any address."""
    assert is_contract_id(f"{SHORT}.pool-v-1")
    assert is_principal(f"{SHORT}.pool-v-1")
    assert is_principal(SHORT)
    for text in (SHORT, f"{SHORT}.", f"{SHORT}.9", f"{SHORT}.a.b", f"{SHORT[:-1]}8.pool", f".{SHORT}"):
        assert not is_contract_id(text)
    assert not is_contract_id(f"{SHORT}.{'a' * 129}")


def test_a_token_is_stx_or_a_contract_with_or_without_its_asset() -> None:
    """The pattern of the API allows the same, but for the checksum."""
    pattern = re.compile(TOKEN_ID_PATTERN)
    for text in ("stx", f"{SHORT}.token", f"{SHORT}.token::asset", f"{SHORT}.token::t-1_x"):
        assert is_token_id(text)
        assert pattern.match(text)
    for text in ("stx::asset", "STX", f"{SHORT}.token::", f"{SHORT}.token::a::b", SHORT, f"{SHORT}.", f"{SHORT}.9"):
        assert not is_token_id(text)
        assert not pattern.match(text)
    for text in ("", "stx ", "stx\n", "unknown", "SP1.a::b", f"{SHORT[:-1]}8.token", f"{SHORT}.{'a' * 129}"):
        assert not is_token_id(text)
