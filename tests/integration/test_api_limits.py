"""Who asks too often is told so, and when to come back; nobody dodges a limit by a header, or learns what exists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from werkzeug.test import TestResponse

from db.config import CreateLimits
from db.session import Database
from tests.support.api import BODY, Api, make_api
from tests.support.courier import DATABASE_SETTINGS

NONE = DATABASE_SETTINGS.limits
UNKNOWN = "0000-0000-0000-0000"


def limited(database: Database, limits: CreateLimits = NONE, **settings: Any) -> Api:
    return make_api(database, limits=limits, **settings)


def refused(answer: TestResponse, code: str, **more: Any) -> int:
    """The seconds that a 429 says to wait."""
    body = answer.get_json()
    assert (answer.status_code, answer.mimetype, body["code"]) == (429, "application/problem+json", code)
    assert {name: body[name] for name in more} == more
    return int(answer.headers["Retry-After"])


def test_a_resend_within_the_cooldown_names_the_live_verification(database: Database) -> None:
    api = limited(database, replace(NONE, cooldown=60))
    live = api.create("k1").get_json()["verification_id"]
    assert 55 <= refused(api.create("k2"), "resend_cooldown", verification_id=live) <= 60
    assert api.create("k1").status_code == 202, "a repeat is no resend"
    assert len(api.kicks) == 2


def test_a_used_up_hour_says_whose_it_is(database: Database) -> None:
    api = limited(database, replace(NONE, address=1))
    api.create("k1")
    answer = api.create("k2", account_id="another")
    assert 3590 <= refused(answer, "rate_limited", limit="create_by_address") <= 3600
    assert "create_by_address" in answer.get_json()["detail"]


def test_a_full_backlog_refuses_this_client_only(database: Database) -> None:
    limits = replace(NONE, max_waiting=1)
    api = limited(database, limits)
    api.create("k1")
    assert refused(api.create("k2", account_id="b"), "client_backlog") > 0
    other = make_api(database, "other", limits=limits)
    assert other.create("k2", account_id="b").status_code == 202


def test_unknown_tokens_are_limited_by_caller_on_the_page_and_in_the_api_together(database: Database) -> None:
    api = limited(database, consume_limit=2)
    assert api.consume(UNKNOWN).status_code == 422
    page = api.http.post("/verify", data={"token": UNKNOWN, "action": "confirm"})
    assert page.status_code == 422
    assert 1700 <= refused(api.consume(UNKNOWN), "rate_limited", limit="consume_by_caller") <= 1800
    page = api.http.post("/verify", data={"token": UNKNOWN, "action": "revoke"})
    assert (page.status_code, page.mimetype) == (429, "text/html")
    assert int(page.headers["Retry-After"]) > 0


def test_who_is_limited_cannot_use_a_good_token_either_and_another_caller_can(database: Database) -> None:
    api = limited(database, consume_limit=1, trusted_proxies=1)
    token = api.token(api.create().get_json()["verification_id"])
    api.consume(UNKNOWN)
    refused(api.consume(token), "rate_limited")
    elsewhere = {"X-Forwarded-For": "203.0.113.7"}
    assert api.http.post("/v1/tokens/consume", json={"token": token}, headers=elsewhere).status_code == 200


def test_tokens_that_exist_use_up_nothing(database: Database) -> None:
    api = limited(database, consume_limit=1)
    token = api.token(api.create().get_json()["verification_id"])
    assert [api.consume(token).status_code for _ in range(4)] == [200, 409, 409, 409]
    assert api.consume("no token at all").status_code == 422, "what cannot be a token is no guess"
    assert api.consume(UNKNOWN).status_code == 422


@pytest.mark.parametrize(
    ("proxies", "forwarded", "statuses"),
    [
        (0, ["198.51.100.1", "198.51.100.2", "198.51.100.3"], [422, 429, 429]),
        # One proxy appends what it saw; whatever the caller wrote before that is only text.
        (1, ["1.1.1.1, 198.51.100.9", "2.2.2.2, 198.51.100.9", "3.3.3.3"], [422, 429, 422]),
        (1, ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"], [422, 429, 422]),
    ],
    ids=["no proxy is trusted", "one proxy is trusted", "an IPv6 caller has a whole /64"],
)
def test_a_rotated_header_dodges_no_limit(
    database: Database, proxies: int, forwarded: list[str], statuses: list[int]
) -> None:
    api = limited(database, consume_limit=1, trusted_proxies=proxies)
    answers = [
        api.http.post("/v1/tokens/consume", json={"token": UNKNOWN}, headers={"X-Forwarded-For": value})
        for value in forwarded
    ]
    assert [answer.status_code for answer in answers] == statuses


def test_no_address_of_a_caller_is_kept(database: Database) -> None:
    api = limited(database, consume_limit=5, trusted_proxies=1)
    api.http.post("/v1/tokens/consume", json={"token": UNKNOWN}, headers={"X-Forwarded-For": "198.51.100.77"})
    with database.transaction() as tx:
        (row,) = tx.execute("SELECT * FROM rate_limits").fetchall()
    assert b"198.51.100.77" not in row["subject"]
    assert len(row["subject"]) == 32


def test_without_a_key_every_account_address_and_id_looks_the_same(database: Database) -> None:
    api = limited(database)
    known = api.create().get_json()["verification_id"]
    unknown = known[:-4] + ("0000" if known[-4:] != "0000" else "1111")

    def seen(answer: TestResponse) -> tuple[Any, ...]:
        body = answer.get_json()
        body.pop("request_id")
        return (
            answer.status_code,
            body,
            sorted(name for name, _ in answer.headers if name != "X-Request-ID"),
        )

    wrong = {"Authorization": "Bearer cs_live_aaaaaaaaaa_" + "a" * 32}
    for headers in ({}, wrong):
        for path in ("/v1/verifications/{}", "/v1/verifications/{}/receipt"):
            assert seen(api.http.get(path.format(known), headers=headers)) == seen(
                api.http.get(path.format(unknown), headers=headers)
            )
        asked = [
            api.http.post("/v1/verifications", json={**BODY, "account_id": account}, headers=headers)
            for account in (BODY["account_id"], "nobody")
        ]
        assert seen(asked[0]) == seen(asked[1])
    other = make_api(database, "other")
    assert seen(other.get(f"/v1/verifications/{known}")) == seen(other.get(f"/v1/verifications/{unknown}"))
