"""`tocsin explain` as a process: a transaction of the simulated chain, of a file, and its errors."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from support.processes import Process, ask
from support.simulator_process import running_simulator
from support.tocsin_command import tocsin_here
from tocsin.swaps.types import Explanation

SWAP = Path(__file__).parents[1] / "data/hiro/swap_simple_synthetic.json"


def explain(*arguments: str, **environment: str) -> tuple[int, str, str]:
    return Process("explain", *arguments, **environment).end()


@pytest.mark.slow
def test_a_transaction_of_the_chain_is_explained_without_a_service(tmp_path: Path) -> None:
    """By its id, in any spelling; no directory is created, and an id unknown to Hiro also gets a verdict."""
    data = tmp_path / "data"
    with running_simulator() as upstreams:
        url = upstreams["HIRO_API_URL"].removesuffix("/hiro")
        ask(f"{url}/_control/swap", body={"wallet": 0})
        ask(f"{url}/_control/mine", body={})
        truth = ask(f"{url}/_truth")[1]["swaps"][-1]
        at = {**upstreams, "TOCSIN_DATA_DIR": str(data)}
        code, out, error = explain(truth["txid"][2:].upper(), "--as", "eligible", "--json", **at)
        people = explain(truth["txid"], **at)
        absent = explain("0x" + "0" * 64, "--json", **at)

    explanation: Any = json.loads(out)
    assert (code, error) == (0, "")
    assert list(explanation) == ["status", "code", "reason", "steps", "swap", "legs"]
    assert [sorted(step) for step in explanation["steps"]] == [["detail", "name", "ok"]] * 7
    assert explanation["swap"] == {name: truth[name] for name in ("token_in", "amount_in", "token_out", "amount_out")}
    assert (explanation["status"], [step["ok"] for step in explanation["steps"]]) == ("verified", [True] * 7)
    assert Explanation.from_json(explanation).to_json() == explanation
    assert people[0] == 0
    assert "✗  sender       the sender is not a registered agent (there is no " in people[1]
    assert people[1].rstrip().endswith("Register, then send it again.")
    assert (absent[0], json.loads(absent[1])["code"]) == (0, "tx_not_found")
    assert not data.exists()


@pytest.mark.slow
def test_a_hiro_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    """Exit code 1, a line per failed attempt and a sentence, and no key in any of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        code, out, error = explain("0x" + "0" * 64, HIRO_API_URL=url, HIRO_API_KEY="a-key-of-ours")

    *lines, sentence = error.strip().split("\n")
    assert (code, out) == (1, "")
    assert {json.loads(line)["event"] for line in lines} == {"upstream.attempt_failed"}
    assert sentence.startswith("Hiro could not be asked: hiro gave no answer")
    assert "a-key-of-ours" not in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 2, "Name one transaction"),
        (("0x" + "0" * 64, "--file", str(SWAP)), 2, "Name one transaction"),
        (("0x12",), 2, "64 hex digits"),
        (("--file", "absent.json"), 2, "does not exist"),
        (("--file", str(SWAP), "--as", "nobody"), 2, "is not one of"),
        (("--file", __file__), 1, "is not a transaction in Hiro's format: not JSON"),
        (("--file", str(SWAP)), 0, ""),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, sentence: str, tmp_path: Path) -> None:
    """0 when it could be judged, 1 when there was nothing to judge, 2 for wrong usage."""
    done = tocsin_here("explain", *arguments, "--data-dir", str(tmp_path), environment={})

    assert done.returncode == code
    assert sentence in done.stderr
