"""Query parameters as Hiro checks them, and its errors in Fastify's wording."""

import re
from collections.abc import Collection

from tocsin.simulator.http_messages import SimulatedReply, SimulatedRequest, json_reply

_TITLES = {400: "Bad Request", 404: "Not Found"}


class HiroHttpError(Exception):
    """Ends the handling of a request with this reply: an error, or a redirect."""

    def __init__(self, status: int, message: str, reply: SimulatedReply | None = None) -> None:
        super().__init__(message)
        body = {"statusCode": status, "error": _TITLES.get(status, ""), "message": message}
        self.reply = reply or json_reply(status, body)


class HiroQuery:
    """The query parameters of one request. A value that Hiro does not accept raises HiroHttpError."""

    def __init__(self, request: SimulatedRequest) -> None:
        self._values = request.query()
        self._headers = request.headers

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def integer(self, name: str, default: int, low: int, high: int | None = None) -> int:
        if name not in self._values:
            return default
        text = self._values[name][-1]
        if not re.fullmatch(r"-?\d{1,15}", text):
            raise HiroHttpError(400, f"querystring/{name} must be integer")
        number = int(text)
        if number < low:
            raise HiroHttpError(400, f"querystring/{name} must be >= {low}")
        if high is not None and number > high:
            raise HiroHttpError(400, f"querystring/{name} must be <= {high}")
        return number

    def count(self, name: str, default: int, high: int) -> int:
        """Return how many rows to return. v1 treats 0 as its default."""
        return self.integer(name, default, 0, high) or default

    def text(self, name: str, pattern: str) -> str | None:
        if name not in self._values:
            return None
        text = self._values[name][-1]
        if not re.fullmatch(pattern, text):
            raise HiroHttpError(400, f'querystring/{name} must match pattern "^{pattern}$"')
        return text

    def flag(self, name: str) -> bool:
        return self.text(name, "true|false") == "true"

    def words(self, name: str, allowed: Collection[str]) -> set[str]:
        words = {word for text in self.all(name) for word in text.split(",") if word}
        if not words <= set(allowed):
            raise HiroHttpError(400, f"querystring/{name}/0 must be equal to one of the allowed values")
        return words

    def has_etag(self, etag: str) -> bool:
        """Whether the caller already has the reply with this tag."""
        header = self._headers.get("if-none-match", "")
        tags = {tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")}
        return bool(etag) and etag in tags
