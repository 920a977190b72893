"""`GET /v1/changes`: what a host learns, in which order, and that it can go on from any place."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from db import changes, endings, ids
from db.delivery_state import Outcome, State
from db.phases import CancelledBy
from db.session import Database
from tests.factories import SMTP, Factory
from tests.integration.test_api_verifications import problem
from tests.support.api import Api, make_api
from tests.support.races import holding


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database)


@pytest.fixture
def make(api: Api) -> Factory:
    """Rows of the client that calls."""
    factory = Factory(api.database)
    factory.client_id = api.owner.client.id
    return factory


def read(api: Api, after: str | None = None, limit: int | None = None) -> dict[str, Any]:
    """One page."""
    given = {"after": after, "limit": limit}
    query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
    answer = api.get(f"/v1/changes?{query}")
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.get_json()
    return page


def test_a_feed_without_changes_starts_at_the_beginning(api: Api) -> None:
    answer = api.get("/v1/changes")
    assert answer.get_json() == {"items": [], "next_cursor": "0"}
    assert answer.headers["Retry-After"] == "5"


def test_a_host_learns_of_everything_from_creation_to_confirmation(api: Api, make: Factory) -> None:
    made = api.create(account_id="account-7").get_json()
    lease = make.claim(ids.parse("dlv", made["delivery_id"]) or made)
    make.hand_over(lease)
    make.settle(lease, Outcome.ACCEPTED)
    api.consume(api.token(made["verification_id"]))
    items = read(api)["items"]
    assert [(item["event"], item["before"], item["after"], item["evidence"]) for item in items] == [
        ("delivery.pending", None, "pending", None),
        ("delivery.accepted", "sending", "accepted", "response"),
        ("verification.consumed", "requested", "consumed", None),
    ]
    assert [item["delivery_id"] for item in items] == [made["delivery_id"], made["delivery_id"], None]
    for item in items:
        assert (item["verification_id"], item["account_id"], item["purpose"]) == (
            made["verification_id"],
            "account-7",
            "signup",
        )
    assert [item["cursor"] for item in items] == ["1", "2", "3"]


def test_codes_say_why(api: Api, make: Factory) -> None:
    retried = make.handed_over()
    make.settle(retried, Outcome.TRANSIENT, "mailbox_full")
    make.in_state(State.FAILED)
    endings.cancel(make.database, None, make.waiting().verification_id, by=CancelledBy.RECIPIENT)
    told = [(item["event"], item["code"]) for item in read(api)["items"] if item["before"]]
    assert told == [
        ("delivery.pending", "mailbox_full"),
        ("delivery.failed", "mailbox_unavailable"),
        ("verification.cancelled", "recipient"),
        ("delivery.cancelled", "cancelled"),
    ]


def test_what_went_well_has_no_code_of_an_attempt_before(api: Api, make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.TRANSIENT, "mailbox_full")
    make.pass_time(lease.delivery_id, hours=1)
    again = make.claim(lease.delivery_id)
    make.hand_over(again)
    make.settle(again, Outcome.ACCEPTED)
    last = read(api)["items"][-1]
    assert (last["event"], last["code"], last["evidence"]) == ("delivery.accepted", None, "response")


def test_nothing_of_providers_workers_or_addresses_is_in_it(api: Api, make: Factory) -> None:
    for state in State:
        make.in_state(state)
    text = api.get("/v1/changes?limit=100").text
    for secret in (SMTP.name, "host:1:0", "person@example.com", "p***"):
        assert secret not in text


def test_pages_go_on_where_the_last_one_ended_and_stay_the_same(api: Api, make: Factory) -> None:
    for _ in range(7):
        make.waiting()
    whole = read(api)["items"]
    found, after = [], None
    for _ in range(4):
        page = read(api, after, 2)
        found += page["items"]
        after = page["next_cursor"]
    assert found == whole
    assert read(api, after) == {"items": [], "next_cursor": after}
    assert read(api, "3")["items"] == whole[3:]


def test_retry_after_is_zero_while_there_is_more(api: Api, make: Factory) -> None:
    for _ in range(3):
        make.waiting()
    assert api.get("/v1/changes?limit=2").headers["Retry-After"] == "0"
    assert api.get("/v1/changes?limit=3").headers["Retry-After"] == "5"


def test_other_clients_changes_are_not_in_it(api: Api, make: Factory) -> None:
    other = make_api(api.database, "other")
    make.waiting()
    other.create()
    make.waiting()
    assert [item["cursor"] for item in read(api)["items"]] == ["1", "3"]
    assert [item["cursor"] for item in read(other)["items"]] == ["2"]
    assert read(other, "2")["next_cursor"] == "2"


def test_more_unnumbered_changes_than_a_read_numbers_lose_nothing(api: Api, make: Factory) -> None:
    for _ in range(23):
        make.waiting()
    found, after, more = 0, 0, True
    while more:
        page = changes.read(api.database, make.client(), after=after, limit=100, numbered_at_once=2)
        found += len(page.items)
        assert [item.seq for item in page.items] == list(range(after + 1, page.end + 1))
        after, more = page.end, page.has_more
    assert found == after == 23


def test_a_reader_that_others_changes_keep_waiting_is_told_to_ask_at_once(api: Api, make: Factory) -> None:
    other = Factory(api.database)
    other.client_id = make_api(api.database, "other").owner.client.id
    for _ in range(12):
        other.waiting()
    make.waiting()
    page = changes.read(api.database, make.client(), after=0, limit=10, numbered_at_once=2)
    assert (page.items, page.end, page.has_more) == ((), 0, True)
    page = changes.read(api.database, make.client(), after=0, limit=10, numbered_at_once=2)
    assert len(page.items) == 1


@pytest.mark.parametrize(
    "after", ["-1", "", "abc", "1.5", "01", "+1", "%201", "1e3", str(2**63), "9" * 30, "%D9%A5", "1%00"]
)
def test_a_malformed_cursor_is_refused(api: Api, after: str) -> None:
    refused = problem(api.get(f"/v1/changes?after={after}"), 422, "invalid_request")
    ((pointer, code),) = [(error["pointer"], error["code"]) for error in refused["errors"]]
    assert pointer == "?after"
    assert code == ("invalid_characters" if after == "1%00" else "invalid_cursor")


@pytest.mark.parametrize("after", ["2", str(2**63 - 1)])
def test_a_cursor_ahead_of_the_feed_is_refused_rather_than_waited_for(
    api: Api, make: Factory, after: str
) -> None:
    make.waiting()
    assert read(api, "1") == {"items": [], "next_cursor": "1"}
    refused = problem(api.get(f"/v1/changes?after={after}"), 422, "invalid_request")
    assert [(error["pointer"], error["code"]) for error in refused["errors"]] == [
        ("?after", "invalid_cursor")
    ]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "since=1", "after=1&after=2", "cursor=1"])
def test_other_parameters_are_refused_as_in_lists(api: Api, query: str) -> None:
    problem(api.get(f"/v1/changes?{query}"), 422, "invalid_request")


def test_a_counter_that_somebody_holds_is_a_503_in_bounded_time_and_keeps_no_full_page_back(
    api: Api, make: Factory, database_url: str
) -> None:
    for _ in range(3):
        make.waiting()
    read(api)
    make.waiting()
    with closing(Database(database_url, statement_timeout=0.4, size=2)) as impatient:
        hasty = make_api(impatient, "hasty")
        hasty.owner = api.owner
        with holding(database_url, "SELECT 1 FROM change_counter FOR UPDATE"):
            refused = hasty.get("/v1/changes")
            assert len(read(hasty, limit=2)["items"]) == 2
        problem(refused, 503, "database_unavailable")
        assert refused.headers["Retry-After"]
        assert len(read(hasty)["items"]) == 4


def test_it_takes_a_key(api: Api) -> None:
    problem(api.http.get("/v1/changes"), 401, "unauthorized")
