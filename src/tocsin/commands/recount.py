"""`tocsin recount`: reads a round's file, from disk or from a URL, and computes the result again.

It needs no settings, no database and no service: the file is enough.
"""

import asyncio
import re
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from holdfast.errors import UsageError
from tocsin.errors import FetchError, RoundFileError
from tocsin.rounds.file import RecountReport, RoundFile, lines_of, read_round_file, recount

FILE_MAX = 500_000_000  # bytes; a million swaps take 370 MB
DOWNLOAD_S = 300.0

_ROUND = re.compile(r".*/api/competition/rounds/[^/]+")


def recount_source(source: str) -> tuple[RoundFile, RecountReport]:
    """Recount a file. Raises `UsageError` if it cannot be read, is damaged, or is not a round's file."""
    is_url = source.startswith(("http://", "https://"))
    try:
        text = (_downloaded(source) if is_url else _read(Path(source))).decode()
        file = read_round_file(lines_of(text))
        return file, recount(file)
    except UnicodeDecodeError:
        raise UsageError("This is not a complete, unchanged file of a round: it is not UTF-8 text.") from None
    except RoundFileError as error:
        raise UsageError(f"This is not a complete, unchanged file of a round: {error}.") from None


def file_url(url: str) -> str:
    """The URL of the file, given that of the file or of the round in the API."""
    parts = urlsplit(url)
    is_round = _ROUND.fullmatch(parts.path)
    return urlunsplit(parts._replace(path=f"{parts.path}/file")) if is_round else url


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(FILE_MAX + 1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}. Give a file that the API served, or its URL."
        ) from None
    if len(content) > FILE_MAX:
        raise UsageError(f"{path} is larger than {FILE_MAX:,} bytes: it is not a round's file.")
    return content


def _downloaded(url: str) -> bytes:
    try:
        return asyncio.run(_fetched(file_url(url)))
    except ValueError:
        raise UsageError(
            "This URL cannot be read. Give one like https://host/api/competition/rounds/ID/file."
        ) from None
    except FetchError as error:
        raise UsageError(f"The file could not be downloaded: {error}.") from None


async def _fetched(url: str) -> bytes:
    from tocsin.local.fetch import HttpFetch

    async with aclosing(HttpFetch()) as fetch:
        response = await fetch(url, timeout_s=DOWNLOAD_S, body_max=FILE_MAX)
    if 300 <= response.status < 400:
        raise UsageError("The server redirects, and redirects are not followed. Give the final URL of the file.")
    if response.status != 200:
        raise UsageError(
            f"The server answers {response.status} instead of the file. A round has a file once it is finalized."
        )
    return response.body
