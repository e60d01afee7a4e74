"""What was said already, so that a log says it once and not with every call."""

SAID_MAX = 200


class LogOnce:
    """Remembers sentences, so many and no more: what does not fit counts as said."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def is_news(self, text: str) -> bool:
        if text in self._said or len(self._said) >= SAID_MAX:
            return False
        self._said.add(text)
        return True

    def forget(self, text: str) -> None:
        """It is no longer so: saying it would be news again."""
        self._said.discard(text)
