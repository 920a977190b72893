"""Consume against everything: a token is used at most once (G7), in the lock order account, verification, outbox."""

from __future__ import annotations

from typing import Any

from db import consumption, overdue, provider_events, receipts
from db.consumption import Consumed
from db.delivery_state import Outcome, State
from db.errors import TokenAlreadyUsed, TokenExpired
from db.phases import Status
from db.provider_events import Event, Kind
from db.views import Verification
from tests.factories import SMTP, Factory
from tests.support.acts import consume, create, status
from tests.support.races import (
    BEFORE_THE_LAST_WRITE,
    Later,
    holding,
    in_turn,
    together,
    wait_until_blocked,
)

LOCK_ACCOUNT = "SELECT 1 FROM accounts FOR NO KEY UPDATE"
LOCK_DELIVERY = "SELECT 1 FROM email_outbox FOR UPDATE"


def changes(make: Factory) -> list[tuple[str, str]]:
    return [
        (r["before"], r["after"])
        for r in make.all("SELECT before, after FROM state_changes WHERE delivery_id IS NULL")
    ]


def test_consume_x_consume_24_at_once_confirm_once(make: Factory) -> None:
    made, token = create(make)
    results = together(24, lambda _: consume(make, token))
    assert sorted(type(result).__name__ for result in results) == ["Consumed"] + ["TokenAlreadyUsed"] * 23
    assert changes(make) == [("requested", "consumed")]
    assert status(make, made) is Status.CONSUMED


def test_consume_x_consume_the_second_waits_for_the_account_and_is_told(
    make: Factory, database_url: str
) -> None:
    _, token = create(make)
    with holding(database_url, LOCK_ACCOUNT):
        calls = [Later(lambda: consume(make, token)) for _ in range(2)]
        wait_until_blocked(database_url, 2)
    results = [call.result() for call in calls]
    assert sorted(type(result).__name__ for result in results) == ["Consumed", "TokenAlreadyUsed"]


def test_consume_x_create_both_at_once_end_as_if_one_came_first(make: Factory) -> None:
    for number in range(8):
        account_id = f"account-{number}"
        made, token = create(make, account_id=account_id)

        def call(
            which: int, account_id: str = account_id, token: str = token
        ) -> Consumed | Exception | tuple[Verification, str]:
            return (
                consume(make, token) if which else create(make, account_id=account_id, email="b@example.com")
            )

        (newer, _), consumed = together(2, call)  # type: ignore[misc]
        old = receipts.read(make.database, None, made.id)
        if isinstance(consumed, Consumed):
            assert (old.status, old.superseded_by) == (Status.CONSUMED, None)
        else:
            assert isinstance(consumed, TokenExpired)
            assert (old.status, old.superseded_by) == (Status.SUPERSEDED, newer.id)
        assert status(make, newer) is Status.REQUESTED


def test_consume_x_supersede_the_supersession_first(make: Factory, database_url: str) -> None:
    _, token = create(make)
    _, refused = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: create(make),  # holds the account, waits for the delivery
        lambda: consume(make, token),
    )
    assert isinstance(refused, TokenExpired)
    assert (refused.reason, refused.newer_exists) == ("superseded", True)


def test_consume_x_supersede_the_consumption_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    consumed, late = in_turn(
        database_url, LOCK_DELIVERY, lambda: consume(make, token), lambda: create(make, email="b@example.com")
    )
    assert isinstance(consumed, Consumed)
    newer, _ = late
    assert receipts.read(make.database, None, made.id).superseded_by is None
    assert newer.status is Status.REQUESTED


def test_consume_x_revoke_one_of_them_counts(make: Factory) -> None:
    for number in range(8):
        made, token = create(make, account_id=f"account-{number}")

        def call(which: int, token: str = token) -> Any:
            return consume(make, token) if which else _revoke(make, token)

        revoked, consumed = together(2, call)
        stands = status(make, made)
        assert (stands is Status.CONSUMED) == isinstance(consumed, Consumed)
        assert (stands is Status.CANCELLED) == (revoked == made.id)


def _revoke(make: Factory, token: str) -> Any:
    try:
        return consumption.revoke(make.database, token).verification_id
    except TokenAlreadyUsed as error:
        return error


