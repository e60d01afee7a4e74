"""Keeps a log from repeating the same warning with every call."""

SENTENCES_MAX = 200


class LogOnce:
    """Remembers sentences that were logged. When it is full, new ones count as logged."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def is_news(self, sentence: str) -> bool:
        """Whether to log this now; it is remembered."""
        if sentence in self._logged or len(self._logged) >= SENTENCES_MAX:
            return False
        self._logged.add(sentence)
        return True

    def forget(self, sentence: str) -> None:
        """It does not hold any more: log it again when it does."""
        self._logged.discard(sentence)
