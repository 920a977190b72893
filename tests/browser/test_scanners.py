"""What opens links without being a person: scanners, previews, pre-fetchers. They change nothing and learn nothing."""

from __future__ import annotations

import pytest

from app.page_words import WORDS, Language
from tests.browser.conftest import Visit
from tests.browser.site import Site
from tests.support.api import snapshot

EN = WORDS[Language.EN]


def test_a_scanner_that_runs_scripts_and_waits_changes_nothing(visit: Visit, site: Site) -> None:
    _, token = site.made()
    before = snapshot(site.api.database)
    scanner = visit()
    page = scanner.open(token)
    assert len(scanner.requests[0].response().body()) < 30_000
    page.wait_for_load_state("networkidle")
    page.mouse.move(100, 100)
    page.mouse.wheel(0, 500)
    page.reload()
    page.wait_for_load_state("networkidle")
    for event in ("focus", "blur", "beforeunload", "pagehide", "pageshow", "visibilitychange"):
        page.evaluate(f"window.dispatchEvent(new Event('{event}'))")
    assert page.locator("a").count() == 0
    page.close(run_before_unload=True)
    assert snapshot(site.api.database) == before
    # The page is one document: no style, script, picture or icon is fetched, from anywhere.
    assert site.served.calls == ["GET /verify"] * 2


@pytest.mark.parametrize("method", ["HEAD", "GET", "OPTIONS"])
def test_a_scanner_that_only_asks_changes_nothing(visit: Visit, site: Site, method: str) -> None:
    _, token = site.made()
    before = snapshot(site.api.database)
    answer = visit().context.request.fetch(f"{site.url}#{token}", method=method)
    assert answer.status == 200
    assert snapshot(site.api.database) == before


def test_the_policy_refuses_every_other_script(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open()
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = true'}))"
    )
    assert page.evaluate("window.ran") is None
    (told,) = visitor.problems
    assert "Content Security Policy" in told
    visitor.problems.clear()


def test_the_page_cannot_be_framed(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.page
    page.goto(site.host.url)
    page.evaluate(
        "url => new Promise(done => { const frame = document.createElement('iframe'); frame.src = url;"
        " frame.onload = done; document.body.append(frame); })",
        site.url,
    )
    assert page.frames[1].url != site.url
    assert page.frames[1].get_by_label(EN.label).count() == 0
    visitor.problems.clear()
