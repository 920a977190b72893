"""Retention against everything: it waits for nobody, nobody loses anything to it, and what comes after it keeps no text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from db import consumption, endings, ids, leases, operations, provider_events, retention, verifications
from db.delivery_state import GateReason, Outcome, State
from db.errors import OperationRefused, TokenInvalid
from db.operations import Operator
from db.phases import CancelledBy
from db.provider_events import Event, Kind
from db.stakes import RetryTerms, Verdict
from tests.factories import SMTP, Factory
from tests.support.api import token_of
from tests.support.courier import DATABASE_SETTINGS, create, request
from tests.support.races import Later, holding, together, wait_until_blocked

RETENTION = 60.0
OPERATOR = Operator("on-call", "canary")
LOCK_DELIVERY = "SELECT 1 FROM email_outbox WHERE id = %s FOR UPDATE"
LOCK_VERIFICATION = "SELECT 1 FROM verifications WHERE id = %s FOR NO KEY UPDATE"


def anonymise(make: Factory) -> int:
    return retention.anonymise(make.database, retention=RETENTION).anonymised


def over(make: Factory) -> leases.Lease:
    """A delivery that failed unresolved: evidence may still come. Its verification ran out long ago."""
    lease = make.unknown(SMTP)
    operations.resolve(make.database, lease.delivery_id, Verdict.FAILED, OPERATOR)
    age(make, lease.verification_id)
    return lease


def age(make: Factory, verification_id: UUID) -> None:
    make.execute(
        "UPDATE verifications SET status = 'expired', created_at = created_at - interval '1 day',"
        " expires_at = now() - interval '1 hour' WHERE id = %s AND status = 'requested'",
        verification_id,
    )
    make.execute(
        "UPDATE verifications SET created_at = created_at - interval '1 day' WHERE id = %s", verification_id
    )
    make.execute(
        "UPDATE state_changes SET at = at - interval '1 day' WHERE verification_id = %s", verification_id
    )


def end(make: Factory, verification_id: UUID) -> None:
    """Its mail was never sent, and it ran out long ago."""
    delivery = make.one("SELECT id FROM email_outbox WHERE verification_id = %s", verification_id)
    make.close_gate(delivery["id"], GateReason.CANCELLED)
    age(make, verification_id)


def forget(connection: psycopg.Connection[Any], verification_id: UUID) -> None:
    """The retention as far as its locks, in a transaction that stays open."""
    names = {"ids": [verification_id]}
    assert connection.execute(retention._SQL["anonymise_verifications"], names).rowcount == 1


def is_forgotten(make: Factory, lease: leases.Lease) -> bool:
    row = make.one("SELECT * FROM verifications WHERE id = %s", lease.verification_id)
    return row["anonymised_at"] is not None and row["email"] is None and row["token_hash"] is None


@pytest.mark.parametrize("lock", [LOCK_DELIVERY, LOCK_VERIFICATION])
def test_retention_does_not_wait_for_who_holds_a_row_and_takes_it_the_next_time(
    make: Factory, database_url: str, lock: str
) -> None:
    lease = over(make)
    row = lease.delivery_id if lock is LOCK_DELIVERY else lease.verification_id
    with holding(database_url, lock, row):
        assert anonymise(make) == 0
    assert anonymise(make) == 1


def test_an_event_that_waits_for_the_retention_keeps_no_body(make: Factory, database_url: str) -> None:
    lease = over(make)
    event = Event(SMTP.name, "e1", lease.delivery_id, Kind.BOUNCED, body={"note": "canary"})
    with holding(database_url, "SELECT 1") as first:
        forget(first, lease.verification_id)
        second = Later(lambda: provider_events.record(make.database, event))
        wait_until_blocked(database_url)
        first.commit()
        assert second.result()
    assert make.one("SELECT body FROM provider_events")["body"] is None
    assert make.row(lease.delivery_id)["status"] == State.ACCEPTED


def test_an_event_that_came_first_is_forgotten_with_the_rest(make: Factory) -> None:
    lease = over(make)
    event = Event(SMTP.name, "e1", lease.delivery_id, Kind.BOUNCED, body={"note": "canary"})
    provider_events.record(make.database, event)
    assert anonymise(make) == 0, "it changed just now"
    make.execute("UPDATE state_changes SET at = at - interval '1 day'")
    assert anonymise(make) == 1
    assert make.one("SELECT body FROM provider_events")["body"] is None


def test_consume_that_waits_for_the_retention_finds_no_such_token(make: Factory, database_url: str) -> None:
    made = create(make.database, make.key())
    token = token_of(make.database, ids.public("ver", made.id))
    end(make, made.id)
    with holding(database_url, "SELECT 1") as first:
        forget(first, made.id)
        second = Later(lambda: consumption.consume(make.database, token))
        wait_until_blocked(database_url)
        first.commit()
        with pytest.raises(TokenInvalid):
            second.result()


def test_a_repeat_that_meets_the_retention_is_answered_all_the_same(make: Factory, database_url: str) -> None:
    asked = request()
    made = verifications.create(make.database, make.key(), asked, DATABASE_SETTINGS)
    end(make, made.verification.id)
    with holding(database_url, "SELECT 1") as first:
        forget(first, made.verification.id)
        during = verifications.create(make.database, make.key(), asked, DATABASE_SETTINGS)
    after = verifications.create(make.database, make.key(), asked, DATABASE_SETTINGS)
    for again in (during, after):
        assert again.replayed and again.verification.id == made.verification.id
    assert after.verification.email_masked == "***"


def test_a_new_request_of_the_same_account_meets_the_retention_without_a_deadlock(make: Factory) -> None:
    forgotten = 0
    for number in range(5):
        account = f"account {number}"
        end(make, create(make.database, make.key(), account_id=account).id)
        calls: list[Callable[[], Any]] = [
            partial(anonymise, make),
            partial(create, make.database, make.key(), account_id=account),
        ]
        forgotten += together(2, lambda number, calls=calls: calls[number]())[0]  # type: ignore[misc]
    assert forgotten + anonymise(make) == 5


def test_a_settle_that_comes_after_the_retention_changes_nothing_that_was_forgotten(make: Factory) -> None:
    """A worker that slept through it all still says what the provider had answered."""
    lease = make.handed_over(SMTP)
    make.pass_time(lease.delivery_id, seconds=100)
    make.reclaim()
    operations.resolve(make.database, lease.delivery_id, Verdict.FAILED, OPERATOR)
    age(make, lease.verification_id)
    assert anonymise(make) == 1
    settled = make.settle(lease, Outcome.ACCEPTED)
    assert (settled.state, settled.stale) == (State.ACCEPTED, True)
    row = make.one("SELECT email, token_hash FROM verifications WHERE id = %s", lease.verification_id)
    assert row == {"email": None, "token_hash": None}


def test_a_settle_that_waits_for_the_retention_changes_nothing_that_was_forgotten(
    make: Factory, database_url: str
) -> None:
    lease = make.handed_over(SMTP)
    make.pass_time(lease.delivery_id, seconds=100)
    make.reclaim()
    operations.resolve(make.database, lease.delivery_id, Verdict.FAILED, OPERATOR)
    age(make, lease.verification_id)
    with holding(database_url, "SELECT 1") as first:
        forget(first, lease.verification_id)
        second = Later(lambda: make.settle(lease, Outcome.ACCEPTED))
        wait_until_blocked(database_url)
    assert second.result().state == State.ACCEPTED
    assert is_forgotten(make, lease)


def test_an_operator_who_waits_for_the_retention_is_refused(make: Factory, database_url: str) -> None:
    lease = over(make)
    with holding(database_url, "SELECT 1") as first:
        forget(first, lease.verification_id)
        second = Later(lambda: operations.cancel(make.database, lease.delivery_id, OPERATOR))
        wait_until_blocked(database_url)
        first.commit()
        with pytest.raises(OperationRefused):
            second.result()
    assert is_forgotten(make, lease)


def test_a_client_who_cancels_what_is_being_forgotten_need_not_wait(make: Factory, database_url: str) -> None:
    lease = over(make)
    with holding(database_url, "SELECT 1") as first:
        forget(first, lease.verification_id)
        told = endings.cancel(make.database, lease.client_id, lease.verification_id, by=CancelledBy.CLIENT)
    assert told.status == "expired"
    assert is_forgotten(make, lease)


@pytest.mark.parametrize("state", [State.SENDING, State.UNKNOWN])
def test_what_a_worker_or_an_event_is_still_to_end_is_not_forgotten(
    make: Factory, database_url: str, state: State
) -> None:
    """Whatever the search found before: the row's own state decides, under its lock."""
    delivery_id = make.in_state(state)
    verification_id = make.row(delivery_id)["verification_id"]
    age(make, verification_id)
    with holding(database_url, "SELECT 1") as first:
        forgotten = first.execute(retention._SQL["anonymise_verifications"], {"ids": [verification_id]})
        assert forgotten.rowcount == 0


def test_no_operator_brings_a_forgotten_mail_back(make: Factory) -> None:
    lease = over(make)
    assert anonymise(make) == 1
    terms = RetryTerms(delivery_deadline=14_400.0, min_token_life=300.0)
    with pytest.raises(OperationRefused):
        operations.retry(make.database, lease.delivery_id, OPERATOR, terms)
    with pytest.raises(OperationRefused):
        operations.cancel(make.database, lease.delivery_id, OPERATOR)


def test_two_retentions_share_the_work(make: Factory) -> None:
    for _ in range(10):
        over(make)
    done = together(2, lambda _: anonymise(make))
    assert sum(done) + anonymise(make) == 10
