"""Retention against everything: it waits for nobody, nobody loses anything to it, and what comes after it keeps no text."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from db import consumption, leases, operations, provider_events, retention, tokens, verifications
from db.delivery_state import Outcome, State
from db.errors import OperationRefused, TokenInvalid
from db.operations import Operator
from db.provider_events import Event, Kind
from db.stakes import RetryTerms, Verdict
from tests.factories import SMTP, Factory
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
    statement = retention._SQL["anonymise_verifications"]
    event = Event(SMTP.name, "e1", lease.delivery_id, Kind.BOUNCED, body={"note": "canary"})
    with holding(database_url, "SELECT 1") as first:
        first.execute(statement, {"ids": [lease.verification_id]})
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
    row = make.one("SELECT * FROM verifications WHERE id = %s", made.id)
    keys = DATABASE_SETTINGS.token_keys
    token = tokens.derive(keys, row["token_key_id"], row["id"], row["email"], bytes(row["token_nonce"]))
    age(make, made.id)
    with holding(database_url, "SELECT 1") as first:
        first.execute(retention._SQL["anonymise_verifications"], {"ids": [made.id]})
        second = Later(lambda: consumption.consume(make.database, token))
        wait_until_blocked(database_url)
        first.commit()
        with pytest.raises(TokenInvalid):
            second.result()


def test_a_repeat_that_meets_the_retention_is_answered_all_the_same(make: Factory, database_url: str) -> None:
    asked = request()
    made = verifications.create(make.database, make.key(), asked, DATABASE_SETTINGS)
    age(make, made.verification.id)
    with holding(database_url, "SELECT 1") as first:
        first.execute(retention._SQL["anonymise_verifications"], {"ids": [made.verification.id]})
        again = verifications.create(make.database, make.key(), asked, DATABASE_SETTINGS)
    assert again.replayed and again.verification.id == made.verification.id


def test_a_new_request_of_the_same_account_meets_the_retention_without_a_deadlock(make: Factory) -> None:
    for number in range(5):
        account = f"account {number}"
        age(make, create(make.database, make.key(), account_id=account).id)
        calls = partial(anonymise, make), partial(create, make.database, make.key(), account_id=account)
        together(2, lambda number, calls=calls: calls[number]())  # type: ignore[misc]


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
