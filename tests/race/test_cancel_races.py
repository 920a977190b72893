"""Cancel against everything: one of two wins, a mail that was cancelled does not leave, and nobody waits in a circle."""

from __future__ import annotations

from typing import Any

import pytest

from db import receipts
from db.consumption import Consumed
from db.delivery_state import Outcome, State
from db.errors import NotCancellable, TokenExpired
from db.phases import Status
from db.views import Verification
from tests.factories import Factory
from tests.support.acts import cancel, consume, create, status
from tests.support.races import Later, holding, in_turn, together, wait_until_blocked

LOCK_ACCOUNT = "SELECT 1 FROM accounts FOR NO KEY UPDATE"
LOCK_DELIVERY = "SELECT 1 FROM email_outbox FOR UPDATE"


def test_cancel_x_cancel_24_at_once_cancel_once(make: Factory) -> None:
    made, _ = create(make)
    results = together(24, lambda _: cancel(make, made))
    assert {getattr(result, "status", None) for result in results} == {Status.CANCELLED}
    assert len(make.all("SELECT 1 FROM state_changes WHERE after = 'cancelled' AND delivery_id IS NULL")) == 1


def test_cancel_x_consume_the_cancellation_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    cancelled, refused = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: cancel(make, made),  # holds the account, waits for the delivery
        lambda: consume(make, token),
    )
    assert isinstance(cancelled, Verification)
    assert isinstance(refused, TokenExpired)
    assert (refused.reason, refused.newer_exists) == ("cancelled", False)
    assert make.one("SELECT activated_at FROM accounts")["activated_at"] is None


def test_cancel_x_consume_the_consumption_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    consumed, late = in_turn(
        database_url, LOCK_DELIVERY, lambda: consume(make, token), lambda: cancel(make, made)
    )
    assert isinstance(consumed, Consumed)
    assert isinstance(late, NotCancellable)
    assert status(make, made) is Status.CONSUMED


def test_cancel_x_consume_both_at_once_end_as_if_one_came_first(make: Factory) -> None:
    for number in range(8):
        made, token = create(make, account_id=f"account-{number}", email_canonical=f"{number}@example.com")

        def call(which: int, made: Verification = made, token: str = token) -> Any:
            return consume(make, token) if which else cancel(make, made)

        cancelled, consumed = together(2, call)
        won = isinstance(cancelled, Verification)
        assert isinstance(consumed, TokenExpired) == won
        assert status(make, made) is (Status.CANCELLED if won else Status.CONSUMED)


def test_cancel_x_hand_over_the_cancellation_first(make: Factory, database_url: str) -> None:
    made, _ = create(make)
    lease = make.claim(made.delivery_id)
    cancelled, late = in_turn(
        database_url, LOCK_DELIVERY, lambda: cancel(make, made), lambda: make.hand_over(lease)
    )
    assert isinstance(cancelled, Verification)
    assert late is False
    assert make.attempts(made.delivery_id) == [], "nothing left"
    assert make.settle(lease, Outcome.NOT_SENT, "gate_closed").state is State.CANCELLED


def test_cancel_x_hand_over_the_hand_over_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    lease = make.claim(made.delivery_id)
    handed_over, answered = in_turn(
        database_url, LOCK_DELIVERY, lambda: make.hand_over(lease), lambda: cancel(make, made)
    )
    assert handed_over is True
    assert isinstance(answered, Verification)
    assert answered.delivery_status is State.SENDING
    assert make.settle(lease, Outcome.ACCEPTED).state is State.ACCEPTED, "the mail is out, its link is dead"
    assert isinstance(consume(make, token), TokenExpired)


# Whoever comes first: a delivery that went back to waiting is taken from there.
ENDS = {
    Outcome.ACCEPTED: State.ACCEPTED,
    Outcome.UNKNOWN: State.UNKNOWN,
    Outcome.PERMANENT: State.FAILED,
    Outcome.TRANSIENT: State.CANCELLED,
    Outcome.NOT_SENT: State.CANCELLED,
}
CODES = {Outcome.PERMANENT: "mailbox_unavailable", Outcome.TRANSIENT: "mailbox_full"}


@pytest.mark.parametrize("outcome", ENDS)
def test_cancel_x_settle_the_cancellation_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    made, _ = create(make)
    lease = make.claim(made.delivery_id)
    assert make.hand_over(lease)
    cancelled, late = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: cancel(make, made),
        lambda: make.settle(lease, outcome, CODES.get(outcome)),
    )
    assert isinstance(cancelled, Verification)
    assert late.state is ENDS[outcome]
    assert make.row(made.delivery_id)["status"] == ENDS[outcome]


@pytest.mark.parametrize("outcome", ENDS)
def test_cancel_x_settle_the_settle_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    made, _ = create(make)
    lease = make.claim(made.delivery_id)
    assert make.hand_over(lease)
    _, answered = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: make.settle(lease, outcome, CODES.get(outcome)),
        lambda: cancel(make, made),
    )
    assert isinstance(answered, Verification)
    assert (answered.status, answered.delivery_status) == (Status.CANCELLED, ENDS[outcome])


def test_cancel_x_create_the_cancellation_first(make: Factory, database_url: str) -> None:
    made, _ = create(make)
    cancelled, late = in_turn(database_url, LOCK_DELIVERY, lambda: cancel(make, made), lambda: create(make))
    assert isinstance(cancelled, Verification)
    newer, _ = late
    old = receipts.read(make.database, None, made.id)
    assert (old.status, old.superseded_by) == (Status.CANCELLED, None)
    assert newer.status is Status.REQUESTED


def test_cancel_x_create_the_supersession_first(make: Factory, database_url: str) -> None:
    made, _ = create(make)
    # Older than the cooldown.
    make.execute("UPDATE verifications SET created_at = created_at - interval '1 hour'")
    newer, answered = in_turn(database_url, LOCK_DELIVERY, lambda: create(make), lambda: cancel(make, made))
    assert isinstance(answered, Verification)
    assert (answered.status, answered.superseded_by) == (Status.SUPERSEDED, newer[0].id)
    assert status(make, newer[0]) is Status.REQUESTED, "the newer one was not meant"


def test_cancel_x_everything_nobody_waits_in_a_circle(make: Factory) -> None:
    """Each takes its locks in one order: no deadlock, which would be a DatabaseUnavailable here."""
    for number in range(6):
        account_id, address = f"account-{number}", f"{number}@example.com"
        made, token = create(make, account_id=account_id, email_canonical=address)
        lease = make.claim(made.delivery_id)
        calls = (
            lambda made=made: cancel(make, made),
            lambda token=token: consume(make, token),
            lambda lease=lease: make.hand_over(lease),
            lambda lease=lease: make.settle(lease, Outcome.NOT_SENT, "gate_closed"),
            lambda made=made: cancel(make, made),
        )
        together(len(calls), lambda which, calls=calls: calls[which]())  # type: ignore[misc]
        assert status(make, made) in {Status.CANCELLED, Status.CONSUMED}


def test_a_cancellation_waits_for_the_account_before_it_looks(make: Factory, database_url: str) -> None:
    made, token = create(make)
    with holding(database_url, LOCK_ACCOUNT):
        calls = [Later(lambda: cancel(make, made)), Later(lambda: consume(make, token))]
        wait_until_blocked(database_url, 2)
    results = [call.result() for call in calls]
    assert isinstance(results[0], Verification) == isinstance(results[1], TokenExpired)
