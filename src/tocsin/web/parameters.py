"""The parameters of a route: one declaration parses them, refuses wrong ones with a sentence, and documents them.

The handler of a route has an argument for each, annotated with its `Parameter`; one without a default is required. An
empty parameter counts as absent, unless it is `strict`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal, TypeAlias

from starlette.requests import Request

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.errors import RequestRefused
from tocsin.stacks import ADDRESS_PATTERN, TOKEN_ID_PATTERN, TXID_PATTERN, is_token_id
from tocsin.swaps.trades import PATTERN as CURSOR_PATTERN
from tocsin.swaps.trades import check_address
from tocsin.text import camel_case

Place: TypeAlias = Literal["query", "path", "header"]
Reader: TypeAlias = Callable[[str, str], Any]  # of the name and the text of a parameter

EXAMPLE_TXID = "0x46bc5587ae56e5bd4453daa2bf63c2a9e0414953fd21a82eb44f2f926f0ee0e4"
EXAMPLE_SENDER = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
COUNT_MAX = 9_999_999  # what the database can take
_WHOLE = re.compile(r"[0-9]{1,15}")
_LEADING = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Parameter:
    """`schema` is JSON Schema. Without a `name`, it has the argument's, in camelCase."""

    description: str
    schema: Mapping[str, JSON]
    read: Reader = lambda _name, text: text
    name: str = ""
    place: Place = "query"
    strict: bool = False
    required: bool = False
    default: Any = None
    example: JSON = None

    def in_path(self) -> "Parameter":
        return replace(self, place="path")


def parameters(handler: Callable[..., object]) -> dict[str, Parameter]:
    """The parameters of a handler, by argument."""
    found: dict[str, Parameter] = {}
    for argument in signature(handler).parameters.values():
        for declared in getattr(argument.annotation, "__metadata__", ()):
            name, required = declared.name or camel_case(argument.name), argument.default is argument.empty
            default = None if required else argument.default
            found[argument.name] = replace(declared, name=name, required=required, default=default)
    return found


def read_values(parameters: Mapping[str, Parameter], text_of: Callable[[Parameter], str | None]) -> dict[str, Any]:
    """The values of arguments, given the text of each parameter. Refuses a parameter that is wrong or missing."""
    values: dict[str, Any] = {}
    for argument, parameter in parameters.items():
        text = text_of(parameter)
        is_given = text or parameter.required or (text is not None and parameter.strict)
        values[argument] = parameter.read(parameter.name, text or "") if is_given else parameter.default
    return values


def sent_text(request: Request, parameter: Parameter) -> str | None:
    if parameter.place == "path":
        return str(request.path_params[parameter.name])
    if parameter.place == "header":
        return request.headers.get(parameter.name)
    if parameter.schema.get("type") == "array":
        return ",".join(request.query_params.getlist(parameter.name))
    return request.query_params.get(parameter.name)


def one_of(options: Sequence[str], description: str, code: str = "bad_request") -> Parameter:
    known = " or ".join(options) if len(options) == 2 else f"one of {', '.join(options)}"

    def read(name: str, text: str) -> str:
        if text not in options:
            raise RequestRefused(400, code, f"{name} is {known}, not {text[:40]!r}.")
        return text

    return Parameter(description, {"type": "string", "enum": ["", *options]}, read)


def whole(description: str, example: int, largest: int | None = None, smallest: int = 0) -> Parameter:
    """A whole number; anything else is refused with an example."""
    bounds: dict[str, JSON] = {"minimum": smallest, **({} if largest is None else {"maximum": largest})}

    def read(name: str, text: str) -> int:
        if _WHOLE.fullmatch(text) is None:
            raise RequestRefused(400, f"bad_{name}", f"{name} is a whole number, such as {name}={example}.")
        if largest is not None and not smallest <= int(text) <= largest:
            raise RequestRefused(400, f"bad_{name}", f"{name} is {smallest} to {largest}.")
        return int(text)

    return Parameter(description, {"type": "integer", **bounds}, read, strict=True)


def nearest(default: int, largest: int) -> Parameter:
    """The allowed limit nearest to the number that was sent: clients of the site rely on that."""
    text = f"{default} by default; the nearest whole number from 1 to {largest} is used"
    return Parameter(text, {"type": "number"}, lambda name, sent: min(largest, max(1, _leading(name, sent, default))))


def count(description: str) -> Parameter:
    """A number from 0 on, read as leniently as the site does: beyond the largest, it is the largest."""

    def read(name: str, text: str) -> int:
        number = _leading(name, text, 1)
        if number < 0:
            raise UsageError(f"{name} is a whole number such as 1, not {number}.")
        return min(number, COUNT_MAX)

    return Parameter(description, {"type": "number"}, read)


def _leading(name: str, text: str, example: int) -> int:
    """The whole number that a text begins with, as JavaScript's `parseInt` reads it for the site's clients."""
    found = _LEADING.match(text.strip() or str(example))
    if found is None:
        raise UsageError(f"{name} is a number such as {example}, not {text.strip()[:40]!r}.")
    return int(found[0][:30])


def text(description: str, name: str = "", **schema: JSON) -> Parameter:
    return Parameter(description, {"type": "string", **schema}, name=name)


def _address(_name: str, sent: str) -> str:
    check_address(sent)
    return sent


def _token_ids(_name: str, sent: str) -> tuple[str, ...]:
    ids = [each for each in sent.split(",") if each]
    if len(ids) > TOKENS_MAX:
        sentence = f"At most {TOKENS_MAX} tokens can be requested at once, not {len(ids)}: split the request."
        raise RequestRefused(400, "too_many_tokens", sentence)
    return tuple(_token_id("", each) for each in dict.fromkeys(ids))


def _token_id(_name: str, sent: str) -> str:
    if not is_token_id(sent):
        sentence = f"{sent[:120]!r} is not a token id: give `stx`, a contract, or `contract::asset`."
        raise RequestRefused(400, "malformed_token", sentence, token=sent[:300])
    return sent


TOKENS_MAX = 100
ADDRESS = Parameter(
    "a Stacks mainnet address",
    {"type": "string", "pattern": ADDRESS_PATTERN},
    _address,
    strict=True,
    example=EXAMPLE_SENDER,
)
TOKEN_ID = Parameter(
    "a token id", {"type": "string", "pattern": TOKEN_ID_PATTERN}, _token_id, strict=True, example="stx"
)
TOKEN_IDS = Parameter(
    f"token ids, separated by commas, {TOKENS_MAX} at most; every tracked token by default",
    {"type": "array", "items": {"type": "string", "pattern": f"^$|{TOKEN_ID_PATTERN}"}, "maxItems": TOKENS_MAX},
    _token_ids,
)
TXID = Parameter(
    "a transaction id: 64 hex digits, with or without 0x before them",
    {"type": "string", "pattern": TXID_PATTERN},
    example=EXAMPLE_TXID,
)
CURSOR = text("the cursor from the previous page", pattern=CURSOR_PATTERN)


def _event(_name: str, sent: str) -> int | None:
    return int(sent) if _WHOLE.fullmatch(sent) else None


LAST_EVENT = Parameter("continue after this event", {"type": "string"}, _event, "Last-Event-ID", "header")
