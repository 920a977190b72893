"""Lists and the feed read a bounded number of rows whatever the tables hold, and whatever the planner believes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import UUID

import psycopg
import pytest

from db import changes, clients, listing, plans, receipts
from db.delivery_state import State
from db.listing import Filter
from db.phases import Status
from db.session import Database
from dev.postgres import Postgres
from tests.factories import Factory
from tests.integration.test_plans import _nodes, _rows
from tests.support.filled import fill

MANY, OTHERS, ACCOUNTS, OF_ONE = 12_000, 8_000, 3_000, 300
LIMIT = 20
FIRST: dict[str, Any] = {"after_at": "infinity", "after_id": UUID(int=2**128 - 1)}
MIDDLE: dict[str, Any] = {"after_at": "2026-01-01T00:30:00Z", "after_id": UUID(int=2**127)}
ALL: dict[str, Any] = {
    "verification_status": None,
    "delivery_status": None,
    "account_id": None,
    "consumed_since": None,
    "most": LIMIT + 1,
}


@pytest.fixture(scope="module", params=["fresh statistics", "no statistics"])
def full(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[Factory]:
    """A client with many verifications, few of them requested and none consumed lately, beside another with many."""
    name = "listed_" + request.param.split()[0]
    url = postgres.create_database(name, template="migrated")
    with closing(Database(url, statement_timeout=60.0, size=1)) as database:
        make = Factory(database)
        other = clients.create(database, "other").client.id
        dead = [status for status in Status if status is not Status.REQUESTED]
        fill(database, other, 1, OTHERS, accounts=ACCOUNTS)
        fill(
            database, make.client(), 100_001, MANY, accounts=ACCOUNTS, statuses=dead, states=[State.ACCEPTED]
        )
        fill(database, make.client(), 50_001, OF_ONE, accounts=1, statuses=dead, states=[State.ACCEPTED])
        fill(database, make.client(), 200_001, 7, accounts=ACCOUNTS, statuses=[Status.REQUESTED])
        while changes.number(database) == changes.NUMBERED_AT_ONCE:
            pass
        if request.param == "fresh statistics":
            make.execute("ANALYZE")
        yield make
    postgres.drop_database(name)


def assert_reads(make: Factory, statement: Any, names: dict[str, Any], rows: float) -> None:
    """No node of the plan produces or throws away more rows, over all its loops, and the whole reads no more pages than
    so many rows need: what an index throws away by itself counts as no row.
    """
    with make.database.transaction() as tx:
        plans.follow_indexes(tx)
        answer = tx.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement, names).fetchone()
    assert answer is not None
    plan = answer["QUERY PLAN"][0]["Plan"]
    assert max(map(_rows, _nodes(plan))) <= rows, plan
    # A row of a verification, its account and its delivery is three descents of three pages and three rows.
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 15 * rows, plan


PAGES: list[tuple[str, dict[str, Any]]] = [
    ("page_of_client", {}),
    *(("page_by_verification_status", {"verification_status": status}) for status in Status),
    *(("page_by_delivery_status", {"delivery_status": state}) for state in State),
    ("page_of_account", {"account_id": "account-0"}),
    ("page_of_account", {"account_id": "nobody"}),
    ("page_consumed", {"consumed_since": "2026-01-01T00:00:00Z"}),
    ("page_consumed", {"consumed_since": "2027-01-01T00:00:00Z"}),
]


@pytest.mark.parametrize("position", [FIRST, MIDDLE], ids=["first page", "later page"])
@pytest.mark.parametrize(("query", "wanted"), PAGES)
def test_a_page_reads_what_it_shows(
    full: Factory, query: str, wanted: dict[str, Any], position: dict[str, Any]
) -> None:
    names = {"client_id": full.client(), **ALL, **wanted, **position}
    assert_reads(full, listing._SQL[query], names, LIMIT + 1)


def test_an_accounts_confirmations_read_the_account(full: Factory) -> None:
    names = {"client_id": full.client(), **ALL, **FIRST, "account_id": "account-0"}
    since = {"consumed_since": "2026-01-01T00:00:00Z"}
    reads = OF_ONE + MANY / ACCOUNTS + 1
    assert_reads(full, listing._SQL["page_consumed_of_account"], names | since, reads)


def test_filters_that_no_index_serves_together_read_a_thousand(full: Factory) -> None:
    wanted = {"verification_status": Status.CONSUMED, "delivery_status": State.ACCEPTED}
    names = {"client_id": full.client(), **ALL, **FIRST, **wanted, "most": 1000}
    assert_reads(full, listing._SQL["page_by_delivery_status"], names, 1000)


def test_delivered_but_not_confirmed_are_looked_for_among_the_few(full: Factory) -> None:
    wanted = Filter(verification_status=Status.REQUESTED, delivery_status=State.ACCEPTED)
    page = listing.read_page(full.database, full.client(), wanted, after=None, limit=LIMIT)
    assert (len(page.items), page.end) == (1, None)


def test_the_items_of_a_page_are_read_by_their_ids(full: Factory) -> None:
    page = listing.read_page(full.database, full.client(), Filter(), after=None, limit=LIMIT)
    names = {"client_id": full.client(), "ids": [item.id for item in page.items]}
    assert_reads(full, receipts._SQL["read_verifications"], names, LIMIT)


@pytest.mark.parametrize("after", [0, OTHERS, OTHERS + MANY // 2, OTHERS + MANY + OF_ONE + 7])
def test_a_page_of_the_feed_reads_what_it_shows(full: Factory, after: int) -> None:
    names = {"client_id": full.client(), "after": after, "limit": LIMIT + 1}
    assert_reads(full, changes._SQL["read_changes"], names, LIMIT + 1)


def test_a_poll_that_finds_nothing_reads_the_counter(full: Factory) -> None:
    # What was numbered stays in the index of the unnumbered until then.
    with psycopg.connect(full.database._url, autocommit=True) as connection:
        connection.execute("VACUUM state_changes, change_counter")
    assert_reads(full, changes._SQL["read_counter"], {}, 1)


def test_numbering_reads_what_it_numbers(full: Factory) -> None:
    fill(full.database, full.client(), 300_001, 50, statuses=[Status.CANCELLED])
    assert_reads(full, changes._SQL["number_changes"], {"limit": 10}, 20)
