"""Settings from `.env` and from the environment: the environment wins, and a key is tied to its address.

A `.env` file may come from a directory that somebody else created. If it could set the address for a key from the
environment, that key would be sent there.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tocsin.settings import SettingsError, read_env_file

ENVIRONMENT = "the environment"
FILE = ".env"
ADDRESS_OF_KEY = {
    "HIRO_API_KEY": "HIRO_API_URL",
    "TENERO_API_KEY": "TENERO_API_URL",
    "WORKER_LOGS_KEY": "WORKER_LOGS_URL",
    "TOCSIN_ALERT_KEY": "TOCSIN_ALERT_URL",
}


class SettingSources:
    """The settings and their sources."""

    def __init__(self, environment: Mapping[str, str], file: Path) -> None:
        self.in_file: Mapping[str, str] = read_env_file(file.read_bytes()) if file.is_file() else {}
        self.values: Mapping[str, str] = {**self.in_file, **environment}
        self._environment = environment

    def of(self, name: str) -> str | None:
        """Where the setting comes from; None if it is not set."""
        if not self.values.get(name):
            return None
        return ENVIRONMENT if name in self._environment else FILE

    def parted(self, key: str, addresses: Iterable[str]) -> str | None:
        """A sentence if the key and a part of its address come from different sources."""
        for address in addresses:
            if self.of(key) and self.of(address) not in (None, self.of(key)):
                return (
                    f"{key} comes from {self.of(key)} and {address} from {self.of(address)}:"
                    " a key is sent only to an address from the same source. Set both in one of them"
                )
        return None

    def checked(self) -> Mapping[str, str]:
        """All values for the service; refuses a key whose address comes from another source."""
        problems = [self.parted(key, [address]) for key, address in ADDRESS_OF_KEY.items()]
        lines = [f"  {problem}" for problem in problems if problem]
        if lines:
            raise SettingsError("\n".join(["The settings need a change:", *lines]))
        return self.values
