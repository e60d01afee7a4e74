"""The console as an operator uses it."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from playwright.sync_api import Page, expect

from support.pages_driver import enter_key, events, open_console, press, said, stop_time, task_card, verdict
from support.pages_server import PagesServer, World, now_ms
from support.pages_world import Json
from support.statuses import HOUR, MINUTE
from tocsin.scheduler.types import Progress

STATUS = "/api/admin/scheduler"
KEY = "operator-key"
Change: TypeAlias = Callable[[Json], None]


# The key


def test_a_wrong_key_opens_nothing(page: Page) -> None:
    """A wrong key is refused with a sentence, and kept nowhere."""
    page.goto("/console")
    enter_key(page, "guessed")

    sentence = "This key is wrong: enter a key of ADMIN_KEY or TOCSIN_VIEWER_KEY."
    expect(page.get_by_role("alert")).to_have_text(sentence)
    expect(page.locator("#desk")).to_be_hidden()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_service_without_a_key_shows_its_sentence(page: Page, world: World) -> None:
    """When no key is configured, the page shows what the service sent."""
    world.faults[STATUS] = (503, "ADMIN_KEY is not set: set it and restart.")
    page.goto("/console")
    enter_key(page, KEY)

    expect(page.get_by_role("alert")).to_have_text("ADMIN_KEY is not set: set it and restart.")


def test_the_key_lives_in_this_tab_only(page: Page, server: PagesServer) -> None:
    """A reload keeps the console open; the key is in no URL, cookie, lasting storage or other tab."""
    open_console(page, KEY)
    page.reload()
    expect(verdict(page)).to_have_text("Ready")

    assert KEY not in page.evaluate("JSON.stringify([localStorage, document.cookie, location.href])")
    assert page.evaluate("document.getElementById('key').value") == ""
    assert all(KEY not in request["url"] for request in server.world.requests)
    other = page.context.new_page()
    other.goto("/console")
    expect(other.get_by_label("Admin key")).to_be_visible()


def test_lock_forgets_the_key(page: Page) -> None:
    """After Lock a reload asks for the key again."""
    open_console(page, KEY)
    page.get_by_role("button", name="Lock").click()
    expect(page.get_by_role("alert")).to_contain_text("The key was deleted")
    page.reload()

    expect(page.locator("#desk")).to_be_hidden()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_changes_while_the_console_is_open(page: Page, world: World) -> None:
    """When the key is no longer accepted, the console locks itself."""
    open_console(page, KEY)
    world.key = "another"
    world.emit("alarm.armed", nextAlarmAt=now_ms())  # an event, so that the console asks again

    expect(page.get_by_role("alert")).to_have_text("That is not the admin key.")
    expect(page.locator("#desk")).to_be_hidden()


# At a glance


def test_alive_with_a_countdown(page: Page, world: World) -> None:
    """Ready, when it rings next, and each task with cadence, last and next run."""
    open_console(page, KEY)

    expect(verdict(page)).to_have_text("Ready")
    expect(page.locator("#next-alarm")).to_have_text(re.compile(r"^0:\d\d$"))
    card = task_card(page, "Swap sweep")
    expect(card).to_contain_text("every 15 min")
    expect(card).to_contain_text("on time")
    expect(card.locator("[data-part=last]")).to_contain_text("ok in")
    expect(card.locator("[data-part=next]")).to_have_text(re.compile(r"^[67]:\d\d$"))
    expect(page).to_have_title("Ready · Console · Tocsin")


def of_tenero(**fields: Any) -> Change:
    return lambda status: status["tasks"]["tenero"].update(fields)


def limited(status: Json) -> None:
    error = {"at": now_ms(), "class": "Limited", "message": "the upstream asked us to wait (429)"}
    status["nextRunAfter"]["tenero"] = now_ms() + 600_000
    status["tasks"]["tenero"]["lastError"] = error


SLOWER = {"effectiveCadenceMs": 20 * MINUTE, "cadenceReason": "stretched: 900 of 50000 calls are left"}
TROUBLES: list[tuple[Change, str, str]] = [
    (lambda status: status.update(pausedUntil=now_ms() + HOUR), "Paused", "paused"),
    (lambda status: status.update(active=False), "Not the active scheduler", "on time"),
    (lambda status: status.update(nextAlarmAt=None), "Not working", "on time"),
    (lambda status: status.update(nextAlarmAt=now_ms() - 5 * MINUTE), "Not working", "on time"),
    (of_tenero(overdue=True), "Overdue", "Token prices overdue, no complete run for 15m"),
    (of_tenero(failing=True), "Failing", "Token prices failed 3 times"),
    (of_tenero(enabled=False), "Switched off", "Token prices switched off (TOCSIN_TENERO_ENABLED)"),
    (of_tenero(condition="partial"), "Not complete", "Token prices not complete"),
    (of_tenero(condition="limited"), "Limited", "Token prices limited"),
    (limited, "Ready", "Limited: the upstream asked us to wait (429)"),
    (of_tenero(**SLOWER), "Ready", "20 min instead of 5 min"),
    (of_tenero(cadenceMs=60_000, effectiveCadenceMs=72_888), "Ready", "73 s instead of 60 s"),
    (of_tenero(missedSlots=1), "Ready", "(1 slot missed in total)"),
    (of_tenero(**SLOWER), "Ready", "Cadence stretched: 900 of 50000 calls are left"),
]


def test_the_title_is_the_worst_that_is_true(page: Page, world: World) -> None:
    """The title shows what an operator should know first; the card shows it for its task, with the reason."""
    open_console(page, KEY)
    calm = json.dumps(world.status)
    for change, title, on_card in TROUBLES:
        world.status = json.loads(calm)
        change(world.status)
        world.emit("alarm.armed", nextAlarmAt=now_ms())  # an event, so that the console asks again
        expect(task_card(page, "Token prices")).to_contain_text(on_card)
        expect(verdict(page)).to_have_text(title)


def test_budgets_prices_and_refusals(page: Page, world: World) -> None:
    """Gauges with a forecast, prices with their age, refusals by reason."""
    world.status["budgets"]["hiro"]["spent"]["month"] = 140_000
    world.status["budgets"]["hiro"]["forecast"].update(usedAtEnd=300_000, runsOutAt=now_ms() + 86_400_000)
    world.status["budgets"]["hiro"]["reported"]["anonymous"] = True
    world.status["budgets"]["tenero"]["closedUntil"] = now_ms() + 60_000
    use = {"lookups": 30_000, "hits": 28_500, "calls": 1_400, "stale": 90, "refused": 10, "failed": 0}
    world.status["lookups"] = {"site": use}
    open_console(page, KEY)

    looked_up = "site: 30,000 look-ups, 28,500 from memory, 1,400 calls, 90 stale, 10 refused."
    expect(page.locator("#lookups")).to_have_text(looked_up)
    hiro = page.locator("#budgets li").filter(has_text="hiro")
    expect(hiro).to_contain_text("140,000 of 150,000 calls")
    expect(hiro).to_contain_text("At this rate the budget runs out on")
    expect(page.locator("#budgets li").filter(has_text="tenero")).to_contain_text("after a 429")
    expect(hiro).to_contain_text("48 of 500 in the last minute, counted as an anonymous caller.")
    expect(page.get_by_role("meter", name="Calls to hiro this month")).to_have_attribute("aria-valuenow", "140000")
    expect(page.locator("#prices li").filter(has_text="welsh")).to_contain_text("2 min ago")
    assert page.locator("#refusals li").all_inner_texts() == [
        "contract not allowlisted\n143",
        "sender not registered\n31",
        "tx failed\n12",
    ]


def test_refusals_that_could_not_be_counted(page: Page, world: World) -> None:
    """No refusals and no answer are different; when there is an answer again, it shows."""
    world.refusals = None
    open_console(page, KEY)
    expect(page.locator("#no-refusals")).to_have_text("Not known: the database does not answer.")
    world.refusals = {}
    world.emit("alarm.armed", nextAlarmAt=now_ms())

    expect(page.locator("#no-refusals")).to_have_text("None.")


# Acting


def test_a_task_that_runs_is_green_only_if_it_is_complete(page: Page, world: World) -> None:
    """One that never succeeded stays marked while it runs."""
    running = Progress(now_ms(), 1, 3, 7).to_json()
    world.status["tasks"]["tenero"].update(running=running, overdue=True)
    world.status["tasks"]["sweep"].update(running=running)
    open_console(page, KEY)

    for title, mood in (("Token prices", "bad"), ("Swap sweep", "live")):
        badge = task_card(page, title).locator(".badge")
        expect(badge).to_have_text("running")
        expect(badge).to_have_attribute("data-mood", mood)


def test_refresh_shows_progress_and_result(page: Page, world: World) -> None:
    """A refresh shows its progress as it happens, and then its result."""
    go_on = world.hold("tenero")
    open_console(page, KEY)
    card = task_card(page, "Token prices")
    card.get_by_role("button", name="Refresh now").click()

    expect(card).to_contain_text("2 of 3")
    expect(card).to_contain_text("running")
    expect(card.get_by_role("progressbar")).to_have_js_property("value", 2)
    expect(card.get_by_role("button", name="Refresh now")).to_be_disabled()
    go_on.set()

    expect(card.get_by_role("status")).to_contain_text("Token prices done in 900 ms (run")
    expect(card.get_by_role("status")).to_contain_text("succeeded 13")
    expect(card).to_contain_text("on time")


def test_refresh_all(page: Page) -> None:
    """Every task's result is shown."""
    open_console(page, KEY)
    page.get_by_role("button", name="Refresh all").click()

    expect(said(page)).to_contain_text("Token prices done in")
    expect(said(page)).to_contain_text("Swap sweep done in")


