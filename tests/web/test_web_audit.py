"""Who may do what, and the record of it."""

from pathlib import Path

import pytest

from holdfast.errors import ObjectReset
from holdfast_testing.virtual_time import START_MS
from support.asgi import Answer, ask
from support.scripted_scheduler import ADMIN_KEY, CRON_SECRET, KEYS, VIEWER_KEY, Scene, named_keys, scene
from tocsin.errors import RequestRefused
from tocsin.scheduler.types import AuditRecord, Reloaded
from tocsin.web.app import create_app
from tocsin.web.deps import InForce, Keys

PATH = "/api/admin/scheduler"
VIEWS = (PATH, f"{PATH}/runs", f"{PATH}/audit")
ACTIONS = (
    "action=pause&for=1h",
    "action=resume",
    "action=refresh&task=all",
    "action=recheck&txid=0x1",
    "action=reload",
)


async def act(made: Scene, query: str, key: str = ADMIN_KEY) -> Answer:
    return await ask(create_app(made.site), f"{PATH}?{query}", method="POST", headers={"X-Admin-Key": key})


def records(made: Scene) -> list[AuditRecord]:
    return list(made.scheduler.audited.values())


async def test_a_viewer_may_look(tmp_path: Path) -> None:
    """At everything; the overview says whose key it was."""
    async with scene(tmp_path) as made:
        answers = [await ask(create_app(made.site), path, headers={"X-Admin-Key": VIEWER_KEY}) for path in VIEWS]

        assert [answer.status for answer in answers] == [200, 200, 200]
        assert answers[0].json()["caller"] == {"name": "carol", "role": "viewer"}


@pytest.mark.slow
@pytest.mark.parametrize("query", ACTIONS)
async def test_a_viewer_may_not_act(tmp_path: Path, query: str) -> None:
    """403 with a sentence, a line in the log, and nothing done; the wrong-key limit is not for them."""
    async with scene(tmp_path) as made:
        answers = [await act(made, query, VIEWER_KEY) for _ in range(12)]

        assert {answer.status for answer in answers} == {403}
        body = answers[0].json()
        assert body["code"] == "read_only_key"
        assert body["error"] == "The key carol is read-only: this action needs a key from ADMIN_KEY."
        assert (made.scheduler.calls, records(made)) == ([], [])
        assert made.log.named("auth.forbidden")[0]["key"] == "carol"
        assert (await ask(create_app(made.site), PATH, headers={"X-Admin-Key": VIEWER_KEY})).status == 200


async def test_every_key_of_the_setting_opens(tmp_path: Path) -> None:
    """The first, the last and those between; a reload that removes one closes it."""
    async with scene(tmp_path) as made:
        many = named_keys("first-key-of-many", "second-key-of-many", "third-key-of-many")
        live = InForce(Keys(many), made.site.rules)
        app = create_app(made.with_site(in_force=live))
        opened = [(await ask(app, PATH, headers={"X-Admin-Key": key.secret})).status for key in many]
        live.keys = Keys(many[1:])
        after = [(await ask(app, PATH, headers={"X-Admin-Key": key.secret})).status for key in many]

        assert opened == [200, 200, 200]
        assert after == [401, 200, 200]


async def test_an_action_is_recorded_with_who_what_why_and_how_it_ended(tmp_path: Path) -> None:
    """The name of the key, never the key."""
    async with scene(tmp_path) as made:
        await act(made, "action=pause&for=2h&reason=Hiro%20moves%20house")
        await act(made, "action=refresh&task=all")
        answer = await ask(create_app(made.site), f"{PATH}/audit?limit=1", headers={"X-Admin-Key": ADMIN_KEY})

        pause, refresh = records(made)
        assert pause == AuditRecord(
            "operator-1", START_MS, "alice", "operator", "192.0.2.1", "pause", None, "Hiro moves house",
            "done", START_MS, "until 2026-05-13 21:30 UTC",
        )  # fmt: skip
        assert (refresh.target, refresh.reason) == ("all", None)
        assert refresh.detail is not None
        assert "of tenero: ok" in refresh.detail
        assert answer.json() == {"name": "v1", "records": [refresh.to_json()]}
        assert ADMIN_KEY.encode() not in answer.body


async def test_what_the_object_refuses_is_recorded_as_refused(tmp_path: Path) -> None:
    """And what the request does not say clearly is not an action."""
    async with scene(tmp_path) as made:
        assert (await act(made, "action=refresh&task=nothing")).status == 400
        assert (await act(made, "action=pause&until=1")).status == 400
        before = records(made)
        assert (await act(made, "action=pause")).status == 400
        assert (await act(made, "action=dance")).status == 400

        assert [record.outcome for record in before] == ["refused", "refused"]
        assert before[0].detail == "there is no task 'nothing': give one of tenero, sweep, all"
        assert records(made) == before


