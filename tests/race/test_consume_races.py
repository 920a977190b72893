"""Consume against everything: a token is used at most once (G7), in the lock order account, verification, outbox."""

from __future__ import annotations

from typing import Any

from db import consumption, ids, receipts, verifications
from db.consumption import Consumed
from db.delivery_state import Outcome, State
from db.errors import TokenAlreadyUsed, TokenExpired
from db.phases import Status
from db.views import Verification
from tests.factories import Factory
from tests.support.api import token_of
from tests.support.courier import DATABASE_SETTINGS, request
from tests.support.races import Later, holding, together, wait_until_blocked

LOCK_ACCOUNT = "SELECT 1 FROM accounts FOR NO KEY UPDATE"
LOCK_DELIVERY = "SELECT 1 FROM email_outbox FOR UPDATE"


def create(make: Factory, **changes: Any) -> tuple[Verification, str]:
    wanted = request(**{"account_id": "a", **changes})
    made = verifications.create(make.database, make.key(), wanted, DATABASE_SETTINGS).verification
    return made, token_of(make.database, ids.public("ver", made.id))


def consume(make: Factory, token: str) -> Consumed | Exception:
    try:
        return consumption.consume(make.database, token)
    except (TokenAlreadyUsed, TokenExpired) as error:
        return error


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
    assert receipts.read(make.database, None, made.id).status is Status.CONSUMED


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
        assert receipts.read(make.database, None, newer.id).status is Status.REQUESTED


def test_consume_x_supersede_the_supersession_first(make: Factory, database_url: str) -> None:
    _, token = create(make)
    with holding(database_url, LOCK_DELIVERY):
        newer = Later(lambda: create(make))  # holds the account, waits for the delivery
        wait_until_blocked(database_url)
        late = Later(lambda: consume(make, token))
        wait_until_blocked(database_url, 2)
    newer.result()
    refused = late.result()
    assert isinstance(refused, TokenExpired)
    assert (refused.reason, refused.newer_exists) == ("superseded", True)


def test_consume_x_supersede_the_consumption_first(make: Factory, database_url: str) -> None:
    made, token = create(make)
    with holding(database_url, LOCK_DELIVERY):
        consumed = Later(lambda: consume(make, token))
        wait_until_blocked(database_url)
        late = Later(lambda: create(make, email="b@example.com"))
        wait_until_blocked(database_url, 2)
    assert isinstance(consumed.result(), Consumed)
    newer, _ = late.result()
    assert receipts.read(make.database, None, made.id).superseded_by is None
    assert newer.status is Status.REQUESTED


def test_consume_x_revoke_one_of_them_counts(make: Factory) -> None:
    for number in range(8):
        made, token = create(make, account_id=f"account-{number}")

        def call(which: int, token: str = token) -> Any:
            return consume(make, token) if which else _revoke(make, token)

        revoked, consumed = together(2, call)
        status = receipts.read(make.database, None, made.id).status
        assert (status is Status.CONSUMED) == isinstance(consumed, Consumed)
        assert (status is Status.CANCELLED) == (revoked == made.id)


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
    assert receipts.read(make.database, None, made.id).status is Status.REQUESTED


def test_consume_x_settle_the_result_that_comes_second_changes_nothing(
    make: Factory, database_url: str
) -> None:
    made, token = create(make)
    lease = make.claim(made.delivery_id)
    make.hand_over(lease)
    with holding(database_url, LOCK_DELIVERY):
        consumed = Later(lambda: consume(make, token))
        wait_until_blocked(database_url)
        settled = Later(lambda: make.settle(lease, Outcome.TRANSIENT, "mailbox_full"))
        wait_until_blocked(database_url, 2)
    assert isinstance(consumed.result(), Consumed)
    assert settled.result().stale
    assert make.row(made.delivery_id)["status"] == State.ACCEPTED


def test_consume_x_hand_over_a_token_used_between_claim_and_hand_over_is_not_mailed(make: Factory) -> None:
    made, token = create(make)
    lease = make.claim(made.delivery_id)
    result = consume(make, token)
    assert isinstance(result, Consumed)
    assert result.leaked
    assert make.hand_over(lease) is False
