"""Runs and their outcomes on the console."""

import re

from playwright.sync_api import Page, expect

from support.pages_driver import events, open_console, task_card
from support.pages_server import World, now_ms

KEY = "operator-key"


def test_hours_of_runs_as_picture_and_table(page: Page, world: World) -> None:
    """Each run is a bar with its outcome; the picture's description has the same, the table each task's newest."""
    open_console(page, KEY)
    shown = world.runs[:500]  # with one every minute, more than six hours
    mine = [run for run in shown if run["task"] == "tenero"]
    failed = [run for run in mine if run["outcome"] == "failed"]

    expect(page.locator("#timeline-title")).to_have_text("Runs of the last 6 h")
    assert len(mine) >= 78
    assert len(failed) >= 10
    lane = page.locator("#lanes li").first
    expect(lane.locator("rect")).to_have_count(len(mine))
    expect(lane.locator("rect[data-outcome=failed]")).to_have_count(len(failed))
    label = f"Token prices: {len(mine)} runs, {len(failed)} failed, 0 not complete, the longest took"
    expect(lane.get_by_role("img", name=label)).to_be_visible()
    lane.locator("rect[data-outcome=failed]").first.hover()
    expect(page.locator("#pointed")).to_contain_text("failed")
    page.get_by_text("As a table").click()
    expect(page.locator("#runs tr").first).to_contain_text("alarm")
    for title in ("Token prices", "Transaction feed", "Swap sweep"):
        expect(page.locator("#runs tr", has_text=title)).to_have_count(20)


def test_a_partial_run_has_a_color_and_a_word_of_its_own(page: Page, world: World) -> None:
    """Amber, not red: its work is kept. Picture, table and card show its reason and outcome."""
    reason = "its time slice was nearly over"
    newest, *_, older = [run for run in world.runs if run["task"] == "sweep"][:9]
    for run in (newest, older):
        run.update(outcome="partial", reason=reason, error=None, result={"scanned": 7}, durationMs=41_200)
    open_console(page, KEY)
    amber = page.evaluate(
        "() => { const node = document.body.appendChild(document.createElement('i'));"
        " node.style.color = 'var(--warn)'; return getComputedStyle(node).color; }"
    )

    expect(page.locator("#lanes rect[data-outcome=partial]")).to_have_count(2)
    bar = page.locator(f"#lanes rect[data-key='{older['id']}']")
    expect(bar).to_have_css("fill", amber)
    bar.hover()
    expect(page.locator("#pointed")).to_contain_text(f"partial · 41.2 s · {reason}")
    expect(page.get_by_role("img", name=re.compile(r"^Swap sweep: .* 2 not complete, "))).to_be_visible()
    expect(page.locator(".legend")).to_contain_text("ok partial limited failed")
    page.get_by_text("As a table").click()
    row = page.locator("#runs tr[data-outcome=partial]").first
    expect(row).to_contain_text(reason)
    expect(row).to_have_css("color", amber)
    last = task_card(page, "Swap sweep").locator("[data-part=last]")
    expect(last).to_contain_text(", partial in 41.2 s")
    expect(last).to_have_css("color", amber)
    marks = page.locator(".legend i").evaluate_all("all => all.map((i) => getComputedStyle(i).backgroundColor)")
    assert len(set(marks)) == 6


def test_a_partial_refresh_is_a_warning(page: Page, world: World) -> None:
    """Neither done nor failed: the card and the event log show the reason."""
    world.refresh_outcome = ("partial", "its time slice was nearly over")
    open_console(page, KEY)
    card = task_card(page, "Token prices")
    card.get_by_role("button", name="Refresh now").click()

    result = card.get_by_role("status")
    expect(result).to_have_text(re.compile(r"Token prices partial \(run \d+\): its time slice was nearly over$"))
    expect(result).to_have_attribute("data-mood", "warn")
    ended = events(page).filter(has_text="run.ended")
    expect(ended).to_contain_text("partial after 900 ms · its time slice was nearly over · tokens attempted 13")
    expect(ended).to_have_attribute("data-mood", "warn")


def test_a_run_that_has_only_just_begun_has_a_bar(page: Page, world: World) -> None:
    """The page's estimate of the service's clock may be late: no bar has a negative height."""
    begun = {"id": 10**6, "startedAt": now_ms() + 5_000, "endedAt": None, "durationMs": None}
    world.runs.insert(0, {**world.runs[0], **begun, "outcome": "running"})
    open_console(page, KEY)

    bar = page.locator("#lanes rect[data-outcome=running]")
    expect(bar).to_have_attribute("height", re.compile(r"^\d+(\.\d+)?%$"))