def test_an_action_that_fails_shows_why(page: Page, world: World) -> None:
    """A refused action changes nothing and shows the service's own message."""
    open_console(page, KEY)
    world.faults[STATUS] = (429, "Too many requests: wait a minute.")
    page.get_by_role("button", name="Refresh all").click()

    expect(said(page)).to_contain_text("Failed: Too many requests: wait a minute.")


def test_pause_asks_for_a_duration_and_resume_ends_it(page: Page, world: World) -> None:
    """A pause is confirmed with its end; resume ends it; both show what happened."""
    open_console(page, KEY)
    page.get_by_role("button", name="Pause…").click()
    dialog = page.get_by_role("dialog", name="Pause scheduled runs")
    dialog.get_by_label("4 h", exact=True).check()
    dialog.get_by_role("button", name=re.compile(r"^Pause until \d\d:\d\d$")).click()

    expect(said(page)).to_contain_text("for 4 h")
    expect(verdict(page)).to_have_text("Paused")
    assert abs(world.status["pausedUntil"] - now_ms() - 4 * 3_600_000) < 60_000

    page.get_by_role("button", name="Resume").click()

    expect(said(page)).to_contain_text("Resumed")
    expect(verdict(page)).to_have_text("Ready")
    assert world.status["pausedUntil"] is None


