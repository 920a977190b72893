"""A person and the page: by link or code, mouse, touch or keyboard, with and without JavaScript, twice, back and forth."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from app.page_words import WORDS, Case, Language
from tests.browser.conftest import Visit
from tests.browser.site import DESKTOP, PHONE, Site, Visitor
from tests.support.cluster import wait_for

EN, DE = WORDS[Language.EN], WORDS[Language.DE]
CONFIRMED, USED = EN.messages[Case.CONFIRMED].title, EN.messages[Case.USED].title
CANCELLED = EN.messages[Case.REVOKED].title


def posts(site: Site) -> int:
    return site.served.calls.count("POST /verify")


def goes_on(visitor: Visitor, verification_id: str) -> None:
    """Continue leads to the host, which learns the verification's id and nothing else."""
    visitor.page.get_by_role("link", name=EN.onward).click()
    visitor.sees("Welcome back")
    assert visitor.site.host.calls[0] == f"GET /done?from=mail&verification_id={verification_id}"


@pytest.mark.parametrize("device", [{"viewport": DESKTOP}, {"viewport": PHONE, "has_touch": True}])
def test_the_link_the_button_and_back_to_the_host(visit: Visit, site: Site, device: dict[str, Any]) -> None:
    verification_id, token = site.made()
    visitor = visit(**device)
    page = visitor.open(token)
    expect(page.get_by_label(EN.label)).to_have_value(token)
    assert page.url == site.url
    visitor.press("confirm")
    visitor.sees(CONFIRMED)
    expect(page.locator("main")).to_contain_text("a***@example.com is confirmed")
    assert page.url == site.url
    assert site.phase(verification_id) == "consumed"
    goes_on(visitor, verification_id)