async def test_an_action_that_cannot_be_recorded_is_not_done(tmp_path: Path) -> None:
    """The audit log is in the same store as the scheduler: without it nothing can be done at all."""
    async with scene(tmp_path) as made:
        made.scheduler.failing = ObjectReset("the disk is full")
        answer = await act(made, "action=resume")

        assert (answer.status, answer.json()["code"]) == (503, "scheduler_unavailable")
        assert (made.scheduler.calls, records(made)) == ([], [])


async def test_an_action_whose_end_cannot_be_recorded_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets its answer, the record stays `begun`, and the log has the outcome."""
    async with scene(tmp_path) as made:

        async def lost(*_arguments: object) -> None:
            raise ObjectReset("the disk is full")

        monkeypatch.setattr(made.scheduler, "audit_end", lost, raising=False)
        answer = await act(made, "action=resume")

        assert answer.status == 200
        assert [record.outcome for record in records(made)] == ["begun"]
        line = made.log.named("audit.end_failed")[0]
        assert (line["record"], line["action"], line["key"], line["outcome"]) == (
            "operator-1",
            "resume",
            "alice",
            "done",
        )


async def test_a_failed_action_is_recorded_as_failed(tmp_path: Path) -> None:
    """As far as it can be: here the object answers again."""
    async with scene(tmp_path) as made:

        async def reload() -> Reloaded:
            raise ObjectReset("the object was reset")

        made.with_site(reload=reload)
        answer = await act(made, "action=reload")

        assert answer.status == 503
        assert [(record.outcome, record.detail) for record in records(made)] == [("failed", "the object was reset")]


@pytest.mark.parametrize("reason", ["x" * 201, "two%0Alines", "%1B[2J"])
async def test_a_reason_is_one_short_line(tmp_path: Path, reason: str) -> None:
    """It is shown in terminals and pages."""
    async with scene(tmp_path) as made:
        answer = await act(made, f"action=resume&reason={reason}")

        assert (answer.status, answer.json()["code"]) == (400, "bad_reason")
        assert records(made) == []


async def test_the_longest_reason_is_kept(tmp_path: Path) -> None:
    """Whatever is in it."""
    async with scene(tmp_path) as made:
        await act(made, f"action=resume&reason={'%3Cb%3E' + 'x' * 197}")

        assert [record.reason for record in records(made)] == ["<b>" + "x" * 197]


async def test_the_cron_route_is_in_the_audit_log(tmp_path: Path) -> None:
    """With both of its secrets while one replaces the other."""
    async with scene(tmp_path) as made:
        both = (*KEYS.cron, *named_keys("cr0n-s3cret-to-come", name="new", role="cron"))
        app = create_app(made.with_site(in_force=InForce(Keys(cron=both), made.site.rules)))
        for secret in (CRON_SECRET, "cr0n-s3cret-to-come"):
            headers = {"X-Cron-Secret": secret}
            assert (await ask(app, "/api/competition/cron", method="POST", headers=headers)).status == 200

        assert [(record.key, record.role, record.action, record.target) for record in records(made)] == [
            ("cron", "cron", "refresh", "sweep"),
            ("new", "cron", "refresh", "sweep"),
        ]


async def test_a_reload_answers_with_what_changed(tmp_path: Path) -> None:
    """Settings that are wrong are refused with every problem."""
    async with scene(tmp_path) as made:

        async def reload() -> Reloaded:
            return Reloaded("v1", ["ADMIN_KEY"], ["TOCSIN_PORT"], [])

        async def refuse() -> Reloaded:
            raise RequestRefused(422, "settings_refused", "ADMIN_KEY: its value is too short")

        made.with_site(reload=reload)
        done = await act(made, "action=reload")
        made.with_site(reload=refuse)
        refused = await act(made, "action=reload")

        assert done.json() == {
            "name": "v1",
            "applied": ["ADMIN_KEY"],
            "needsRestart": ["TOCSIN_PORT"],
            "overridden": [],
        }
        assert (refused.status, refused.json()["error"]) == (422, "ADMIN_KEY: its value is too short")
        assert [(record.outcome, record.detail) for record in records(made)] == [
            ("done", "applied: ADMIN_KEY; needs a restart: TOCSIN_PORT"),
            ("refused", "ADMIN_KEY: its value is too short"),
        ]


async def test_where_a_reload_is_a_deployment_the_answer_says_so(tmp_path: Path) -> None:
    """On Cloudflare."""
    async with scene(tmp_path) as made:
        answer = await act(made, "action=reload")

        assert (answer.status, answer.json()["code"]) == (409, "reload_is_a_deployment")
        assert "wrangler secret put" in answer.json()["error"]
