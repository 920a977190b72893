"""`/docs` in a real browser: readable in light and dark, on a phone and a desktop, by keyboard, and without a script."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.site import DESKTOP, PHONE, Site


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_everybody_can_read_the_api_s_description(visit: Visit, site: Site, viewport: dict[str, int]) -> None:
    visitor = visit(viewport=viewport)
    visitor.page.goto(f"{site.served.url}/docs")
    visitor.sees("Countersign API")
    # What is folded counts as well.
    visitor.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert visitor.findings() == []
    assert not visitor.scrolls_sideways()
    assert site.served.calls == ["GET /docs"]


def test_a_link_to_a_code_leads_to_it_without_a_script(visit: Visit, site: Site) -> None:
    visitor = visit(viewport=PHONE, java_script_enabled=False)
    page = visitor.page
    page.goto(f"{site.served.url}/docs#verifications_create")
    page.locator("#verifications_create").get_by_role("link", name="resend_cooldown").click()
    assert re.search("#error-resend_cooldown$", page.url)
    expect(page.locator("#error-resend_cooldown")).to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Request a verification")
