"""What leaves the process is JSON, bounded, and without secrets."""

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.logs import DEPTH_MAX, ITEMS_MAX, MASK, TEXT_MAX, Redactor

SECRET = 'k"ey/with spaces+é'


class Unprintable:
    """Raises when it is converted to text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "value",
    [
        SECRET,
        f"Bearer {SECRET}!",
        [1, [SECRET]],
        {"a": {"b": (f"x{SECRET}",)}},
        {SECRET: 1},
        {SECRET},
        ValueError(f"bad key {SECRET}"),
        f"x{SECRET}".encode(),
        "https://host/?key=k%22ey%2Fwith%20spaces%2B%C3%A9",
        "key=k%22ey%2Fwith+spaces%2B%C3%A9",
        json.dumps({"key": SECRET}),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(value: object) -> None:
    """In fields, keys, lists, errors, bytes; plain, percent-encoded, or inside JSON text."""
    text = json.dumps(Redactor([SECRET])({"field": value}), ensure_ascii=False)

    assert MASK in text
    for form in (SECRET, "k%22ey", 'k\\"ey'):
        assert form not in text


KEY = "Hiro-key_0123/456+789~é"


@pytest.mark.parametrize("around", ["", "a", "ab", "name:"])
@pytest.mark.parametrize(
    "echo",
    [
        lambda raw: base64.b64encode(raw).decode(),
        lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="),
        lambda raw: raw.hex().upper(),
        lambda raw: raw.decode().upper(),
        lambda raw: raw.decode().swapcase(),
        lambda raw: raw.decode()[::-1],
    ],
)
def test_a_server_that_plays_with_our_key_does_not_get_it_into_the_log(
    around: str, echo: Callable[[bytes], str]
) -> None:
    """Encoded, alone or within a longer text, in another case, or backwards: at most four characters are left."""
    sent = echo(f"{around}{KEY}{around}".encode())
    shown = Redactor([KEY]).text(f'{{"error": "{sent}"}}')
    left = shown.replace(MASK, "").removeprefix('{"error": "').removesuffix('"}')

    assert MASK in shown
    assert len(left) <= 2 * len(echo(around.encode())) + 4


def test_encodings_of_a_short_secret_do_not_blot_out_other_words() -> None:
    """Reversed or in base64, four characters are part of too many words."""
    assert Redactor(["door"]).text("the rood DOOR") == f"the rood {MASK}"


def test_a_secret_that_is_a_prefix_of_another_does_not_reveal_it() -> None:
    """The longer one is masked completely."""
    assert Redactor(["abc", "abcdef"]).text("abcdef abc") == f"{MASK} {MASK}"


def test_a_secret_made_of_digits_is_masked_in_numbers() -> None:
    """A number that contains a secret becomes text. Others stay numbers."""
    assert Redactor(["4711"])([4711, 147112, 471.1, 5]) == [MASK, f"1{MASK}2", 471.1, 5]


def test_an_empty_secret_masks_nothing() -> None:
    """A setting that is not set is not a secret."""
    assert Redactor([""]).text("text") == "text"


def test_a_secret_that_is_learned_later_is_masked_besides_the_others() -> None:
    """A reload adds secrets; those that it removed may still be in use elsewhere."""
    redactor = Redactor(["the-old-key"])
    mask = redactor.text  # as others hold it
    redactor.learn(["the-new-key"])

    assert mask("the-old-key the-new-key") == f"{MASK} {MASK}"


def test_a_long_text_is_cut_after_masking() -> None:
    """The cut cannot leave the first part of a secret."""
    text = Redactor(["SECRET"]).text("x" * (TEXT_MAX - 3) + "SECRET" + "y" * 100)

    assert "SEC" not in text
    assert text.endswith(" more")
    assert len(text) < TEXT_MAX + 30


def test_what_is_not_json_becomes_text() -> None:
    """Objects, errors, bytes, NaN and infinity are written as text, not refused."""
    values: list[Any] = [ValueError("no"), b"\xff", math.nan, math.inf, 2**80, Unprintable(), None, True]

    assert Redactor()(values) == [
        "ValueError: no",
        "\\xff",
        "nan",
        "inf",
        2**80,
        "<Unprintable that cannot be shown>",
        None,
        True,
    ]


def test_endless_structures_end() -> None:
    """A list that contains itself, and a very long one, are cut."""
    circle: list[object] = []
    circle.append(circle)

    assert json.dumps(Redactor()(circle)).count("[") <= DEPTH_MAX + 2
    assert Redactor()(list(range(ITEMS_MAX * 2))) == list(range(ITEMS_MAX))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('abS1"\\/é %+', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abS1", max_size=6), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(JSON_VALUES, st.lists(st.text('abS1"/é', min_size=1, max_size=4), max_size=3))
def test_no_secret_is_left_in_any_value(value: object, secrets: list[str]) -> None:
    """For any value and any secrets, no text in the result contains a secret."""

    def texts(part: Any) -> list[str]:
        if isinstance(part, dict):
            return [text for key, item in part.items() for text in (key, *texts(item))]
        if isinstance(part, list):
            return [text for item in part for text in texts(item)]
        return [str(part)] if not isinstance(part, bool) and part is not None else []

    clean = texts(Redactor(secrets)(value))

    assert not [(text, secret) for text in clean for secret in secrets if secret in text.replace(MASK, "\N{BULLET}")]


@pytest.mark.slow
@given(JSON_VALUES)
def test_without_secrets_json_is_left_alone(value: object) -> None:
    """Plain values within the limits stay unchanged."""
    assert Redactor()(value) == json.loads(json.dumps(value)) or any(math.isinf(number) for number in _floats(value))


def _floats(part: object) -> list[float]:
    if isinstance(part, dict):
        return [number for item in part.values() for number in _floats(item)]
    if isinstance(part, list):
        return [number for item in part for number in _floats(item)]
    return [part] if isinstance(part, float) else []
