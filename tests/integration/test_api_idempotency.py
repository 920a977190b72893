"""The same key and body are answered for ever, by the verification as it stands now; another body never is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from db import retention
from db.session import Database
from tests.support.api import BODY, Api, make_api


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database)


def _execute(api: Api, statement: Any) -> None:
    with api.database.transaction() as tx:
        tx.execute(statement)


def _consumed(api: Api, verification_id: str) -> None:
    api.consume(api.token(verification_id))


def _expired(api: Api, _: str) -> None:
    _execute(api, "UPDATE verifications SET created_at = '2026-01-01', expires_at = '2026-01-02'")


def _superseded(api: Api, _: str) -> None:
    assert api.create("another").status_code == 202


def _cancelled(api: Api, verification_id: str) -> None:
    path = f"/v1/verifications/{verification_id}/cancel"
    assert api.http.post(path, headers=api.headers).status_code == 200


def _anonymised(api: Api, verification_id: str) -> None:
    _cancelled(api, verification_id)
    assert retention.anonymise(api.database, retention=0).anonymised == 1


@pytest.mark.parametrize(
    ("happens", "phase"),
    [
        (_consumed, "consumed"),
        (_expired, "queued"),
        (_superseded, "expired"),
        (_cancelled, "cancelled"),
        (_anonymised, "cancelled"),
    ],
)
def test_a_replay_answers_the_verification_as_it_stands_whatever_has_happened(
    api: Api, happens: Callable[[Api, str], None], phase: str
) -> None:
    made = api.create("k", metadata={"plan": "free"}).get_json()
    happens(api, made["verification_id"])
    again = api.create("k", metadata={"plan": "free"})
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (202, "true")
    assert again.get_json()["verification_id"] == made["verification_id"]
    assert again.get_json()["phase"] == phase
    other = api.create("k", metadata={"plan": "paid"})
    assert (other.status_code, other.get_json()["code"]) == (409, "idempotency_key_conflict")


@pytest.mark.parametrize("change", [{"account_id": "b"}, {"email": "b@example.com"}, {"expires_in": 900}])
def test_another_body_with_the_same_key_is_refused_and_changes_nothing(
    api: Api, change: dict[str, Any]
) -> None:
    api.create("k")
    assert api.create("k", **change).get_json()["code"] == "idempotency_key_conflict"
    with api.database.transaction() as tx:
        assert len(tx.execute("SELECT id FROM verifications").fetchall()) == 1


@pytest.mark.parametrize("same", [{"purpose": "signup"}, {"email": "ada@EXAMPLE.com"}])
def test_a_body_that_means_the_same_is_the_same(api: Api, same: dict[str, Any]) -> None:
    api.create("k")
    assert api.create("k", **same).headers["Idempotent-Replayed"] == "true"


def test_the_order_of_members_means_nothing_and_numbers_of_one_value_are_one(api: Api) -> None:
    first = api.create("k", metadata={"a": 1, "b": [1, 2]}, expires_in=900)
    again = api.create("k", metadata={"b": [1.0, 2], "a": 1e0}, expires_in=900.0)
    assert first.get_json()["verification_id"] == again.get_json()["verification_id"]


def test_sixty_four_calls_at_once_make_one_verification(api: Api) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(
                lambda _: api.http.application.test_client().post(
                    "/v1/verifications", json=BODY, headers={**api.headers, "Idempotency-Key": "k"}
                ),
                range(64),
            )
        )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.get_json()["verification_id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
