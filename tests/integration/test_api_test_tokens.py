"""`GET /v1/verifications/{id}/token`: test clients read tokens back, nobody else does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from db import clients, ids, rehearsal, retention
from db.errors import NotFound
from db.session import Database
from tests.support.api import Api, make_api
from tests.support.courier import DATABASE_SETTINGS, make_courier
from tests.support.log_lines import logging_as

NOWHERE = "smtp://127.0.0.1:1"
UNHEARD_OF = "ver_" + "0" * 32


@pytest.fixture
def live(database: Database) -> Api:
    return make_api(database, "live")


@pytest.fixture
def test(live: Api, database: Database) -> Api:
    """The same service, called by a test client."""
    return dataclasses.replace(live, owner=clients.create(database, "ci", is_test=True))


def sent(api: Api, address: str = "accepted@example.com", key: str = "key-1") -> str:
    """A verification whose mail went to the simulator."""
    made = api.create(key, email=address, account_id=address)
    assert made.status_code == 202, made.json
    make_courier(api.database, NOWHERE).drain()
    verification_id: str = made.get_json()["verification_id"]
    return verification_id


def read(api: Api, verification_id: str) -> tuple[int, Any]:
    answer = api.get(f"/v1/verifications/{verification_id}/token")
    return answer.status_code, answer.get_json()


def code(api: Api, verification_id: str) -> tuple[int, str]:
    status, body = read(api, verification_id)
    return status, body["code"]


def test_a_test_client_reads_the_token_and_confirms_with_it(test: Api) -> None:
    verification_id = sent(test)
    status, body = read(test, verification_id)
    assert status == 200
    assert set(body) == {"verification_id", "token", "link"}
    assert body["verification_id"] == verification_id
    assert body["link"] == f"https://countersign.example/verify#{body['token']}"
    assert body["token"].replace("-", "") == test.token(verification_id)
    assert test.consume(body["token"]).status_code == 200
    assert test.get(f"/v1/verifications/{verification_id}").get_json()["phase"] == "consumed"
    receipt = test.get(f"/v1/verifications/{verification_id}/receipt").get_json()
    assert receipt["next_action"]["code"] == "done"


def test_the_link_is_the_one_in_the_mail(test: Api) -> None:
    created = test.create(email="accepted@example.com").get_json()
    courier = make_courier(test.database, NOWHERE)
    (lease,) = courier.routes["test"].claim(test.database, "host:1:0")
    text = courier.render(lease).text
    courier.deliver(lease)
    assert read(test, created["verification_id"])[1]["link"] in text.split()


@pytest.mark.parametrize("whose", ["its own", "a test client's", "nobody's", "malformed"])
def test_to_a_live_client_every_id_is_the_same(live: Api, test: Api, whose: str) -> None:
    asked = {
        "its own": lambda: live.create().get_json()["verification_id"],
        "a test client's": lambda: sent(test),
        "nobody's": lambda: UNHEARD_OF,
        "malformed": lambda: "x",
    }[whose]()
    status, body = read(live, asked)
    assert (status, body["code"]) == (403, "test_key_required")
    assert body["detail"] == read(live, UNHEARD_OF)[1]["detail"]


def test_the_query_itself_knows_no_token_of_a_live_client(live: Api, database: Database) -> None:
    verification_id = ids.parse("ver", live.create().get_json()["verification_id"])
    assert verification_id is not None
    with pytest.raises(NotFound):
        rehearsal.read_token(database, live.owner.client.id, verification_id, DATABASE_SETTINGS.token_keys)


def test_of_another_test_client_nothing_is_found(test: Api, database: Database) -> None:
    other = dataclasses.replace(test, owner=clients.create(database, "ci 2", is_test=True))
    verification_id = sent(test)
    assert code(other, verification_id) == code(other, UNHEARD_OF) == code(other, "x") == (404, "not_found")


def test_live_and_test_never_see_each_other(live: Api, test: Api) -> None:
    verification_id = sent(test)
    for path in ("", "/receipt"):
        assert live.get(f"/v1/verifications/{verification_id}{path}").status_code == 404
    theirs = live.create("key-1", email="accepted@example.com", account_id="accepted@example.com")
    assert theirs.status_code == 202, "neither its account nor its idempotency key is taken"
    assert theirs.get_json()["verification_id"] != verification_id
    assert test.get(f"/v1/verifications/{theirs.get_json()['verification_id']}").status_code == 404


def test_a_test_client_may_use_reserved_domains_where_live_ones_may_not(
    test: Api, database: Database
) -> None:
    strict = make_api(database, "strict", allow_reserved_domains=False)
    assert strict.create(email="accepted@example.com").status_code == 422
    assert dataclasses.replace(strict, owner=test.owner).create().status_code == 202


@pytest.mark.parametrize("address", ["rejected@example.com", "transient@example.com"])
def test_nobody_has_a_token_whose_mail_has_not_left(test: Api, address: str) -> None:
    waiting = test.create("key-0", email="accepted@example.com").get_json()["verification_id"]
    answer = test.get(f"/v1/verifications/{waiting}/token")
    assert (answer.status_code, answer.get_json()["code"]) == (409, "mail_not_sent")
    assert answer.headers["Retry-After"] == "1"
    assert code(test, sent(test, address)) == (409, "mail_not_sent")


def test_when_to_ask_again_for_a_token_follows_the_delivery(test: Api) -> None:
    retried = sent(test, "transient@example.com")
    waits = int(test.get(f"/v1/verifications/{retried}/token").headers["Retry-After"])
    assert 1 < waits <= 70, "the first retry is after a minute"
    assert int(test.get(f"/v1/verifications/{retried}").headers["Retry-After"]) >= 50
    refused = sent(test, "rejected@example.com", "key-2")
    assert "Retry-After" not in test.get(f"/v1/verifications/{refused}/token").headers


def test_an_old_link_can_be_tried(test: Api) -> None:
    first = sent(test)
    second = sent(test, key="key-2")
    assert first != second
    refused = test.consume(read(test, first)[1]["token"])
    assert (refused.status_code, refused.get_json()["newer_exists"]) == (410, True)
    before = read(test, second)
    assert [test.consume(before[1]["token"]).status_code for _ in range(2)] == [200, 409]
    assert read(test, second) == before


def test_once_the_address_is_forgotten_there_is_no_token(test: Api, database: Database) -> None:
    verification_id = sent(test)
    test.consume(test.token(verification_id))
    assert retention.anonymise(database, retention=0).anonymised == 1
    assert code(test, verification_id) == (404, "not_found")


def test_a_key_that_was_rotated_away_makes_no_token(test: Api, database: Database) -> None:
    verification_id = sent(test)
    with database.transaction() as tx:
        tx.execute("UPDATE verifications SET token_key_id = 'old'")
    assert code(test, verification_id) == (404, "not_found")


def test_without_a_key_nothing_is_told(test: Api) -> None:
    answer = test.http.get(f"/v1/verifications/{sent(test)}/token")
    assert (answer.status_code, answer.get_json()["code"]) == (401, "unauthorized")


def test_the_token_reaches_no_log_and_no_cache(test: Api, capfd: pytest.CaptureFixture[str]) -> None:
    verification_id = sent(test)
    with logging_as("json"):
        answer = test.get(f"/v1/verifications/{verification_id}/token")
    token = answer.get_json()["token"]
    written = capfd.readouterr().err
    assert "/token" in written, "the access log has the request"
    assert token not in written
    assert token.replace("-", "") not in written
    assert answer.headers["Cache-Control"] == "no-store"
