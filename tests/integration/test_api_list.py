"""`GET /v1/verifications`: whose, which, in what order, page by page, and what becomes of odd query strings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from werkzeug.test import TestResponse

from db import ids
from db.delivery_state import State
from db.phases import Status
from db.session import Database
from dev.postgres import Postgres
from tests.factories import Factory
from tests.integration.test_api_verifications import problem
from tests.support.api import Api, make_api
from tests.support.filled import fill

MANY = 140
_numbers = count(1_000_000)


@pytest.fixture(scope="module")
def filled(postgres: Postgres) -> Iterator[Api]:
    """A client with verifications in every pair of states, and another with some; shared, as no test changes them."""
    with closing(
        Database(postgres.create_database("listed", template="migrated"), statement_timeout=8.0, size=4)
    ) as database:
        api, other = make_api(database), make_api(database, "other")
        fill(database, api.owner.client.id, 1, MANY)
        fill(database, other.owner.client.id, 500_000, 20)
        yield api
    postgres.drop_database("listed")


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database)


def pages(api: Api, limit: int, query: str = "") -> Iterator[dict[str, Any]]:
    """Every page of a list, by its cursors."""
    cursor: str | None = ""
    while cursor is not None:
        after = f"&cursor={cursor}" if cursor else ""
        answer = api.get(f"/v1/verifications?limit={limit}{query}{after}")
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.get_json()
        assert len(page["items"]) <= limit
        yield page
        cursor = page["next_cursor"]


def listed(api: Api, limit: int, query: str = "") -> list[str]:
    """The ids of all pages."""
    return [item["verification_id"] for page in pages(api, limit, query) for item in page["items"]]


def expected(api: Api, where: str = "true", order: str = "v.created_at", **names: Any) -> list[str]:
    """The same by a plain query."""
    with api.database.transaction() as tx:
        rows = tx.execute(
            f"SELECT v.id FROM verifications v JOIN email_outbox o ON o.verification_id = v.id"  # type: ignore[arg-type]
            f" JOIN accounts a ON a.id = v.account_id"
            f" WHERE v.client_id = %(client)s AND ({where}) ORDER BY {order} DESC, v.id DESC",
            {"client": api.owner.client.id, **names},
        ).fetchall()
    return [ids.public("ver", row["id"]) for row in rows]


def test_an_empty_list_has_no_next_page(api: Api) -> None:
    answer = api.get("/v1/verifications")
    assert (answer.status_code, answer.get_json()) == (200, {"items": [], "next_cursor": None})


def test_items_look_like_a_single_verification_and_are_this_clients_only(filled: Api) -> None:
    (page,) = pages(filled, 100, "&account_id=account-3&verification_status=consumed")
    assert page["items"]
    for item in page["items"]:
        assert item == filled.get(f"/v1/verifications/{item['verification_id']}").get_json()
    assert set(listed(filled, 100)) == set(expected(filled))
    other = make_api(filled.database, f"stranger-{next(_numbers)}")
    assert listed(other, 100) == []
    assert listed(other, 100, "&account_id=account-3") == []


def test_a_page_has_twenty_items_unless_told(filled: Api) -> None:
    page = filled.get("/v1/verifications").get_json()
    assert len(page["items"]) == 20
    assert [item["verification_id"] for item in page["items"]] == expected(filled)[:20]


@pytest.mark.parametrize("status", Status)
def test_by_verification_status(filled: Api, status: Status) -> None:
    there = expected(filled, "v.status = %(status)s", status=status)
    assert there
    assert listed(filled, 7, f"&verification_status={status}") == there


@pytest.mark.parametrize("state", State)
def test_by_delivery_status(filled: Api, state: State) -> None:
    there = expected(filled, "o.status = %(state)s", state=state)
    assert there
    assert listed(filled, 7, f"&delivery_status={state}") == there


def test_by_account(filled: Api) -> None:
    there = expected(filled, "a.external_id = 'account-4'")
    assert len(there) == MANY // 7
    assert listed(filled, 3, "&account_id=account-4") == there
    assert listed(filled, 3, "&account_id=nobody") == []


def test_by_consumption_the_newest_confirmation_comes_first(filled: Api) -> None:
    since = "2026-01-01T05:00:00Z"
    there = expected(filled, "v.consumed_at >= %(since)s", "v.consumed_at", since=since)
    assert there
    assert there != expected(filled, "v.consumed_at >= %(since)s", since=since)
    assert listed(filled, 2, f"&consumed_since={since}") == there
    assert listed(filled, 2, "&consumed_since=2026-01-01T06:00:00%2B01:00") == there


def test_consumed_since_includes_its_instant(filled: Api) -> None:
    first = filled.get("/v1/verifications?consumed_since=2026-01-01T00:00:00Z&limit=1").get_json()["items"][0]
    again = listed(filled, 5, f"&consumed_since={first['consumed_at']}")
    assert again == [first["verification_id"]]


FILTERS = {
    "verification_status": ("v.status = '{}'", st.sampled_from(Status)),
    "delivery_status": ("o.status = '{}'", st.sampled_from(State)),
    "account_id": ("a.external_id = '{}'", st.integers(0, 9).map("account-{}".format)),
    "consumed_since": ("v.consumed_at >= '{}'", st.integers(0, 11).map("2026-01-01T{:02}:00:00Z".format)),
}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.fixed_dictionaries({}, optional={name: values for name, (_, values) in FILTERS.items()}),
    limit=st.integers(1, 40),
    arrivals=st.sets(st.integers(0, 5)),
)
def test_pages_have_each_once_in_order_whatever_arrives_meanwhile(
    filled: Api, chosen: dict[str, str], limit: int, arrivals: set[int]
) -> None:
    where = " AND ".join(FILTERS[name][0].format(value) for name, value in chosen.items()) or "true"
    there = expected(filled, where, "v.consumed_at" if "consumed_since" in chosen else "v.created_at")
    query = "".join(f"&{name}={quote(value)}" for name, value in chosen.items())
    found: list[str] = []
    for number, page in enumerate(pages(filled, limit, query)):
        found += [item["verification_id"] for item in page["items"]]
        if number in arrivals:
            fill(filled.database, filled.owner.client.id, next(_numbers), 1)
    assert found == there


def test_filters_that_match_little_together_give_short_pages_and_an_end(
    database: Database, make: Factory
) -> None:
    api = make_api(database)
    client_id = api.owner.client.id
    fill(database, client_id, 1, 2500, statuses=[Status.CONSUMED], states=[State.ACCEPTED])
    make.execute(
        "UPDATE email_outbox SET status = 'failed', evidence = NULL, failure_category = 'recipient', failure_code = 'x'"
        " WHERE created_at < '2026-01-01T00:00:02Z'"
    )
    there = expected(api, "o.status = 'failed'")
    assert len(there) == 5
    found = list(pages(api, 2, "&verification_status=consumed&delivery_status=failed"))
    assert [item["verification_id"] for page in found for item in page["items"]] == there
    since = list(pages(api, 5, "&consumed_since=2025-01-01T00:00:00Z&delivery_status=failed"))
    assert {item["verification_id"] for page in since for item in page["items"]} == set(there)
    assert len(since) <= 4, "a page looks at a thousand"


def test_one_that_moves_on_between_two_pages_is_neither_doubled_nor_in_the_way(
    api: Api, make: Factory
) -> None:
    fill(api.database, api.owner.client.id, 1, 9, statuses=[Status.REQUESTED], states=[State.PENDING])
    walk = pages(api, 3, "&verification_status=requested")
    first = [item["verification_id"] for item in next(walk)["items"]]
    make.execute("UPDATE verifications SET status = 'expired' WHERE id = %s", ids.parse("ver", first[-1]))
    rest = [item["verification_id"] for page in walk for item in page["items"]]
    assert len(rest) == len(set(rest)) == 6
    assert not set(first) & set(rest)


def errors(answer: TestResponse) -> list[tuple[str, str]]:
    body = problem(answer, 422, "invalid_request")
    return [(error["pointer"], error["code"]) for error in body["errors"]]


@pytest.mark.parametrize(
    ("query", "pointer", "code"),
    [
        *(
            (f"limit={value}", "?limit", "out_of_range")
            for value in ("0", "101", "-1", "1e1", "", "%20", "+5", "5.0")
        ),
        *(
            (f"limit={value}", "?limit", "out_of_range")
            for value in ("%D9%A5", "1_0", "9" * 400, "0x10", "None")
        ),
        ("verification_status=done", "?verification_status", "invalid_choice"),
        ("verification_status=Consumed", "?verification_status", "invalid_choice"),
        ("delivery_status=", "?delivery_status", "invalid_choice"),
        ("account_id=", "?account_id", "invalid_length"),
        ("account_id=" + "a" * 256, "?account_id", "invalid_length"),
        ("account_id=a%0Ab", "?account_id", "invalid_format"),
        ("account_id=a%00b", "?account_id", "invalid_characters"),
        ("consumed_since=yesterday", "?consumed_since", "invalid_format"),
        ("consumed_since=2026-01-01", "?consumed_since", "invalid_format"),
        ("consumed_since=2026-01-01T00:00:00", "?consumed_since", "invalid_format"),
        ("consumed_since=2026-01-01T00:00:00+01:00", "?consumed_since", "invalid_format"),
        ("consumed_since=2026-13-01T00:00:00Z", "?consumed_since", "invalid_format"),
        ("consumed_since=0000-01-01T00:00:00Z", "?consumed_since", "invalid_format"),
        ("cursor=", "?cursor", "invalid_cursor"),
        ("cursor=abc", "?cursor", "invalid_cursor"),
        ("cursor=" + "B" * 33, "?cursor", "invalid_cursor"),
        ("cursor=" + "Z" * 32, "?cursor", "invalid_cursor"),
        ("cursor=%C3%A9" + "B" * 31, "?cursor", "invalid_cursor"),
        (
            "consumed_since=2026-01-01T00:00:00Z&cursor=BAZJrdRLEkABoi3OV8V0Yraer64eeA3W",
            "?cursor",
            "invalid_cursor",
        ),
        ("limit=5&limit=5", "?limit", "repeated"),
        ("%6Cimit=5&limit=5", "?limit", "repeated"),
        ("page=2", "?page", "unknown_field"),
        ("Limit=2", "?Limit", "unknown_field"),
        ("=2", "?", "unknown_field"),
        ("a/b=2", "?a~1b", "unknown_field"),
        ("a%00=2", "?a ", "invalid_characters"),
        ("account_id=%FF", "?", "invalid_encoding"),
        ("account_id=%ED%A0%80", "?", "invalid_encoding"),
        ("account_id=%zz", "?", "invalid_encoding"),
        ("account_id=%", "?", "invalid_encoding"),
        ("&".join(f"p{n}=1" for n in range(30)), "?", "invalid_encoding"),
    ],
)
def test_a_query_that_is_not_valid_names_the_parameter(
    filled: Api, query: str, pointer: str, code: str
) -> None:
    assert errors(filled.get(f"/v1/verifications?{query}")) == [(pointer, code)]


def test_several_mistakes_are_told_at_once(filled: Api) -> None:
    answer = filled.get("/v1/verifications?limit=x&cursor=x&page=1")
    assert errors(answer) == [
        ("?cursor", "invalid_cursor"),
        ("?limit", "out_of_range"),
        ("?page", "unknown_field"),
    ]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.binary(max_size=60) | st.text(max_size=40).map(lambda text: quote(text, safe="=&%+").encode())
)
@pytest.mark.parametrize("path", ["/v1/verifications", "/v1/changes"])
def test_no_query_string_is_too_odd(filled: Api, path: str, query: bytes) -> None:
    answer = filled.http.get(path, headers=filled.headers, query_string=query.decode("latin1"))
    raw = filled.http.get(
        path, headers=filled.headers, environ_overrides={"QUERY_STRING": query.decode("latin1")}
    )
    assert answer.status_code in {200, 422}
    assert raw.status_code in {200, 422}


def test_extreme_instants_are_no_surprise(filled: Api) -> None:
    for since in (
        "0001-01-01T00:00:00%2B14:00",
        "9999-12-31T23:59:59.999999-14:00",
        "2026-01-01t00:00:00.1234567z",
    ):
        assert filled.get(f"/v1/verifications?consumed_since={since}").status_code == 200, since
    for cursor in ("BA" + "A" * 30, "BP" + "_" * 30):
        assert filled.get(f"/v1/verifications?cursor={cursor}").status_code == 200, cursor


def test_it_takes_a_key(filled: Api) -> None:
    problem(filled.http.get("/v1/verifications"), 401, "unauthorized")


def test_the_description_tells_the_parameters(filled: Api) -> None:
    described = filled.http.get("/openapi.json").get_json()["paths"]["/v1/verifications"]["get"]
    assert [each["name"] for each in described["parameters"]] == [
        *("limit", "verification_status", "delivery_status", "account_id", "consumed_since", "cursor"),
    ]
    limit = described["parameters"][0]["schema"]
    assert (limit["type"], limit["minimum"], limit["maximum"], limit["default"]) == ("integer", 1, 100, 20)
