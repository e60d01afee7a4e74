"""Prevents the log from repeating the same warning with every call."""

SENTENCES_MAX = 200


class LogOnce:
    """Remembers logged sentences. When it is full, new ones count as logged."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def is_news(self, sentence: str) -> bool:
        """Whether to log this sentence now. Remembers it."""
        if sentence in self._logged or len(self._logged) >= SENTENCES_MAX:
            return False
        self._logged.add(sentence)
        return True

    def forget(self, sentence: str) -> None:
        """Forget a sentence that is no longer true, so that it is logged again when it is."""
        self._logged.discard(sentence)
