"""Operators against everything: who comes second finds what the first did, in either order; nobody waits in a circle."""

from __future__ import annotations

from uuid import UUID

import pytest

from db import endings, leases, operations, provider_events, verifications
from db.delivery_state import Outcome, State
from db.errors import OperationRefused
from db.operations import Operator
from db.phases import CancelledBy
from db.provider_events import Event, Kind
from db.stakes import RetryTerms, Verdict
from tests.factories import SMTP, Factory, terms
from tests.support.courier import DATABASE_SETTINGS, create, request
from tests.support.races import Later, holding, together, wait_until_blocked

BY = Operator("on-call", "a test says so")
TERMS = RetryTerms(delivery_deadline=14_400.0, min_token_life=300.0)
LOCK_DELIVERY = "SELECT 1 FROM email_outbox WHERE id = %s FOR UPDATE"


def resolve(make: Factory, delivery_id: UUID, verdict: Verdict) -> State | OperationRefused:
    try:
        return operations.resolve(make.database, delivery_id, verdict, BY).to_state
    except OperationRefused as refused:
        return refused


def retry(make: Factory, delivery_id: UUID) -> State | OperationRefused:
    try:
        return operations.retry(make.database, delivery_id, BY, TERMS).to_state
    except OperationRefused as refused:
        return refused


def test_resolve_x_settle_the_settle_first(make: Factory, database_url: str) -> None:
    """A late answer accepts it; the operator, who waited, is told so and overrules nothing."""
    lease = make.unknown()
    with holding(database_url, LOCK_DELIVERY, lease.delivery_id):
        late = Later(lambda: make.settle(lease, Outcome.ACCEPTED))
        wait_until_blocked(database_url)
        judged = Later(lambda: resolve(make, lease.delivery_id, Verdict.PENDING))
        wait_until_blocked(database_url, 2)
    assert late.result().state is State.ACCEPTED
    assert isinstance(judged.result(), OperationRefused)
    assert make.row(lease.delivery_id)["status"] == State.ACCEPTED


def test_resolve_x_settle_the_verdict_first(make: Factory, database_url: str) -> None:
    """Resolved as not sent; the answer that comes then is evidence all the same."""
    lease = make.unknown()
    with holding(database_url, LOCK_DELIVERY, lease.delivery_id):
        judged = Later(lambda: resolve(make, lease.delivery_id, Verdict.PENDING))
        wait_until_blocked(database_url)
        late = Later(lambda: make.settle(lease, Outcome.ACCEPTED))
        wait_until_blocked(database_url, 2)
    assert judged.result() is State.PENDING
    assert late.result().state is State.ACCEPTED


@pytest.mark.parametrize("event_first", [True, False])
def test_resolve_x_webhook(make: Factory, database_url: str, event_first: bool) -> None:
    lease = make.unknown()
    event = Event(SMTP.name, "e1", lease.delivery_id, Kind.DELIVERED)
    calls = [
        lambda: provider_events.record(make.database, event),
        lambda: resolve(make, lease.delivery_id, Verdict.FAILED),
    ]
    with holding(database_url, LOCK_DELIVERY, lease.delivery_id):
        first = Later(calls[0 if event_first else 1])
        wait_until_blocked(database_url)
        second = Later(calls[1 if event_first else 0])
        wait_until_blocked(database_url, 2)
    results = first.result(), second.result()
    assert results[0 if event_first else 1] is True
    assert isinstance(results[1], OperationRefused) == event_first
    assert make.row(lease.delivery_id)["status"] == State.ACCEPTED, "evidence wins in either order"


def test_resolve_x_claim_what_a_worker_took_is_not_resolved(make: Factory) -> None:
    lease = make.unknown()
    make.pass_time(lease.delivery_id, seconds=1801)
    assert leases.claim(make.database, terms())
    assert isinstance(resolve(make, lease.delivery_id, Verdict.PENDING), OperationRefused)
    assert make.row(lease.delivery_id)["status"] == State.SENDING


@pytest.mark.parametrize("retry_first", [True, False])
def test_retry_x_supersede(make: Factory, database_url: str, retry_first: bool) -> None:
    """No mail leaves for a token that was replaced, whoever came first."""
    made = create(make.database, make.key(), account_id="a")
    make.settle(make.claim(made.delivery_id), Outcome.PERMANENT, "mailbox_unavailable")
    newer = request(account_id="a")
    calls = [
        lambda: retry(make, made.delivery_id),
        lambda: verifications.create(make.database, make.key(), newer, DATABASE_SETTINGS),
    ]
    with holding(database_url, "SELECT 1 FROM accounts FOR NO KEY UPDATE"):
        first = Later(calls[0 if retry_first else 1])
        wait_until_blocked(database_url)
        second = Later(calls[1 if retry_first else 0])
        wait_until_blocked(database_url, 2)
    results = first.result(), second.result()
    retried = results[0 if retry_first else 1]
    assert (retried is State.PENDING) == retry_first
    ended = State.EXPIRED if retry_first else State.FAILED
    assert make.row(made.delivery_id)["status"] == ended


@pytest.mark.parametrize("cancel_first", [True, False])
def test_operators_cancel_x_hand_over(make: Factory, database_url: str, cancel_first: bool) -> None:
    lease = make.leased()
    calls = [
        lambda: operations.cancel(make.database, lease.delivery_id, BY),
        lambda: make.hand_over(lease),
    ]
    with holding(database_url, LOCK_DELIVERY, lease.delivery_id):
        first = Later(calls[0 if cancel_first else 1])
        wait_until_blocked(database_url)
        second = Later(calls[1 if cancel_first else 0])
        wait_until_blocked(database_url, 2)
    handed_over = (second if cancel_first else first).result()
    (first if cancel_first else second).result()
    assert handed_over is (not cancel_first), "after the cancellation nothing leaves"
    assert make.row(lease.delivery_id)["gate_reason"] == "cancelled"


def test_two_operators_at_once_one_is_told_what_the_other_did(make: Factory) -> None:
    lease = make.unknown()
    verdicts = (Verdict.FAILED, Verdict.PENDING)
    results = together(2, lambda number: resolve(make, lease.delivery_id, verdicts[number]))
    assert sum(isinstance(result, OperationRefused) for result in results) == 1
    assert len(make.all("SELECT 1 FROM operator_actions")) == 1


def test_operators_and_clients_never_wait_in_a_circle(make: Factory) -> None:
    for _ in range(5):
        made = create(make.database, make.key())
        make.settle(make.claim(made.delivery_id), Outcome.PERMANENT, "mailbox_unavailable")
        calls = (
            lambda made=made: retry(make, made.delivery_id),
            lambda made=made: endings.cancel(make.database, None, made.id, by=CancelledBy.CLIENT),
            lambda made=made: resolve(make, made.delivery_id, Verdict.FAILED),
        )
        together(3, lambda number, calls=calls: calls[number]())  # type: ignore[misc]