def test_a_pause_that_is_not_confirmed_changes_nothing(page: Page, world: World) -> None:
    """Cancel and Escape leave the scheduler running."""
    open_console(page, KEY)
    for leave in ("Cancel", "Escape"):
        page.get_by_role("button", name="Pause…").click()
        dialog = page.get_by_role("dialog", name="Pause scheduled runs")
        expect(dialog).to_be_visible()
        if leave == "Escape":
            page.keyboard.press("Escape")
        else:
            dialog.get_by_role("button", name=leave).click()
        expect(dialog).to_be_hidden()

    assert world.status["pausedUntil"] is None
    assert all(request["method"] == "GET" for request in world.requests)


def test_a_pause_keeps_to_the_longest(page: Page, world: World) -> None:
    """Choices beyond the longest pause are not offered, and a time beyond it cannot be confirmed."""
    world.status["pauseMaxMs"] = 2 * 3_600_000
    open_console(page, KEY)
    page.get_by_role("button", name="Pause…").click()
    dialog = page.get_by_role("dialog", name="Pause scheduled runs")
    expect(dialog).to_be_visible()
    assert dialog.locator("label").all_inner_texts() == ["15 min", "1 h", "until…"]

    dialog.get_by_label("until…").check()
    dialog.get_by_label("Pause until").fill("2099-01-01T00:00")

    expect(dialog.get_by_role("alert")).to_contain_text("at most 2 h from now")
    expect(dialog.locator("#pause-yes")).to_be_disabled()


