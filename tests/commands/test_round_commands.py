"""`tocsin round`: what it sends, and what it prints."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from commands.test_render import printed
from support.round_world import END_S, GRACE_S, START_S
from tocsin.cli import app
from tocsin.commands import render
from tocsin.commands.client import ServiceClient
from tocsin.rounds.round import (
    AgentFlag,
    AgentResult,
    ListedRound,
    ResultDetail,
    RewardRow,
    RoundAnswer,
    RoundDetail,
    RoundList,
    RoundResultRow,
    RoundRow,
    RoundRule,
    RoundRules,
)

ID = "week-1-2027-01-15"
RULES = RoundRules(ID, START_S, END_S, GRACE_S)
NOT_YET = (None, None, None, None, None, None, None, None)  # what a round has only after its end
ROUND = RoundRow(ID, START_S, END_S, GRACE_S, "open", 50.0, 3, "2027-01-14T00:00:00.000Z", None, 1, *NOT_YET, RULES)
TERMS = {"minVolumeUsd": "50", "minPricedTradeCount": 3}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    requests: list[Any] = []

    def send(_self: ServiceClient, path: str, body: Any, query: Any) -> Any:
        requests.append((path, body, query))
        return RoundAnswer(ok=True, action=body["action"], dry_run=bool(query), detail="done").to_json()

    monkeypatch.setattr(ServiceClient, "send", send)
    return requests


ADD = "add week-1 --start 2027-01-15T08:00Z --end 2027-01-22T08:00Z"
ADDED = {"startsAt": START_S, "endsAt": END_S, "graceS": 3600, **TERMS, "rewards": {}}
RULE = {"firstStartsAt": START_S, "periodS": 604_800, "prefix": "week", "firstNumber": 1, **TERMS, "rewards": {}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (f"{ADD} --reward volume=7", {**ADDED, "rewards": {"volume": 7}}),
        (f"{ADD} --grace 0s", {**ADDED, "graceS": 0}),
        ("every 7d --start 2027-01-15T08:00Z --grace 2h", {"action": "rule", **RULE, "graceS": 7200}),
        ("every --end", {"action": "rule", "end": True}),
        ("close week-1", {}),
        ("snapshot week-1", {}),
        ("snapshot week-1 --force --reason why", {"force": True, "reason": "why"}),
        ("finalize week-1", {}),
        ("void week-1 --reason why", {"reason": "why"}),
        ("reopen week-1 --reason why", {"reason": "why"}),
        ("price week-1 stx 0.85 --reason why", {"tokenId": "stx", "priceUsd": "0.85", "reason": "why"}),
        ("price week-1 SP1.a::b 0.85 --decimals 0", {"tokenId": "SP1.a::b", "priceUsd": "0.85", "decimals": 0}),
        ("flag week-1 12 exclude --kind ring", {"agentId": 12, "decision": "exclude", "kind": "ring"}),
        ("pay week-1 volume --txid abc", {"category": "volume", "status": "paid", "payoutTxid": "abc"}),
    ],
)
def test_each_command_sends_its_action(sent: list[Any], command: str, fields: Any) -> None:
    """All go to one route, with --dry-run."""
    result = CliRunner().invoke(app, ["round", *command.split(), "--port", "1", "--dry-run"])
    action, about = command.split(maxsplit=1)[0], {} if command.startswith("every") else {"roundId": "week-1"}
    body = {"action": action, **about, **fields}

    assert result.exit_code == 0, result.output
    assert sent == [("/api/admin/competition/finalize", body, {"dry-run": "true"})]
    assert result.output.startswith(f"Nothing was written. {body.get('roundId', body['action'])}: done")


def test_an_action_answers_with_json(sent: list[Any]) -> None:
    """For scripts."""
    result = CliRunner().invoke(app, ["round", "close", "week-1", "--port", "1", "--json"])

    assert result.exit_code == 0
    assert json.loads(result.output)["detail"] == "done"


@pytest.mark.parametrize(
    "command", ["add week-1 --start soon --end later", "every 7d", "add a --start 1 --end 2 --reward volume"]
)
def test_what_is_not_clear_is_not_sent(sent: list[Any], command: str) -> None:
    result = CliRunner().invoke(app, ["round", *command.split(), "--port", "1"])

    assert result.exit_code != 0
    assert sent == []


@pytest.fixture
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_utc")
def test_the_list_says_what_a_round_waits_for() -> None:
    waiting = replace(ROUND, status="closed", waiting_reason="transactions that wait to be verified: 2")
    listed = RoundList(START_S, [ListedRound(waiting, 3, []), ListedRound(ROUND, 0, [])], RoundRule(START_S))

    text = printed(render.rounds(listed.to_json()))

    assert "follow each other every 7 days, starting 2027-01-15 08:00:00 UTC" in text
    assert "transactions that wait to be verified: 2" in text
    assert "2027-01-22 08:00:00 UTC (in 7d)" in text


def test_a_cleared_flag_is_shown_as_cleared() -> None:
    flags = [
        AgentFlag(10, "churn", "there and back", [], ["volume"]),
        AgentFlag(11, "ring", "the same amounts", [], [], cleared=True),
    ]

    text = printed(render.detail(RoundDetail(ROUND, [], [], [], flags, []).to_json(), START_S, {}))

    assert "flag churn of #10: there and back\n" in text
    assert "flag ring of #11, cleared by an operator: the same amounts\n" in text


def test_a_result_is_shown_with_names_and_cents() -> None:
    """An agent without a visible name is shown by its address."""
    place = (1, "SP1", "bc1", 10, 3, 3, 0, START_S)
    exact = AgentResult(*place, 0, "97.123456789", "102.2", "5.2", "0.0536082474227", "80", {}, [], [], [])
    row = RoundResultRow(*place, ROUND.round_id, 97.1, 102.2, 5.2, 0.05, ResultDetail({}, []), "t", exact=exact)
    prize = RewardRow("volume", 1, "SP1", 10, 25_000, ROUND.round_id, "pending", None, None, None, "t")
    detail = RoundDetail(ROUND, [row], [prize], [], [], []).to_json()

    named = printed(render.detail(detail, START_S, {10: "Ada[bold]"}))
    nameless = printed(render.detail(detail, START_S, {10: None}))

    assert ("Ada[bold]" in named, "97.12 " in named, " 5.36 " in named) == (True, True, True)
    assert "volume: #10 Ada[bold], 25,000 sats, pending" in named
    assert "volume: #10 SP1, 25,000 sats, pending" in nameless


@pytest.mark.usefixtures("_in_utc")
def test_a_round_without_a_result_says_when_it_ends() -> None:
    """An empty table would look like a mistake."""
    text = printed(render.detail(RoundDetail(ROUND, [], [], [], [], []).to_json(), START_S, {}))

    assert text.splitlines() == [
        "week-1-2027-01-15 open, ends 2027-01-22 08:00:00 UTC (in 7d)",
        "It has no result yet: `tocsin board` shows who leads.",
    ]