def test_consume_x_time_a_token_that_runs_out_while_it_waits_is_expired(
    make: Factory, database_url: str
) -> None:
    made, token = create(make)
    with holding(database_url, "SELECT 1 FROM verifications FOR UPDATE") as connection:
        late = Later(lambda: consume(make, token))
        wait_until_blocked(database_url)
        connection.execute(
            "UPDATE verifications SET created_at = created_at - interval '2 days', expires_at = clock_timestamp()"
        )
    refused = late.result()
    assert isinstance(refused, TokenExpired)
    assert refused.reason == "expired"
    assert status(make, made) is Status.REQUESTED


def ended(make: Factory, made: Verification) -> tuple[str, str | None, int]:
    """State, evidence and attempts counted."""
    row = make.row(made.delivery_id)
    return row["status"], row["evidence"], row["attempt_count"]


def test_consume_x_release_the_consumption_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    lease = make.claim(made.delivery_id)
    consumed, settled = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: consume(make, token),
        lambda: make.settle(lease, Outcome.NOT_SENT, "shutting_down"),
    )
    assert isinstance(consumed, Consumed)
    assert consumed.leaked, "no mail with it had left"
    assert settled.state is State.EXPIRED, "and none will"


def test_consume_x_release_the_release_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    lease = make.claim(made.delivery_id)
    settled, consumed = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: make.settle(lease, Outcome.NOT_SENT, "shutting_down"),
        lambda: consume(make, token),
    )
    assert settled.state is State.PENDING
    assert isinstance(consumed, Consumed)
    assert consumed.leaked
    assert ended(make, made) == (State.EXPIRED, None, 0), "no mail will leave"


def test_consume_x_hand_over_the_consumption_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    lease = make.claim(made.delivery_id)
    consumed, handed_over = in_turn(
        database_url, LOCK_DELIVERY, lambda: consume(make, token), lambda: make.hand_over(lease)
    )
    assert isinstance(consumed, Consumed)
    assert consumed.leaked, "no mail with it had left"
    assert handed_over is False
    assert make.attempts(made.delivery_id) == []


def test_consume_x_hand_over_the_hand_over_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    lease = make.claim(made.delivery_id)
    handed_over, consumed = in_turn(
        database_url, LOCK_DELIVERY, lambda: make.hand_over(lease), lambda: consume(make, token)
    )
    assert handed_over is True
    assert isinstance(consumed, Consumed)
    assert not consumed.leaked
    assert ended(make, made) == (State.ACCEPTED, "consumed", 0)


def test_consume_x_sweep_the_expiry_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    make.execute(
        "UPDATE verifications SET created_at = created_at - interval '2 days', expires_at = clock_timestamp()"
    )
    expired, refused = in_turn(
        database_url,
        BEFORE_THE_LAST_WRITE,
        lambda: overdue.expire_verifications(make.database),
        lambda: consume(make, token),
    )
    assert expired == 1
    assert isinstance(refused, TokenExpired)
    assert status(make, made) is Status.EXPIRED


def test_consume_x_everything_nobody_waits_in_a_circle(make: Factory) -> None:
    """A deadlock would be a DatabaseUnavailable here."""
    for number in range(6):
        account_id, address = f"account-{number}", f"{number}@example.com"
        made, token = create(make, account_id=account_id, email_canonical=address)
        lease = make.claim(made.delivery_id)
        assert make.hand_over(lease)
        event = Event(SMTP.name, f"evt_{number}", made.delivery_id, Kind.DELIVERED)
        calls = (
            lambda token=token: consume(make, token),
            lambda a=account_id, e=address: create(make, account_id=a, email=f"b{e}", email_canonical=e),
            lambda lease=lease: make.settle(lease, Outcome.TRANSIENT, "mailbox_full"),
            lambda event=event: provider_events.record(make.database, event),
            lambda token=token: consume(make, token),
            lambda lease=lease: make.settle(lease, Outcome.ACCEPTED),
        )
        together(len(calls), lambda which, calls=calls: calls[which]())  # type: ignore[misc]
        assert status(make, made) in {Status.CONSUMED, Status.SUPERSEDED}
        assert make.row(made.delivery_id)["status"] == State.ACCEPTED
