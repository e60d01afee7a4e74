"""`tocsin recount`: with a file or a URL and nothing else."""

import gzip
import hashlib
import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.answers import Answer, answering
from support.tocsin_command import tocsin_here
from tocsin.commands import recount
from tocsin.rounds.file import file_lines
from tocsin.rounds.round import RoundAgent, RoundInputs, RoundPrice, RoundRules, RoundSwap
from tocsin.rounds.score import score

INPUTS = RoundInputs(
    RoundRules("week-1", 1_000, 2_000, 5_600, rewards={"overall_pnl": 5_000}),
    "2026-05-01",
    812,
    [RoundAgent("SPA", "bc1a", 1, "Zoë [bold]"), RoundAgent("SPB", "bc1b", 2)],
    [RoundPrice("stx", "0.5", 6, "peg", 0), RoundPrice("usd", "1", 6, "peg", 0)],
    [
        RoundSwap(
            f"0x{1:064x}", "SPA", "SP1.pool", "swap", "usd", "100000000", "stx", "220000001", 1_500, 7, 1, "cron"
        ),
        RoundSwap(
            f"0x{2:064x}", "SPB", "SP1.pool", "swap", "usd", "200000000", "stx", "400000000", 1_600, 8, 0, "agent"
        ),
    ],
)
OUTCOME = score(INPUTS)


def content(inputs: RoundInputs = INPUTS, outcome: Any = OUTCOME) -> bytes:
    return "".join(f"{line}\n" for line in file_lines(inputs, outcome)).encode()


def run(*arguments: str) -> tuple[int, str, str]:
    """In an empty directory, without any setting."""
    done = tocsin_here("recount", *arguments, environment={})
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "round.jsonl"
    path.write_bytes(content())
    return path


def test_a_file_that_is_right_prints_the_ranking(file: Path) -> None:
    code, out, error = run(str(file))
    assert (code, error) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[1] == [
        "1",
        "Zoë",
        "[bold]",
        "#1",
        *["1", "of", "1", "100.00", "10.00", "10.00", "100.00", "overall_pnl"],
    ]
    assert lines[2] == ["2", "SPB", "#2", *["1", "of", "1", "200.00", "0.00", "0.00", "200.00", "volume"]]
    before = content().rpartition(b'["digest"')[0]
    assert lines[3] == ["Digest:", hashlib.sha256(before).hexdigest()]
    assert "The same: the recount of week-1 has the file's results, rewards and flags." in out


def test_json_has_exact_figures(file: Path) -> None:
    code, out, _ = run(str(file), "--json")
    answer = json.loads(out)
    assert (code, answer["same"], answer["differences"]) == (0, True, [])
    assert [result["pnl_usd"] for result in answer["results"]] == ["10.0000005", "0"]
    assert answer["rewards"][0] == {
        "category": "overall_pnl",
        "rank": 1,
        "stx_address": "SPA",
        "erc8004_agent_id": 1,
        "amount_sats": 5000,
    }


def test_a_result_that_does_not_follow_is_named(tmp_path: Path) -> None:
    """The file is complete and its digest is right, but a result was inflated."""
    first, second = OUTCOME.results
    wrong = replace(
        OUTCOME,
        results=[replace(first, pnl_usd="11", volume_usd="99"), second],
        rewards=[replace(OUTCOME.rewards[0], stx_address="SPB")],
    )
    path = tmp_path / "round.jsonl"
    path.write_bytes(content(INPUTS, wrong))
    code, out, _ = run(str(path))
    assert code == 1
    assert 'result of agent 1, volume_usd: "99" in the file, "100" by the recount' in out
    assert 'result of agent 1, pnl_usd: "11" in the file, "10.0000005" by the recount' in out
    assert 'reward for overall_pnl, stx_address: "SPB" in the file, "SPA" by the recount' in out
    assert "reward for volume: none in the file, " in out
    assert "Different: the recount of week-1 differs from the file" in out


def test_a_published_digest_is_compared(file: Path) -> None:
    """Another file may also be consistent: only the digest shows the difference."""
    digest = json.loads(content().splitlines()[-1])[2]
    assert run(str(file), "--digest", digest.upper())[0] == 0
    code, _, error = run(str(file), "--digest", "0" * 64)
    assert (code, error) == (1, f"The digest of this file is {digest}, not the one that you gave.\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damaged", "sentence"),
    [
        (b"", "line 1: the digest is missing: the file was cut off"),
        (content()[:-1], "the last line does not end: the file was cut off"),
        (content()[:-50], "the last line does not end: the file was cut off"),
        (b"\xff" + content(), "it is not UTF-8 text"),
        (b"\xef\xbb\xbf" + content(), "line 1: the first line is the header"),
        (content().replace(b"\n", b"\r\n"), "line 1: the bytes are not those of canonical JSON (RFC 8785)"),
        (content().replace(b'"220000001"', b'"220000002"'), "line 12: the bytes of the file do not have this digest"),
        (b"<!doctype html>\n", "line 1: the first line is the header"),
    ],
)
def test_a_damaged_file_is_unusable(tmp_path: Path, damaged: bytes, sentence: str) -> None:
    path = tmp_path / "round.jsonl"
    path.write_bytes(damaged)
    code, out, error = run(str(path))
    assert (code, out) == (2, "")
    assert error.startswith(f"This is not a complete, unchanged file of a round: {sentence}")


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    code, _, error = run(str(tmp_path / "none"))
    assert (code, "cannot be read: No such file or directory." in error) == (2, True)
    assert run(str(tmp_path))[0] == 2
    monkeypatch.setattr(recount, "FILE_MAX", 1_000)
    assert run(str(file))[2].endswith("is larger than 1,000 bytes: it is not a round's file.\n")


@pytest.mark.slow
def test_a_url_works_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's own, or that of the round in the API."""
    path, zipped = "/x/api/competition/rounds/week-1/file", {"Content-Encoding": "gzip"}
    answers: dict[str, Answer] = {
        path: (200, zipped, gzip.compress(content())),
        "/moved": (302, {"Location": path}, b""),
    }
    with answering(lambda request: answers.get(request.path.partition("?")[0], (404, {}, b"{}"))) as port:
        url = f"http://127.0.0.1:{port}"
        for given in (path, "/x/api/competition/rounds/week-1", "/x/api/competition/rounds/week-1?version=2"):
            assert run(f"{url}{given}")[0] == 0, given
        absent = run(f"{url}/other?key=secret")
        moved = run(f"{url}/moved")
        monkeypatch.setattr(recount, "FILE_MAX", 1_000)
        large = run(f"{url}{path}?key=secret")
    gone = run(f"{url}{path}?key=secret")
    assert absent == (2, "", "The server answers 404 instead of the file. A round has a file once it is finalized.\n")
    assert moved == (2, "", "The server redirects, and redirects are not followed. Give the final URL of the file.\n")
    assert large == (2, "", f"The file could not be downloaded: GET {url}{path}: the body is larger than 1000 bytes.\n")
    assert (gone[0], gone[2].startswith(f"The file could not be downloaded: GET {url}{path}: ")) == (2, True)
    assert "secret" not in gone[2]
    assert run("http://[::1/file")[0] == 2


def test_a_server_that_is_slow_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is for the whole file, not for each piece of it."""
    monkeypatch.setattr(recount, "DOWNLOAD_S", 0.05)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:  # never accepts
        code, _, error = run(f"http://127.0.0.1:{silent.server_port}/file")
    assert (code, error.endswith("/file: no complete response within 0.05 s.\n")) == (2, True)
