"""`POST /v1/verifications/{id}/cancel`: in every state of verification and delivery, twice, by strangers, with odd bodies."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest
from werkzeug.test import TestResponse

from app import errors
from db import deliveries, endings, ids, receipts
from db.delivery_state import Outcome, State
from db.errors import CommitUnknown
from db.phases import CancelledBy, Phase, Status
from db.session import Database
from tests.factories import Factory
from tests.integration.test_api_verifications import problem
from tests.support.api import Api, make_api, snapshot
from tests.support.lossy_proxy import LossyProxy


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database)


@pytest.fixture
def make(api: Api) -> Factory:
    """Rows of the client that calls."""
    factory = Factory(api.database)
    factory.client_id = api.owner.client.id
    return factory


def cancel(api: Api, verification_id: UUID | str, **sent: Any) -> TestResponse:
    shown = verification_id if isinstance(verification_id, str) else ids.public("ver", verification_id)
    headers = {**api.headers, **sent.pop("headers", {})}
    return api.http.post(f"/v1/verifications/{shown}/cancel", headers=headers, **sent)


def in_state(make: Factory, state: State) -> UUID:
    """A requested verification whose delivery is in `state`."""
    verification_id: UUID = make.row(make.in_state(state))["verification_id"]
    return verification_id


def _consume(make: Factory, verification_id: UUID) -> None:
    with make.database.transaction() as tx:
        tx.execute(
            "UPDATE verifications SET status = 'consumed', consumed_at = now() WHERE id = %s",
            [verification_id],
        )
        deliveries.consume(tx, deliveries.lock_of_verification(tx, verification_id))


def _supersede(make: Factory, verification_id: UUID) -> None:
    newer = make.waiting().verification_id
    with make.database.transaction() as tx:
        endings.supersede(tx, verification_id, newer)


def _expire(make: Factory, verification_id: UUID) -> None:
    with make.database.transaction() as tx:
        endings.expire(tx, verification_id)


def _cancel(make: Factory, verification_id: UUID) -> None:
    endings.cancel(make.database, None, verification_id, by=CancelledBy.OPERATOR)


END: dict[Status, Callable[[Factory, UUID], None]] = {
    Status.CONSUMED: _consume,
    Status.SUPERSEDED: _supersede,
    Status.EXPIRED: _expire,
    Status.CANCELLED: _cancel,
}

# The delivery before -> the delivery afterwards, and why its gate is closed.
REQUESTED = {
    State.PENDING: (State.CANCELLED, "cancelled"),
    State.SENDING: (State.SENDING, "cancelled"),
    State.UNKNOWN: (State.UNKNOWN, "cancelled"),
    State.ACCEPTED: (State.ACCEPTED, None),
    State.FAILED: (State.FAILED, None),
    State.EXPIRED: (State.EXPIRED, "superseded"),  # the factory's way there
    State.CANCELLED: (State.CANCELLED, "cancelled"),
}


@pytest.mark.parametrize("state", State)
def test_a_requested_verification_is_cancelled_whatever_its_delivery_does(
    api: Api, make: Factory, state: State
) -> None:
    verification_id = in_state(make, state)
    answer = cancel(api, verification_id)
    after, gate = REQUESTED[state]
    assert answer.status_code == 200, answer.text
    body = answer.get_json()
    assert (body["verification_status"], body["phase"], body["delivery_status"]) == (
        Status.CANCELLED,
        Phase.CANCELLED,
        after,
    )
    assert body["retryable"] is True
    assert "Retry-After" not in answer.headers
    assert body == api.get(f"/v1/verifications/{body['verification_id']}").get_json()
    found = receipts.read_receipt(make.database, make.client(), verification_id)
    assert found.known.delivery.gate_reason == gate
    assert found.next_action.code == "none"
    assert "cancelled, by its client, and its link is dead" in found.next_action.text
    assert ("still holds" in found.next_action.text) == (after is State.SENDING)
    assert ("being found out" in found.next_action.text) == (after is State.UNKNOWN)


@pytest.mark.parametrize("status", sorted(set(END) - {Status.CONSUMED}))
def test_a_dead_verification_is_answered_as_it_is(api: Api, make: Factory, status: Status) -> None:
    for state in State:
        verification_id = in_state(make, state)
        END[status](make, verification_id)
        before = snapshot(api.database)
        answer = cancel(api, verification_id)
        assert answer.status_code == 200, answer.text
        assert answer.get_json()["verification_status"] == status
        assert snapshot(api.database) == before, state


def test_a_consumed_verification_cannot_be_cancelled(api: Api, make: Factory) -> None:
    for state in State:
        verification_id = in_state(make, state)
        _consume(make, verification_id)
        before = snapshot(api.database)
        problem(cancel(api, verification_id), 409, "not_cancellable")
        assert snapshot(api.database) == before, state


def test_the_second_time_changes_nothing_and_answers_the_same(api: Api, make: Factory) -> None:
    verification_id = in_state(make, State.PENDING)
    first = cancel(api, verification_id)
    before = snapshot(api.database)
    second = cancel(api, verification_id)
    assert (second.status_code, second.get_json()) == (200, first.get_json())
    assert snapshot(api.database) == before


def test_an_overdue_verification_ends_expired_not_cancelled(api: Api, make: Factory) -> None:
    made = make.waiting()
    make.execute(
        "UPDATE verifications SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day'"
    )
    assert cancel(api, made.verification_id).get_json()["verification_status"] == Status.EXPIRED


def test_cancelling_revokes_the_token_of_a_delivered_mail(api: Api, make: Factory) -> None:
    made = api.create().get_json()
    shown, delivery_id = made["verification_id"], ids.parse("dlv", made["delivery_id"])
    assert delivery_id is not None
    lease = make.claim(delivery_id)
    assert make.hand_over(lease)
    make.settle(lease, Outcome.ACCEPTED)
    token = api.token(shown)
    assert cancel(api, shown).get_json()["delivery_status"] == State.ACCEPTED
    refused = problem(api.consume(token), 410, "verification_expired")
    assert (refused["reason"], refused["newer_exists"]) == ("cancelled", False)
    problem(cancel(make_api(api.database, "other"), shown), 404, "not_found")


def test_another_request_is_possible_at_once(api: Api) -> None:
    cancel(api, api.create("key-1").get_json()["verification_id"])
    again = api.create("key-2")
    assert again.status_code == 202, again.text
    assert again.get_json()["superseded_by"] is None


@pytest.mark.parametrize("shown", ["ver_" + "0" * 32, "ver_0", "dlv_" + "0" * 32, "ver_" + "G" * 32, "%00"])
def test_ids_of_nobody_are_not_found(api: Api, shown: str) -> None:
    problem(cancel(api, shown), 404, "not_found")


def test_another_clients_id_is_not_found_and_stays_as_it_is(api: Api, make: Factory) -> None:
    verification_id = in_state(make, State.PENDING)
    other = make_api(api.database, "other")
    before = snapshot(api.database)
    problem(cancel(other, verification_id), 404, "not_found")
    assert snapshot(api.database) == before


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"data": b""},
        {"data": b"", "content_type": "text/plain"},
        {"json": {}},
        {"data": b" {} ", "content_type": "application/json; charset=utf-8"},
    ],
)
def test_no_body_or_an_empty_object_will_do(api: Api, make: Factory, sent: dict[str, Any]) -> None:
    assert cancel(api, in_state(make, State.PENDING), **sent).status_code == 200


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({"json": {"reason": "typo"}}, 422, "invalid_request"),
        ({"json": []}, 422, "invalid_request"),
        ({"data": b"null", "content_type": "application/json"}, 422, "invalid_request"),
        ({"data": b"{", "content_type": "application/json"}, 400, "malformed_json"),
        ({"data": b"{}", "content_type": "text/plain"}, 415, "unsupported_media_type"),
        ({"data": b"x" * 20_000, "content_type": "application/json"}, 413, "body_too_large"),
    ],
)
def test_any_other_body_is_refused_and_cancels_nothing(
    api: Api, make: Factory, sent: dict[str, Any], status: int, code: str
) -> None:
    verification_id = in_state(make, State.PENDING)
    before = snapshot(api.database)
    problem(cancel(api, verification_id, **sent), status, code)
    assert snapshot(api.database) == before


def test_an_unknown_field_is_named(api: Api, make: Factory) -> None:
    refused = problem(cancel(api, in_state(make, State.PENDING), json={"a/b": 1}), 422, "invalid_request")
    assert [(error["pointer"], error["code"]) for error in refused["errors"]] == [("/a~1b", "unknown_field")]


def test_it_takes_a_key_and_a_post(api: Api, make: Factory) -> None:
    verification_id = in_state(make, State.PENDING)
    problem(cancel(api, verification_id, headers={"Authorization": "Bearer x"}), 401, "unauthorized")
    shown = ids.public("ver", verification_id)
    problem(api.get(f"/v1/verifications/{shown}/cancel"), 405, "method_not_allowed")


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_to_the_commit_is_a_503_and_repeating_it_is_safe(
    api: Api, make: Factory, database_url: str, committed: bool
) -> None:
    verification_id = in_state(make, State.PENDING)
    with (
        LossyProxy(database_url) as proxy,
        closing(Database(proxy.url, statement_timeout=4.0, size=1)) as lossy,
    ):
        proxy.lose(committed=committed)
        with pytest.raises(CommitUnknown) as lost:
            endings.cancel(lossy, make.client(), verification_id, by=CancelledBy.CLIENT)
    told = errors.problem_of(lost.value)
    assert (told.status, told.headers["Retry-After"]) == (503, "2")
    status = receipts.read(make.database, None, verification_id).status
    assert status is (Status.CANCELLED if committed else Status.REQUESTED)
    assert cancel(api, verification_id).get_json()["verification_status"] == Status.CANCELLED
    changes = make.all("SELECT id FROM state_changes WHERE after = 'cancelled' AND delivery_id IS NULL")
    assert len(changes) == 1


@pytest.mark.parametrize("by", CancelledBy)
def test_the_receipt_says_who_cancelled(api: Api, make: Factory, by: CancelledBy) -> None:
    verification_id = in_state(make, State.PENDING)
    endings.cancel(make.database, None, verification_id, by=by)
    found = receipts.read_receipt(make.database, make.client(), verification_id)
    (entry,) = (entry for entry in found.timeline if entry.event == "verification.cancelled")
    assert entry.by == by
    words = {"client": "by its client,", "recipient": "by the recipient,", "operator": "by an operator,"}
    assert words[by] in found.next_action.text
    text = api.get(
        f"/v1/verifications/{ids.public('ver', verification_id)}/receipt", Accept="text/plain"
    ).text
    assert re.search(rf"verification.cancelled +by {by}$", text, re.M)
    change = make.one("SELECT code FROM state_changes WHERE after = 'cancelled' AND delivery_id IS NULL")
    assert change["code"] == by
