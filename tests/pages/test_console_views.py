"""The console's views: runs, one run, refusals, prices, the audit log; each has an address, and Back works."""

import re

import pytest
from playwright.sync_api import Page, expect

from support.pages_driver import enter_key, open_console, verdict
from support.pages_server import World, now_ms

KEY = "operator-key"
DAY_MS = 86_400_000


def open_view(page: Page, name: str) -> None:
    open_console(page, KEY)
    page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
    expect(page.locator("#view-title")).to_be_focused()


def test_runs_are_filtered_and_paged(page: Page, world: World) -> None:
    """By task and outcome; the address holds the filter; older runs are loaded on request."""
    open_view(page, "Runs")
    table = page.get_by_role("region", name="Table of runs").locator("tbody tr")
    expect(table).to_have_count(200)
    page.get_by_role("button", name="Older runs").click()
    expect(table).to_have_count(400)
    expect(page.get_by_role("status").filter(has_text="400 runs, newest first.")).to_be_visible()

    page.get_by_label("Task").select_option("sweep")
    page.get_by_label("Period").select_option("1d")
    sweeps = [run for run in world.runs if run["task"] == "sweep" and run["startedAt"] > now_ms() - DAY_MS]
    expect(table).to_have_count(len(sweeps))
    assert page.url.endswith("?view=runs&task=sweep&period=1d")
    page.get_by_label("Outcome").select_option("failed")
    failed = [run for run in sweeps if run["outcome"] == "failed"]
    expect(table).to_have_count(len(failed))
    expect(page.get_by_label("Outcome")).to_have_value("failed")
    page.get_by_label("Started by").select_option("rerun")
    expect(page.get_by_text("No matching runs.")).to_be_visible()


def test_charts_show_how_long_runs_took_and_how_late_they_were(page: Page, world: World) -> None:
    """A dot for each run, in the color of its outcome; its words in the picture's name, its run behind a click."""
    open_view(page, "Runs")
    page.get_by_label("Task").select_option("sweep")
    page.get_by_label("Period").select_option("6h")
    shown = [run for run in world.runs if run["task"] == "sweep" and run["startedAt"] > now_ms() - DAY_MS / 4]
    picture = page.get_by_role(
        "img", name=re.compile(rf"^Swap sweep, duration: {len(shown)} runs, median .*at most \d+ min$")
    )
    expect(picture.locator("circle")).to_have_count(len(shown))
    late = page.get_by_role("img", name=re.compile(r"^Swap sweep, lateness: .* at most \d+ ms$"))
    expect(late.locator("circle")).to_have_count(len(shown))

    late.locator("circle").last.dispatch_event("click")
    expect(page.locator("#view-title")).to_have_text(f"Run {shown[0]['id']} of Swap sweep")


def test_a_run_has_a_page_of_its_own(page: Page, world: World) -> None:
    """How it was started, what it did, why it failed, what it logged; Back returns to the previous view."""
    run = next(run for run in world.runs if run["task"] == "tenero" and run["outcome"] == "ok")
    run.update(done=9, total=13, calls=14, slotAt=run["startedAt"] - 1_500, durationMs=64_000)
    run.update(outcome="failed", error={"class": "Unavailable", "message": "tenero answered <b>503</b>"})
    open_view(page, "Runs")
    link = page.get_by_role("link", name=str(run["id"]), exact=True)
    link.click()

    view = page.locator("#view")
    expect(page.locator("#view-title")).to_have_text(f"Run {run['id']} of Token prices")
    expect(page).to_have_title(re.compile(rf"^Run {run['id']} of Token prices · .* · Console · Tocsin$"))
    for text in (
        "Unavailable: tenero answered <b>503</b>", "Startedbythealarm", "Took1 min 4 s", "Late1.5 s",
        "Progress9 of 13", "Calls to its upstream14", "tokens attempted", "minute 94, month 42,580",
        "4 in between were left out", "unit=<b>SP.one</b> reason=HTTP 503", "prices.refreshed",
    ):  # fmt: skip
        assert text.replace(" ", "") in re.sub(r"\s", "", view.inner_text()), text
    assert view.locator("b").count() == 0
    page.go_back()
    expect(page.locator("#view-title")).to_have_text("Runs")
    expect(link).to_be_visible()  # a run that changes while the service lists it is a 500
    run.update(trigger="refresh", slotAt=None)
    link.click()
    expect(view).to_contain_text("a refresh: the audit log shows whose")
    page.go_back()
    expect(page.locator("#view-title")).to_have_text("Runs")
    page.go_back()
    expect(page.locator("#overview")).to_be_visible()
    expect(page.locator("#view")).to_be_hidden()


