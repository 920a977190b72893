"""A real browser, and a site of its own for each test. Whatever a test does, afterwards nothing may have leaked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from db.session import Database
from dev.postgres import Postgres
from tests.browser.site import Site, Visitor, opened
from tests.support import browser as system_browser

Visit = Callable[..., Visitor]


# A package's, not a session's: Playwright's event loop must not run while tests elsewhere start theirs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = system_browser.find()
    if path is None:
        give_up = pytest.skip if system_browser.may_be_missing() else pytest.fail
        give_up(system_browser.HOW_TO_GET_ONE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--disable-dev-shm-usage"])
        yield launched
        launched.close()


# One for all, with accounts of each test's own: a database and two servers for each would be half of the time.
@pytest.fixture(scope="package")
def running_site(postgres: Postgres) -> Iterator[Site]:
    name = f"test_browser_{os.getpid()}"
    database = Database(postgres.create_database(name, template="migrated"), statement_timeout=4.0, size=24)
    with opened(database, consume_limit=20) as running:
        yield running
    database.close()
    postgres.drop_database(name)


@pytest.fixture
def site(running_site: Site) -> Site:
    running_site.served.seen.clear()
    running_site.host.seen.clear()
    return running_site


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """Makes visitors: `visit(locale=…, viewport=…, java_script_enabled=…, color_scheme=…)`."""
    visitors: list[Visitor] = []

    def make(**options: Any) -> Visitor:
        visitors.append(Visitor(browser, site, **options))
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.context.close()
        assert visitor.problems == [], "the console must stay empty: no violation of the policy, no error"
    _nothing_leaked(site, visitors)


def _nothing_leaked(site: Site, visitors: list[Visitor]) -> None:
    """No request to anybody else; no token in an address or a header of any request, to us or to the host."""
    asked = [request.url for visitor in visitors for request in visitor.requests]
    assert [url for url in asked if not url.startswith((f"{site.served.url}/", f"{site.host.url}/"))] == []
    heads = "\n".join([*asked, site.served.heads, site.host.heads]).upper().replace("-", "")
    with site.api.database.transaction() as tx:
        ids = [row["id"].hex for row in tx.execute("SELECT id FROM verifications").fetchall()]
    assert [token for token in (site.api.token(f"ver_{each}") for each in ids) if token in heads] == []
    assert f"HTTP_REFERER: {site.served.url}" not in site.served.heads + site.host.heads