def test_confirming_with_the_keyboard_alone(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    visitor = visit()
    page = visitor.open(token)
    for stop in ("token", "action"):
        page.keyboard.press("Tab")
        assert visitor.focus() == stop
        assert visitor.focus_is_marked()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    visitor.sees(CONFIRMED)
    assert visitor.focus() == CONFIRMED
    page.keyboard.press("Tab")
    assert (visitor.focus(), visitor.focus_is_marked()) == (EN.onward, True)
    page.keyboard.press("Enter")
    visitor.sees("Welcome back")
    assert site.phase(verification_id) == "consumed"


def test_revoking_with_the_keyboard_alone(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    visitor = visit()
    page = visitor.open(token)
    for _ in range(3):
        page.keyboard.press("Tab")
    assert visitor.focus_is_marked()
    with page.expect_navigation():
        page.keyboard.press("Space")
    visitor.sees(CANCELLED)
    assert site.phase(verification_id) == "cancelled"


def test_without_javascript_the_code_is_typed_however_it_is_spelt(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    visitor = visit(java_script_enabled=False)
    page = visitor.open(token)
    field = page.get_by_label(EN.label)
    expect(field).to_have_value("")
    field.fill("  " + token.lower().translate({ord("0"): "o", ord("1"): "l", ord("-"): " \u2013 "}))
    visitor.press("confirm")
    visitor.sees(CONFIRMED)
    goes_on(visitor, verification_id)


def test_a_wrong_code_stays_in_the_field_to_be_corrected(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    visitor = visit()
    page = visitor.open()
    page.get_by_label(EN.label).fill(wrong)
    visitor.press("confirm")
    expect(page.get_by_role("alert")).to_contain_text("Nothing was changed")
    field = page.get_by_label(EN.label)
    expect(field).to_have_value(wrong)
    expect(field).to_have_attribute("aria-invalid", "true")
    page.reload()
    expect(field).to_have_value(wrong)
    field.fill(token)
    visitor.press("confirm")
    visitor.sees(CONFIRMED)
    assert site.phase(verification_id) == "consumed"


def press_twice(visitor: Visitor) -> None:
    """The second time while the first is not answered: its account's row is held meanwhile."""
    box = visitor.page.locator("button[value=confirm]").bounding_box()
    assert box
    with visitor.site.api.database.transaction() as tx:
        tx.execute("SELECT 1 FROM accounts FOR UPDATE")
        visitor.page.mouse.click(box["x"] + 9, box["y"] + 9)
        wait_for(lambda: posts(visitor.site) == 1, "the first POST")
        visitor.page.mouse.click(box["x"] + 9, box["y"] + 9)


def test_pressing_twice_sends_once(visit: Visit, site: Site) -> None:
    _, token = site.made()
    visitor = visit()
    visitor.open(token)
    press_twice(visitor)
    visitor.sees(CONFIRMED)
    assert posts(site) == 1


def test_pressing_twice_without_javascript_scares_nobody(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    visitor = visit(java_script_enabled=False)
    page = visitor.open()
    page.get_by_label(EN.label).fill(token)
    press_twice(visitor)
    visitor.sees(USED)
    expect(page.get_by_role("alert")).to_have_count(0)
    assert posts(site) == 2
    assert site.phase(verification_id) == "consumed"
    goes_on(visitor, verification_id)


def test_reloading_before_pressing_keeps_the_code(visit: Visit, site: Site) -> None:
    _, token = site.made()
    visitor = visit()
    page = visitor.open(token)
    page.reload()
    expect(page.get_by_label(EN.label)).to_have_value(token)
    assert page.url == site.url


def test_reloading_the_answer_shows_it_again_and_sends_nothing_twice(visit: Visit, site: Site) -> None:
    verification_id, token = site.made(locale="de")
    visitor = visit()
    page = visitor.open(token)
    visitor.press("confirm")
    for _ in range(2):
        page.reload()
        visitor.sees(DE.messages[Case.CONFIRMED].title)
        assert (visitor.lang, page.title()) == ("de", DE.messages[Case.CONFIRMED].title)
    assert posts(site) == 1
    page.get_by_role("link", name=DE.onward).click()
    visitor.sees("Welcome back")
    assert site.host.calls[0].endswith(verification_id)


def test_back_from_the_answer_is_the_form_which_says_that_all_is_done(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    visitor = visit()
    page = visitor.open(token)
    visitor.press("confirm")
    page.go_back()
    expect(page.get_by_label(EN.label)).to_have_value(token)
    visitor.press("confirm")
    visitor.sees(USED)
    expect(page.get_by_role("alert")).to_have_count(0)
    goes_on(visitor, verification_id)


def test_back_from_the_host_is_the_answer(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    visitor = visit()
    visitor.open(token)
    visitor.press("confirm")
    goes_on(visitor, verification_id)
    visitor.page.go_back()
    visitor.sees(CONFIRMED)
    assert posts(site) == 1


def test_opened_in_two_browsers_the_second_hears_that_it_is_done(visit: Visit, site: Site) -> None:
    verification_id, token = site.made()
    laptop, phone = visit(), visit(viewport=PHONE)
    for each in (laptop, phone):
        each.open(token)
    for each, title in ((phone, CONFIRMED), (laptop, USED)):
        each.press("confirm")
        each.sees(title)
    goes_on(laptop, verification_id)


def test_a_newer_link_opened_on_an_answer_or_on_the_form_of_the_same_tab_takes_over(
    visit: Visit, site: Site
) -> None:
    _, old = site.made()
    verification_id, new = site.made(again=True)
    visitor = visit()
    page = visitor.open(old)
    page.evaluate("document.title = 'still this page'")
    visitor.open(new)
    expect(page.get_by_label(EN.label)).to_have_value(new)
    assert page.title() == "still this page"
    visitor.press("revoke")
    visitor.sees(CANCELLED)
    visitor.open(old)
    expect(page.get_by_label(EN.label)).to_have_value(old)
    assert page.url == site.url
    assert site.phase(verification_id) == "cancelled"


@pytest.mark.parametrize(("locale", "answers"), [("de-AT", DE), ("fr", EN), (None, EN)])
def test_the_answer_speaks_the_language_of_the_request_if_it_knows_it(
    visit: Visit, site: Site, locale: str | None, answers: Any
) -> None:
    _, token = site.made(locale=locale) if locale else site.made()
    visitor = visit(locale="en-GB")
    for case in (Case.CONFIRMED, Case.USED):
        visitor.open(token)
        visitor.sees(EN.messages[Case.ASK].title)
        visitor.press("confirm")
        visitor.sees(answers.messages[case].title)
