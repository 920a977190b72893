"""Every answer of the page, in both languages, light and dark, on a phone and a desktop: nothing for axe-core to find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.page_words import WORDS, Case, Language
from tests.browser.conftest import Visit
from tests.browser.site import DESKTOP, PHONE, Site, Visitor

WRONG = "0000-0000-0000-0000"


Act = Callable[[Visitor, str], None]


def _confirm(visitor: Visitor, token: str) -> None:
    visitor.open(token)
    visitor.press("confirm")


def _revoke(visitor: Visitor, token: str) -> None:
    visitor.open(token)
    visitor.press("revoke")


def _run_out(visitor: Visitor, _: str) -> None:
    with visitor.site.api.database.transaction() as tx:
        tx.execute(
            "UPDATE verifications SET created_at = created_at - interval '2 days', expires_at = clock_timestamp()"
            " WHERE status = 'requested'"
        )


def _mail_again(visitor: Visitor, _: str) -> None:
    visitor.site.made(again=True)


def _mail_again_and_confirm(visitor: Visitor, _: str) -> None:
    _confirm(visitor, visitor.site.made(again=True)[1])


def _then(first: Act, second: Act) -> Act:
    def act(visitor: Visitor, token: str) -> None:
        first(visitor, token)
        second(visitor, token)

    return act


def _mistype(visitor: Visitor, _: str) -> None:
    _confirm(visitor, WRONG)


def _mangle(visitor: Visitor, token: str) -> None:
    visitor.open(token)
    visitor.page.evaluate("document.querySelector('button').value = 'conf'")
    with visitor.page.expect_navigation():
        visitor.page.click("button")


def _lose_the_database(visitor: Visitor, token: str) -> None:
    database = visitor.site.api.database
    url, database._url = database._url, "postgresql://postgres@127.0.0.1:1/nowhere"
    database.close()
    _confirm(visitor, token)
    database._url = url


def _break(visitor: Visitor, token: str) -> None:
    _rename(visitor, "activated_at", "since")
    _confirm(visitor, token)
    _rename(visitor, "since", "activated_at")


def _rename(visitor: Visitor, column: str, name: str) -> None:
    with visitor.site.api.database.transaction() as tx:
        tx.execute(f"ALTER TABLE accounts RENAME COLUMN {column} TO {name}")  # type: ignore[arg-type]


def _try_too_often(visitor: Visitor, token: str) -> None:
    site = visitor.site
    while site.api.consume(WRONG).status_code != 429:
        pass
    _confirm(visitor, token)
    with site.api.database.transaction() as tx:
        tx.execute("TRUNCATE rate_limits")


WAYS: dict[Case, Act] = {
    Case.ASK: lambda visitor, token: visitor.open(token) and None,
    Case.CONFIRMED: _confirm,
    Case.USED: _then(_confirm, _confirm),
    Case.USED_REVOKE: _then(_confirm, _revoke),
    Case.REVOKED: _revoke,
    Case.EXPIRED: _then(_run_out, _confirm),
    Case.SUPERSEDED: _then(_mail_again_and_confirm, _confirm),
    Case.CANCELLED: _then(_revoke, _confirm),
    Case.OVER_REVOKE: _then(_run_out, _revoke),
    Case.NEWER: _then(_mail_again, _confirm),
    Case.NEWER_REVOKE: _then(_mail_again, _revoke),
    Case.INVALID: _mistype,
    Case.UNREADABLE: _mangle,
    Case.RATE_LIMITED: _try_too_often,
    Case.UNAVAILABLE: _lose_the_database,
    Case.BROKEN: _break,
}


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("case", WAYS)
def test_the_page_says_it_in_the_persons_language_and_everybody_can_read_it(
    visit: Visit, site: Site, case: Case, language: Language
) -> None:
    visitor = visit(locale=f"{language}-CH")
    _, token = site.made()
    WAYS[case](visitor, token)
    words = WORDS[language]
    visitor.sees(words.messages[case].title)
    assert visitor.lang == language
    assert visitor.page.title() == words.messages[case].title
    assert case is Case.ASK or visitor.focus() == words.messages[case].title
    shown = visitor.page.locator("main").inner_text()
    assert "{" not in shown
    assert site.host.url not in shown
    assert visitor.findings() == []
    for viewport in (DESKTOP, PHONE):
        visitor.page.set_viewport_size(viewport)
        assert not visitor.scrolls_sideways()


def test_every_case_has_its_way_here() -> None:
    assert set(WAYS) == set(Case)