def test_a_bar_and_a_row_of_the_overview_lead_to_their_run(page: Page, world: World) -> None:
    open_console(page, KEY)
    page.locator("#lanes rect[data-outcome=failed]").first.dispatch_event("click")
    expect(page.locator("#view-title")).to_have_text(re.compile(r"^Run \d+ of Token prices$"))
    page.go_back()
    page.get_by_text("As a table").click()
    page.locator("#runs a").first.click()
    expect(page.locator("#view-title")).to_have_text(re.compile(rf"^Run {world.runs[0]['id']} of "))


def test_a_link_to_a_view_works_after_the_key(page: Page, world: World) -> None:
    """A shared address opens what it names; a run that is gone gets a sentence, an unknown view the overview."""
    page.goto(f"/console?view=run&run={world.runs[3]['id']}")
    enter_key(page, KEY)
    expect(page.locator("#view-title")).to_have_text(re.compile(rf"^Run {world.runs[3]['id']} of "))
    page.goto("/console?view=run&run=1")
    expect(page.get_by_role("alert").last).to_have_text("This view cannot be shown: there is no run 1")
    page.goto("/console?view=constructor")
    expect(page.locator("#overview")).to_be_visible()


def test_refusals_can_be_opened(page: Page, world: World) -> None:
    """From their count by reason to one with what was found, its agent and the explorer."""
    open_console(page, KEY)
    page.locator("#refusals").get_by_role("link", name="sender not registered").click()
    expect(page.get_by_label("Reason", exact=True).last).to_have_value("sender_not_registered")
    items = page.locator(".opened > li")
    expect(items).to_have_count(40)
    items.first.locator("summary").click()
    newest = next(one for one in world.refused if one["code"] == "sender_not_registered")

    expect(items.first).to_contain_text(newest["sentence"])
    expect(items.first).to_contain_text("<b>what was found</b> of number 1")
    expect(items.first).to_contain_text("SP1.a-pool swap-x-for-y")
    expect(items.first.get_by_role("link", name="Agent's page")).to_have_attribute(
        "href", f"/agents/{newest['sender']}"
    )
    explorer = items.first.get_by_role("link", name="Transaction in the explorer")
    expect(explorer).to_have_attribute("href", re.compile(newest["txid"]))
    expect(explorer).to_have_attribute("rel", "noreferrer")
    page.get_by_label("Reason", exact=True).last.select_option("")
    expect(items).to_have_count(50)
    page.get_by_role("button", name="Older ones").click()
    expect(items).to_have_count(100)
    page.get_by_label("Wallet").fill("SPNOBODY")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#view").get_by_text("None.", exact=True)).to_be_visible()


def test_a_token_s_prices_as_a_line(page: Page, world: World) -> None:
    """With its gaps: a time in which no price was seen, and one without a price. The table has the same."""
    open_view(page, "Prices")
    expect(page.locator("#view-title")).to_have_text("Price of STX")
    known = [point["priceUsd"] for point in world.price_history if point["priceUsd"] is not None]
    picture = page.get_by_role("img", name=re.compile(r"^Price of STX: \$0\.\d+, .\d+\.\d %"))
    expect(picture.locator("path")).to_have_count(3)
    page.locator("#view").get_by_text("As a table").click()
    expect(page.get_by_role("region", name="Prices", exact=True).locator("tbody tr")).to_have_count(len(known) + 1)
    welsh = next(token for token in world.prices if "welsh" in token)
    page.get_by_label("Token", exact=True).select_option(welsh)
    expect(page.locator("#view-title")).to_have_text("Price of WELSH")
    assert "token=" in page.url
    page.get_by_label("Period").select_option("7d")
    expect(page.locator(".summary")).to_contain_text("in 7 days")
    world.price_history.clear()
    page.get_by_label("Period").select_option("30d")
    expect(page.get_by_text("No price was seen in the last 30 days.")).to_be_visible()