# Events


def test_events_appear_as_they_happen(page: Page, world: World) -> None:
    """Each event is a line, newest first; progress of a run takes one line; unknown events show their fields."""
    open_console(page, KEY)
    world.emit("run.started", task="sweep", run=7, trigger="alarm", slotAt=1)
    for done in range(1, 6):
        world.emit("run.progressed", task="sweep", run=7, done=done, total=5)
    world.emit("something.new", detail="<b>bold</b>")

    expect(events(page)).to_have_count(3)
    expect(events(page).nth(0)).to_contain_text('{"detail":"<b>bold</b>"}')
    expect(events(page).nth(1)).to_contain_text("Swap sweep: run 7 at 5 of 5")
    expect(events(page).nth(2)).to_contain_text("run 7 started by alarm")


def test_a_lost_connection_is_shown_and_resumed(page: Page, world: World, server: PagesServer) -> None:
    """It shows that it is disconnected and since when; reconnected, it misses no event and repeats none."""
    page.clock.install()
    open_console(page, KEY)
    world.emit("scheduler.resumed")
    expect(events(page)).to_have_count(1)
    last = world.events[-1]["seq"]

    server.stop()
    expect(verdict(page)).to_have_text("Disconnected")
    expect(page.locator("#verdict-text")).to_contain_text("You see the state of")
    expect(page.locator("#link")).to_have_text("disconnected")
    world.emit("scheduler.paused", until=now_ms() + 60_000)
    expect(page.get_by_role("button", name="Try now")).to_be_visible()
    stop_time(page)
    server.start()
    press(page.locator("#reconnect"))
    page.clock.resume()

    expect(verdict(page)).to_have_text("Ready")
    expect(page.locator("#link")).to_have_text("live")
    expect(events(page)).to_have_count(2)
    resumed = [ask["headers"].get("last-event-id") for ask in world.asked(f"{STATUS}/events")]
    assert resumed[0] is None
    assert resumed[-1] == str(last)


def test_reconnects_by_itself(page: Page, server: PagesServer) -> None:
    """Without any action the console is live again when the service is."""
    page.clock.install()
    open_console(page, KEY)
    server.stop()
    expect(verdict(page)).to_have_text("Disconnected")
    server.start()
    page.clock.fast_forward(61_000)

    expect(verdict(page)).to_have_text("Ready")
    expect(page.locator("#link")).to_have_text("live")


def test_a_silent_stream_is_given_up(page: Page, world: World) -> None:
    """A connection without a byte for a minute counts as dead and is opened again."""
    page.clock.install()
    open_console(page, KEY)
    before = len(world.asked(f"{STATUS}/events"))
    answered = world.hold(f"{STATUS}/events")  # or it would be connected again before the test checks
    page.clock.fast_forward(61_000)
    expect(page.locator("#link")).to_have_text("disconnected")
    answered.set()
    page.clock.fast_forward(2_000)

    expect(page.locator("#link")).to_have_text("live")
    assert len(world.asked(f"{STATUS}/events")) == before + 1
