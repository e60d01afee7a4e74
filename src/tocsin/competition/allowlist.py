"""Which contracts and functions count. The list is data, not code: operators extend it with a file of the same form.

The version is a digest of the entries, so it changes exactly when the list does. Transactions that were refused under
another version are verified again.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tocsin.chain_model import ContractCall
from tocsin.errors import StartError, UsageError
from tocsin.shapes.competition import AllowedContract, AllowListView
from tocsin.stacks_address import is_address, is_contract_id

_FUNCTION = re.compile(r"[a-zA-Z][a-zA-Z0-9\-_!?+<>=/*]{0,127}")
_PROTOCOL = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_FIELDS = ("contracts", "protocol", "provider_address", "provider_attribution_contracts")
_EXAMPLE = '{"protocol": "alex", "contracts": {"SP….router-v-1-1": ["swap-helper-a"]}}'

UNNAMED_PROTOCOL = "other"  # for a file that does not name one


@dataclass(frozen=True)
class AllowList:
    """Contract ids and the functions that count of each. Only top-level calls count, and names must match exactly.

    `protocols` names the DEX that each contract belongs to.
    """

    contracts: Mapping[str, frozenset[str]]
    protocols: Mapping[str, str] = field(default_factory=dict)
    provider_address: str = ""
    attribution: frozenset[str] = frozenset()  # contracts that name a provider in their call

    @cached_property
    def version(self) -> str:
        entries = json.dumps({name: sorted(self.contracts[name]) for name in sorted(self.contracts)})
        return hashlib.sha256(entries.encode()).hexdigest()[:12]

    def allows(self, call: ContractCall) -> bool:
        return call.function_name in self.contracts.get(call.contract_id, ())

    def plus(self, other: "AllowList") -> "AllowList":
        """Return both lists combined; a contract in both has the functions of both."""
        contracts = dict(self.contracts)
        for name, functions in other.contracts.items():
            contracts[name] = contracts.get(name, frozenset()) | functions
        return AllowList(
            contracts,
            {**other.protocols, **self.protocols},
            other.provider_address or self.provider_address,
            self.attribution | other.attribution,
        )

    def view(self) -> AllowListView:
        """Return the list as `GET /api/competition/allowlist` shows it."""
        entries = [
            AllowedContract(name, sorted(self.contracts[name]), self.protocols.get(name, UNNAMED_PROTOCOL))
            for name in sorted(self.contracts)
        ]
        return AllowListView(
            version=self.version,
            entries=entries,
            total_contracts=len(self.contracts),
            total_functions=sum(len(functions) for functions in self.contracts.values()),
            provider_address=self.provider_address,
            protocols=dict(sorted(Counter(entry.protocol for entry in entries).items())),
        )


def built_in() -> AllowList:
    """The list that comes with this release."""
    return parse((Path(__file__).parent / "allowlist.json").read_text(encoding="utf-8"), "allowlist.json")


def with_added(added: str | None) -> AllowList:
    """Return the built-in list plus the additions of a deployment: the name of a file, or the JSON itself."""
    if added is None:
        return built_in()
    try:
        if added.startswith("{"):
            return built_in().plus(parse(added, "the list"))
        return built_in().plus(parse(Path(added).read_text(encoding="utf-8"), added))
    except UsageError as error:
        raise StartError(f"TOCSIN_ALLOWLIST: {error}") from None
    except (OSError, ValueError) as error:
        raise StartError(
            f"TOCSIN_ALLOWLIST: {added} cannot be read ({error}). Name a file like {_EXAMPLE}"
        ) from None


def parse(text: str, name: str) -> AllowList:
    """Read a list. An error names the file, the place and the expected form."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON ({error}). It should look like {_EXAMPLE}") from None
    if not isinstance(value, dict) or not isinstance(value.get("contracts"), dict):
        raise UsageError(f"{name} has no object `contracts`. It should look like {_EXAMPLE}")
    unknown = sorted(set(value) - set(_FIELDS))
    if unknown:
        raise UsageError(f"{name} has a field `{unknown[0]}`; known are {', '.join(_FIELDS)}")
    provider = value.get("provider_address", "")
    if provider != "" and not (isinstance(provider, str) and is_address(provider)):
        raise UsageError(
            f"{name}: provider_address is a Stacks address such as SP1M8K…, not {provider!r:.80}."
            " Compare every character: its checksum is part of it"
        )
    protocol = value.get("protocol", UNNAMED_PROTOCOL)
    if not (isinstance(protocol, str) and _PROTOCOL.fullmatch(protocol)):
        raise UsageError(f"{name}: protocol is a short lower-case name such as bitflow, not {protocol!r:.60}")
    contracts = {key: _functions(key, items, name) for key, items in value["contracts"].items()}
    attribution = _texts(
        value.get("provider_attribution_contracts", []), "provider_attribution_contracts", name
    )
    return AllowList(contracts, dict.fromkeys(contracts, protocol), provider, frozenset(attribution))


def _functions(contract: str, items: object, name: str) -> frozenset[str]:
    if not is_contract_id(contract):
        raise UsageError(
            f"{name}: {contract[:80]!r} is not a contract id; one looks like SP….router-v-1-1."
            " Compare every character: the address has a checksum"
        )
    functions = _texts(items, contract, name)
    wrong = [function for function in functions if not _FUNCTION.fullmatch(function)]
    if wrong or not functions:
        shown = repr(wrong[0][:80]) if wrong else "an empty list"
        raise UsageError(f"{name}: {contract} needs the names of its functions, not {shown}")
    return frozenset(functions)


def _texts(items: object, key: str, name: str) -> Sequence[str]:
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UsageError(f"{name}: {key} must be a list of texts")
    return items


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicates: a contract listed twice would silently lose the functions of its first entry."""
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"{twice!r} is listed twice")
    return value
