"""The file of a round: what is written can be read, and nothing else can."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from support.random_rounds import round_inputs
from support.tocsin_command import tocsin_here
from tocsin.errors import RoundFileError
from tocsin.rounds.file import file_lines, lines_of, parts_of, read_round_file, stated_digest
from tocsin.rounds.round import (
    AgentFlag,
    FlagDecision,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundPrice,
    RoundRefusal,
    RoundRules,
    RoundSwap,
)
from tocsin.rounds.score import score
from tocsin.swaps.values import SwapWorth

PAGE, PAGE_OF_COMMANDS = (
    (Path(__file__).parents[2] / "docs" / name).read_text() for name in ("round-file.md", "commands.md")
)
TXID = "0x" + "ab" * 32
INPUTS = RoundInputs(
    RoundRules("week-1", 1_000, 2_000, 5_600),
    "2026-05-01",
    812,
    [RoundAgent("SPA", "bc1a", 1, "Zoë 🦊"), RoundAgent("SPB", "bc1b", 2)],
    [RoundPrice("stx", "0.85", 6, "tenero", 1_999_000, "50000", "700"), RoundPrice("usd", "1", 6, "peg", 0)],
    [
        RoundSwap(TXID, "SPA", "SP1.pool", "swap", "usd", "85000000", "stx", "101000000", 1_500, 7, 1, "cron"),
        RoundSwap("0x" + "cd" * 32, "SPB", "SP1.pool", "swap", "stx", "1", "usd", "1", 1_600, 7, 2, "agent"),
    ],
    [RoundRefusal("0x" + "ef" * 32, "SPB", "not_a_swap", 'gives "two" tokens', 1_700)],
    [FlagDecision(2, "clear", "dust", "a test", "ops", "2026-05-20T00:00:00Z")],
)
OUTCOME = replace(score(INPUTS), flags=[AgentFlag(2, "dust", "1 of 1 trades", [TXID], [], cleared=True)])
LINES = [*file_lines(INPUTS, OUTCOME)]


def test_the_bytes_are_these() -> None:
    """Another program that follows docs/round-file.md makes the same."""
    assert LINES[0] == (
        '["header",{"allowlist_version":"2026-05-01","complete_until_block":812,"counts":{"agent":2,"decision":1,'
        '"flag":1,"price":2,"refusal":1,"result":2,"reward":2,"swap":2},"format":"tocsin-round/1",'
        '"rules":{"core_tokens":["stx","SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token",'
        '"SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"],"dust_usd":"1","ends_at":2000,'
        '"grace_ends_at":5600,"min_day_volume_usd":"500","min_liquidity_usd":"10000",'
        '"min_priced_trade_count":3,"min_volume_usd":"50","rewards":{},"round_id":"week-1","starts_at":1000}}]'
    )
    assert LINES[1] == (
        '["agent",{"btc_address":"bc1a","display_name":"Zoë 🦊","erc8004_agent_id":1,"first_funder":null,'
        '"owner":null,"stx_address":"SPA"}]'
    )
    assert LINES[5] == (f'["swap","{TXID}","SPA","SP1.pool","swap","usd","85000000","stx","101000000",1500,7,1,"cron"]')
    before = "".join(f"{line}\n" for line in LINES[:-1]).encode()
    assert LINES[-1] == f'["digest","sha256","{hashlib.sha256(before).hexdigest()}"]'


def test_every_kind_is_there_in_its_order() -> None:
    kinds = [json.loads(line)[0] for line in LINES]
    assert kinds == [
        *("header", "agent", "agent", "price", "price", "swap", "swap", "refusal", "decision"),
        *("result", "result", "reward", "reward", "flag", "digest"),
    ]


EXCESSIVE = replace(INPUTS, excesses=[SwapWorth(TXID, "85", None, "999", "250000")])


def test_an_excessive_swap_has_its_own_line() -> None:
    """It shows the figures of its time. A file without one is as it was before there were such lines."""
    lines = [*file_lines(EXCESSIVE, score(EXCESSIVE))]
    assert lines[7] == (
        f'["excess",{{"given_liquidity_usd":null,"given_usd":"85","received_liquidity_usd":"250000",'
        f'"received_usd":"999","txid":"{TXID}"}}]'
    )
    assert json.loads(lines[0])[1]["counts"]["excess"] == 1
    read = read_round_file(lines)
    assert read.inputs.excesses == EXCESSIVE.excesses
    assert [result.priced_trade_count for result in read.outcome.results] == [1, 0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"received_usd":"999"', '"received_usd":"9e2"', "A decimal number looks like"),
        ('"excess":1', '"excess":0', "the header counts other lines"),
        ('"excess":1,', "", "the header counts other lines than the file has: .*'excess': 1"),
    ],
)
def test_a_wrong_line_about_an_excess_is_refused(old: str, new: str, message: str) -> None:
    lines = [line.replace(old, new) for line in file_lines(EXCESSIVE, score(EXCESSIVE))]
    with pytest.raises(RoundFileError, match=message):
        read_round_file(lines)


def test_a_line_that_shows_no_excess_leaves_nothing_out() -> None:
    """The rule decides, not the list: anybody can apply it to the figures."""
    listed = replace(INPUTS, excesses=[SwapWorth(TXID, "85", None, "100", "250000")])
    assert score(listed).results == score(INPUTS).results


@pytest.mark.slow
@given(round_inputs())
def test_what_is_written_is_read(inputs: RoundInputs) -> None:
    """And written again it has the same bytes."""
    outcome = score(inputs)
    lines = [*file_lines(inputs, outcome)]
    read = read_round_file(lines)
    assert [*file_lines(read.inputs, read.outcome)] == lines
    assert [*file_lines(read.inputs, score(read.inputs))] == lines
    assert read.outcome == outcome
    assert set(read.inputs.swaps) == set(inputs.swaps)
    assert (read.inputs.rules, read.inputs.complete_until_block) == (inputs.rules, inputs.complete_until_block)
    assert lines[-1] == f'["digest","sha256","{read.digest}"]'


def with_digest(lines: list[str]) -> list[str]:
    """The lines with the right digest, so that only the error under test is left."""
    before = "".join(f"{line}\n" for line in lines[:-1]).encode()
    return [*lines[:-1], f'["digest","sha256","{hashlib.sha256(before).hexdigest()}"]']


def changed(number: int, old: str, new: str) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        assert old in lines[number - 1]
        return [*lines[: number - 1], lines[number - 1].replace(old, new), *lines[number:]]

    return change


def swapped(one: int, other: int) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        mixed = [*lines]
        mixed[one - 1], mixed[other - 1] = mixed[other - 1], mixed[one - 1]
        return mixed

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: lines[:0], "line 1: the digest is missing"),
        (lambda lines: lines[:-1], "line 15: the digest is missing"),
        (lambda lines: lines[1:], "line 1: the first line is the header"),
        (lambda lines: [lines[5], *lines], "line 1: the first line is the header"),
        (lambda lines: [lines[0], *lines], "line 2: the first line is the header, and no other"),
        (lambda lines: [*lines, lines[-1]], "line 16: the digest is the last line"),
        (lambda lines: [*lines[:4], "", *lines[4:]], "line 5: the line is not JSON"),
        (lambda lines: [*lines[:4], "[" * 100_000, *lines[4:]], "line 5: the line is not JSON"),
        (
            lambda lines: [*lines[:4], '["price",{},1]', *lines[4:]],
            "line 5: a line is an array of its kind and its value",
        ),
        (lambda lines: [*lines[:4], '{"price":1}', *lines[4:]], "line 5: a line is an array"),
        (lambda lines: [*lines[:4], '["note",{}]', *lines[4:]], 'line 5: there is no kind "note"'),
        (swapped(2, 3), "line 3: this agent is out of order"),
        (swapped(6, 7), "line 7: this swap is out of order"),
        (swapped(10, 11), "line 11: this result is out of order"),
        (swapped(5, 6), "line 6: this price is out of order"),
        (lambda lines: [*lines[:2], *lines[1:]], "line 3: this agent appears twice"),
        (changed(7, "cd" * 32, "ab" * 32), "line 7: this transaction appears twice"),
        (
            lambda lines: [*lines[:2], *lines[3:]],
            "line 14: the header counts other lines than the file has: .*'agent': 1",
        ),
        (changed(2, '"SPA"', '"SPA" '), "line 2: the bytes are not those of canonical JSON"),
        (changed(2, "ë", "\\u00eb"), "line 2: the bytes are not those of canonical JSON"),
        (changed(2, "}]", "}]\r"), "line 2: the bytes are not those of canonical JSON"),
        (changed(2, '"owner":null,', '"owner":null,"owner":null,'), "line 2: the bytes are not those of canonical"),
        (changed(2, '"owner":null,', ""), "line 2: the fields are btc_address,"),
        (changed(2, '"owner":null', '"owner":7'), "line 2: owner cannot be 7"),
        (changed(2, '"erc8004_agent_id":1', '"erc8004_agent_id":true'), "line 2: erc8004_agent_id cannot be true"),
        (changed(2, '"erc8004_agent_id":1', f'"erc8004_agent_id":{2**63}'), "line 2: erc8004_agent_id cannot be"),
        (changed(2, '"erc8004_agent_id":1', f'"erc8004_agent_id":{"1" * 5000}'), "line 2: the line is not JSON"),
        (changed(2, "🦊", "\\ud83e"), "line 2: the line is not JSON"),
        (changed(4, '"0.85"', '"0.850"'), "line 4: A decimal number looks like 0.85, not '0.850'"),
        (changed(4, '"0.85"', '"1E999999999999999999"'), "line 4: A decimal number"),
        (changed(4, '"0.85"', '"0"'), "line 4: A price is above 0"),
        (changed(4, '"decimals":6', '"decimals":39'), "line 4: A token has 0 to 38 decimals"),
        (changed(4, '"tenero"', '"guess"'), 'line 4: source cannot be "guess"'),
        (changed(6, '"85000000"', '"085000000"'), "line 6: a swap is not as docs/round-file.md describes it"),
        (changed(6, '"85000000"', "85000000"), "line 6: a swap is not"),
        (changed(6, "1500", "1500.0"), "line 6: a swap is not"),
        (changed(6, "0xab", "0xAB"), "line 6: a swap is not"),
        (changed(1, "tocsin-round/1", "tocsin-round/2"), "line 1: the format is not tocsin-round/1"),
        (changed(1, '"agent":2,', ""), "line 15: the header counts other lines"),
        (changed(1, '"complete_until_block":812,', ""), "line 1: the fields are allowlist_version,"),
        (changed(1, ":812", ':"812"'), 'line 1: complete_until_block cannot be "812"'),
        (changed(1, '"dust_usd":"1"', '"dust_usd":"-1"'), "line 1: dust_usd is 0 or above"),
        (changed(1, '"rewards":{}', '"rewards":{"volume":"1"}'), "line 1: rewards cannot be"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_names_the_line(
    change: Callable[[list[str]], list[str]], sentence: str
) -> None:
    lines = change([*LINES])
    with pytest.raises(RoundFileError, match=sentence):
        read_round_file(with_digest(lines) if len(lines) == len(LINES) else lines)


def test_a_file_that_was_changed_has_another_digest() -> None:
    lines = changed(6, '"85000000"', '"86000000"')([*LINES])
    with pytest.raises(
        RoundFileError, match=r"line 15: the bytes of the file do not have this digest, but [0-9a-f]{64}$"
    ):
        read_round_file(lines)


@given(st.integers(0, 14), st.integers(0, 10**6), st.characters())
def test_no_character_can_be_changed(number: int, place: int, character: str) -> None:
    """Whatever is replaced, by whatever."""
    line = LINES[number]
    place %= len(line)
    if line[place] == character:
        return
    with pytest.raises(RoundFileError):
        read_round_file([*LINES[:number], line[:place] + character + line[place + 1 :], *LINES[number + 1 :]])


@given(st.integers(100, 3_000))
def test_a_file_in_parts_is_the_same_file(size_max: int) -> None:
    """They end with a line; one that does not fit is a part of its own."""
    parts = [*parts_of(LINES, size_max)]
    assert all(part.endswith("\n") for part in parts)
    assert all(len(part.encode()) <= size_max or part.count("\n") == 1 for part in parts)
    assert lines_of("".join(parts)) == LINES
    assert stated_digest(parts) == json.loads(LINES[-1])[2]


def test_a_file_that_was_cut_off_is_noticed() -> None:
    (whole,) = parts_of(LINES)
    with pytest.raises(RoundFileError, match="the last line does not end: the file was cut off"):
        lines_of(whole[:-1])
    with pytest.raises(RoundFileError, match="the file does not end with its digest"):
        stated_digest([whole[:-2]])
    with pytest.raises(RoundFileError, match="the file does not end with its digest"):
        stated_digest([])


def test_a_name_that_no_contract_can_have_is_not_written() -> None:
    """It would need an escape, and swaps have none."""
    strange = replace(INPUTS, swaps=[INPUTS.swaps[0]._replace(function_name='swap"')])
    with pytest.raises(UsageError, match="not printable ASCII"):
        [*file_lines(strange, RoundOutcome([], [], []))]


# docs/round-file.md


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_of_the_page_is_a_file_that_recounts(tmp_path: Path) -> None:
    """If the format or the rules change, so does the page; docs/commands.md shows what the command prints."""
    file = tmp_path / "round.jsonl"
    file.write_text(block("jsonl"))
    recounted = tocsin_here("recount", str(file), environment={})
    assert (recounted.returncode, recounted.stderr) == (0, "")
    shown = PAGE_OF_COMMANDS.partition("$ tocsin recount week-1.jsonl\n")[2].partition("```")[0]
    assert shown.split() == recounted.stdout.split()


def test_the_script_of_the_page_recounts_its_example(tmp_path: Path) -> None:
    """With the standard library alone."""
    file, script = tmp_path / "round.jsonl", Path(__file__).parents[2] / "examples" / "recount_round.py"
    file.write_text(block("jsonl"))
    by_hand = subprocess.run(
        [sys.executable, "-I", str(script), str(file)], capture_output=True, text=True, check=False
    )
    assert by_hand.stdout.splitlines() == [
        "1 SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7 5.2 right",
        "2 SP3FBR2AGK5H9QBDH3EEN6DF8EK8JY7RX8QJ5SVTE -0.2 right",
    ]