def test_a_view_that_cannot_be_loaded_says_why(page: Page, world: World) -> None:
    """And the verdict stays in sight."""
    world.faults["/api/admin/competition/refusals"] = (503, "The database is busy.")
    open_view(page, "Refusals")

    expect(page.get_by_text("The database is busy.")).to_be_visible()
    expect(verdict(page)).to_have_text("Ready")


@pytest.mark.parametrize("name", ["Runs", "Refusals", "Prices", "Rounds", "Audit log"])
def test_nothing_of_a_view_is_left_after_lock(page: Page, world: World, name: str) -> None:
    open_view(page, name)
    expect(page.locator("#view .view-body > *").first).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    page.go_back()
    expect(page.locator("#view .view-body > *").first).to_be_visible()
    page.evaluate("document.getElementById('lock').click()")

    expect(page.get_by_label("Admin key")).to_be_focused()
    expect(page.locator("#view > *")).to_have_count(0)
    expect(page.get_by_role("navigation", name="Views")).to_be_hidden()


def test_the_runs_follow_while_they_are_looked_at(page: Page, world: World) -> None:
    open_view(page, "Runs")
    expect(page.get_by_role("region", name="Table of runs").locator("tbody tr")).to_have_count(200)
    newest = {**world.runs[0], "id": world.runs[0]["id"] + 1, "startedAt": now_ms()}
    world.runs.insert(0, newest)
    world.emit("run.ended", task=newest["task"], run=newest["id"], outcome="ok", durationMs=5, result={})

    expect(page.get_by_role("link", name=str(newest["id"]), exact=True)).to_be_visible()


def test_a_demo_can_be_broken_and_healed(page: Page, world: World) -> None:
    """Each button breaks one thing, the page shows what is broken, and one button fixes everything."""
    world.simulator = {"faults": [], "badTimes": False, "otherPlans": []}
    open_view(page, "Break things")
    expect(page.get_by_text("Nothing is broken.")).to_be_visible()
    page.get_by_role("button", name="Hiro answers 429").click()
    expect(page.get_by_text("Broken now: hiro answers 429.")).to_be_visible()
    page.get_by_role("button", name="Tenero is down").click()
    expect(page.get_by_text("Broken now: tenero is down; hiro answers 429.")).to_be_visible()
    page.get_by_role("button", name="The chain forks").click()
    expect(page.get_by_text("The chain forks.", exact=True)).to_be_visible()
    page.get_by_role("button", name="Hiro's plan shrinks").click()
    expect(page.get_by_text("hiro has a smaller plan.")).to_be_visible()
    page.get_by_role("button", name="Repair everything").click()
    expect(page.get_by_text("Nothing is broken.")).to_be_visible()

    assert world.simulator["commands"] == ["fault", "fault", "reorg", "limits", "calm"]
    sent = world.asked("/simulator/_control/fault")[0]["headers"]
    assert (sent["x-admin-key"], sent["content-type"]) == (KEY, "application/json")


def test_a_real_service_cannot_be_broken(page: Page, world: World) -> None:
    """There is no link to it, its address says so, and no simulator is called."""
    open_console(page, KEY)
    expect(page.get_by_role("link", name="Break things")).to_be_hidden()
    page.goto("/console?view=demo")

    expect(page.get_by_text("This view cannot be shown: this is not a demo.")).to_be_visible()
    assert not [request for request in world.requests if request["path"].startswith("/simulator")]


def test_the_days_of_a_task(page: Page, world: World) -> None:
    """From its runs to its days: how long they took on average, and how many were not complete."""
    open_view(page, "Runs")
    page.get_by_label("Task", exact=True).select_option("tenero")
    page.get_by_role("link", name="30 days, day by day").click()
    expect(page.locator("#view-title")).to_have_text("Days of Token prices")
    mine = [run for run in world.runs if run["task"] == "tenero"]
    failed = [run for run in mine if run["outcome"] != "ok"]
    cells = page.get_by_role("region", name="Table of days").locator("tbody tr td").all_inner_texts()
    totals = [sum(int(text) for text in cells[column::6]) for column in (1, 2, 3)]

    assert totals == [len(mine), len(failed), 3 * len(mine)]
    expect(page.get_by_role("img", name=re.compile("^Average duration: median"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Runs that were not complete: "))).to_be_visible()
    page.get_by_role("link", name="Its runs").click()
    expect(page.get_by_label("Task", exact=True)).to_have_value("tenero")
