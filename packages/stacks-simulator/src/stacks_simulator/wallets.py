"""The wallets that trade: registered ones of every tier, and strangers."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stacks_simulator.addresses import address_of, digest

# Only the swaps of an eligible agent count. The two tiers below it are registered, but not eligible.
WalletTier: TypeAlias = Literal["eligible", "genesis", "registered", "stranger"]

_MOODS = (
    "Amber", "Brisk", "Calm", "Dapper", "Eager", "Fabled", "Gentle", "Hidden", "Iron", "Jolly", "Keen",
    "Lucid", "Mellow", "Noble", "Opal", "Patient", "Quiet", "Rapid", "Solar", "Tidal", "Upbeat",
    "Vivid", "Wry",
)  # fmt: skip
_ANIMALS = (
    "Otter", "Falcon", "Lynx", "Heron", "Badger", "Ibis", "Marten", "Orca", "Raven", "Stoat", "Tapir",
    "Viper", "Wolf", "Yak", "Crane", "Gecko", "Hare", "Kite", "Moth",
)  # fmt: skip
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


@dataclass(frozen=True, slots=True)
class Wallet:
    """An account on the chain and, if it is registered, its agent."""

    address: str
    tier: WalletTier
    btc_address: str = ""
    display_name: str = ""
    erc8004_agent_id: int | None = None
    bns_name: str | None = None
    owner: str | None = None

    def import_line(self) -> str:
        """The agent as a line of the import format (JSON lines)."""
        claim = {"status": "verified"} if self.tier in {"eligible", "genesis"} else {"status": "pending"}
        agent = {
            "btc_address": self.btc_address,
            "stx_address": self.address,
            "display_name": self.display_name,
            "bns_name": self.bns_name,
            "owner": self.owner,
            "erc8004_agent_id": self.erc8004_agent_id,
            "claim": claim,
        }
        return json.dumps(agent)


def registered_wallets(seed: int, count: int) -> tuple[Wallet, ...]:
    """`count` registered agents. Of every eleven, nine are eligible, one is genesis and one registered."""
    return tuple(_agent(seed, number) for number in range(count))


def strangers(seed: int, count: int) -> tuple[Wallet, ...]:
    """Return accounts that trade like the others but are not registered."""
    return tuple(Wallet(address_of(f"{seed}:stranger:{number}"), "stranger") for number in range(count))


def import_lines(wallets: Iterable[Wallet]) -> str:
    """All agents in the import format, one line each."""
    return "".join(wallet.import_line() + "\n" for wallet in wallets)


def _agent(seed: int, number: int) -> Wallet:
    tier: WalletTier = "genesis" if number % 11 == 9 else "registered" if number % 11 == 10 else "eligible"
    key = int(digest(f"{seed}:btc:{number}"), 16)
    name = f"{_MOODS[number % len(_MOODS)]} {_ANIMALS[number % len(_ANIMALS)]}"  # 437 different names
    return Wallet(
        address=address_of(f"{seed}:wallet:{number}"),
        tier=tier,
        btc_address="bc1q" + "".join(_BECH32[key >> 5 * at & 31] for at in range(38)),
        display_name=name,
        erc8004_agent_id=None if tier == "genesis" else number + 1,
        bns_name=f"{name.replace(' ', '-').lower()}.btc" if number % 3 == 0 else None,
    )
