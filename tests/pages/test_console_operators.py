"""The console for an operator and for a viewer, and the audit log in it."""

from playwright.sync_api import Page, expect

from support.pages_driver import enter_key, events, open_console, said, task_card
from support.pages_server import World, now_ms
from tocsin.scheduler.types import AuditRecord

KEY = "operator-key"
ACTING = "#refresh-all, #pause-open, #resume, #reason, [data-refresh]"
MARKUP = "<img src=x onerror=alert(1)> & <b>bold</b>"


def test_an_operator_sees_whose_key_it_is_and_may_act(page: Page) -> None:
    """The name of the key and its role; every button works."""
    open_console(page, KEY)

    expect(page.locator("#caller")).to_have_text("alice, operator")
    for part in page.locator(ACTING).all():
        expect(part).to_be_enabled()


def test_a_viewer_may_only_look(page: Page, world: World) -> None:
    """The page says so, and every button that acts stays disabled, whatever happens."""
    world.role = "viewer"
    open_console(page, KEY)

    expect(page.locator("#caller")).to_have_text("alice, read-only")
    world.emit("scheduler.resumed")  # an event, so that the console draws again
    expect(events(page).first).to_contain_text("scheduler.resumed")
    assert page.locator(ACTING).count() == 7
    for part in page.locator(ACTING).all():
        expect(part).to_be_disabled()
    expect(page.get_by_role("button", name="Lock")).to_be_enabled()
    assert not [request for request in world.requests if request["method"] == "POST"]


def test_the_next_key_may_have_another_role(page: Page, world: World) -> None:
    """A viewer locks the console, and an operator opens it in the same tab."""
    world.role = "viewer"
    open_console(page, KEY)
    page.get_by_role("button", name="Lock").click()
    world.role = "operator"
    enter_key(page, KEY)

    expect(page.locator("#caller")).to_have_text("alice, operator")
    expect(page.get_by_role("button", name="Refresh all")).to_be_enabled()
    expect(task_card(page, "Swap sweep").get_by_role("button")).to_be_enabled()


def test_a_role_that_is_taken_away_while_the_console_is_open(page: Page, world: World) -> None:
    """The service refuses with its sentence, and the buttons are disabled from then on."""
    open_console(page, KEY)
    world.viewer_when_acting = True
    page.get_by_role("button", name="Refresh all").click()

    expect(said(page)).to_contain_text("Failed: The key alice is read-only.")
    expect(page.get_by_role("button", name="Refresh all")).to_be_disabled()


def test_a_reason_goes_with_one_action(page: Page, world: World) -> None:
    """It is sent once, and the audit log shows it as text."""
    open_console(page, KEY)
    page.get_by_role("textbox", name="Reason").fill(MARKUP)
    page.get_by_role("button", name="Refresh all").click()
    expect(said(page)).to_contain_text("Token prices")
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("")
    page.get_by_role("link", name="Audit log").click()

    row = page.get_by_role("region", name="Actions").get_by_role("row").nth(1)
    expect(row).to_contain_text("alice")
    expect(row).to_contain_text("refresh all")
    expect(row).to_contain_text(MARKUP)
    assert page.locator("#view img").count() == 0


def test_the_open_audit_log_follows_and_an_unknown_end_is_told(page: Page, world: World) -> None:
    """Another operator's action appears by itself; after Lock nothing of it is left."""
    open_console(page, KEY)
    page.get_by_role("link", name="Audit log").click()
    expect(page.locator("#view")).to_contain_text("No actions yet.")
    record = AuditRecord("bob", "operator", "192.0.2.9", "refresh", "sweep", id="operator-1", at=now_ms())
    world.audit.insert(0, record.to_json())
    world.emit("admin.acted", key="bob", action="resume", outcome="done", target=None, detail=None, reason=None)

    expect(page.get_by_role("region", name="Actions")).to_contain_text("bob")
    expect(page.get_by_role("region", name="Actions")).to_contain_text("end unknown")
    page.get_by_role("link", name="Overview").click()
    expect(events(page).filter(has_text="admin.acted")).to_contain_text("bob: resume")
    page.get_by_role("button", name="Lock").click()
    expect(page.locator("#events li")).to_have_count(0)
