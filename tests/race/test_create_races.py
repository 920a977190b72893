"""Create against create: one request key, one verification, one delivery (G1), and never a deadlock."""

from __future__ import annotations

import pytest

from db import verifications
from db.delivery_state import GateReason, State
from db.errors import CountersignError, IdempotencyKeyConflict
from db.session import Database
from db.verifications import Created
from tests.factories import Factory
from tests.support.courier import DATABASE_SETTINGS, request
from tests.support.races import Later, holding, together, wait_until_blocked

COUNT = "SELECT (SELECT count(*) FROM verifications) AS v, (SELECT count(*) FROM email_outbox) AS o"
LOCK_ACCOUNT = "SELECT 1 FROM accounts WHERE external_id = %s FOR NO KEY UPDATE"
LOCK_REQUESTED = "SELECT 1 FROM verifications WHERE status = 'requested' FOR UPDATE"


def create(make: Factory, key: str, account_id: str = "a", **changes: object) -> Created:
    wanted = request(idempotency_key=key, account_id=account_id, **changes)
    return verifications.create(make.database, make.key(), wanted, DATABASE_SETTINGS)


def outcome(make: Factory, key: str, account_id: str) -> Created | IdempotencyKeyConflict:
    try:
        return create(make, key, account_id)
    except IdempotencyKeyConflict as conflict:
        return conflict


@pytest.mark.parametrize("account_exists", [False, True])
def test_create_x_create_same_key_64_at_once_make_one(
    database_url: str, make: Factory, account_exists: bool
) -> None:
    make.client()
    if account_exists:
        create(make, "before", purpose="other")
    pool = Database(database_url, statement_timeout=10.0, size=64)
    wanted = request(idempotency_key="k", account_id="a")
    made = together(64, lambda _: verifications.create(pool, make.key(), wanted, DATABASE_SETTINGS))
    pool.close()
    assert len({created.verification.id for created in made}) == 1
    assert sorted(created.replayed for created in made) == [False] + [True] * 63
    expected = 2 if account_exists else 1
    assert make.one(COUNT) == {"v": expected, "o": expected}


@pytest.mark.parametrize("waiting", ["the account's lock", "the account's insert"])
def test_create_x_create_same_key_the_second_waits_and_replays(
    make: Factory, database_url: str, waiting: str
) -> None:
    client_id = make.client()
    if waiting == "the account's lock":
        create(make, "before", purpose="other")
        statement, parameters = LOCK_ACCOUNT, ["a"]
    else:
        statement = "INSERT INTO accounts (id, client_id, external_id) VALUES (gen_random_uuid(), %s, 'a')"
        parameters = [str(client_id)]
    with holding(database_url, statement, *parameters):
        calls = [Later(lambda: create(make, "k")) for _ in range(2)]
        wait_until_blocked(database_url, 2)
    first, second = (call.result() for call in calls)
    assert first.verification.id == second.verification.id
    assert {first.replayed, second.replayed} == {True, False}


def test_create_x_create_one_key_for_two_accounts_one_wins_and_the_other_conflicts(make: Factory) -> None:
    make.client()
    for number in range(8):
        results = together(2, lambda n, number=number: outcome(make, f"k{number}", f"account-{n}"))  # type: ignore[misc]
        kinds = sorted(type(result).__name__ for result in results)
        assert kinds == ["Created", "IdempotencyKeyConflict"]


def test_create_x_create_one_key_for_two_accounts_the_violation_becomes_a_conflict(
    make: Factory, database_url: str
) -> None:
    """The other account's row is inserted but not committed when this one looks, and committed when it inserts."""
    create(make, "other", account_id="b")
    take_the_key = "UPDATE verifications SET idempotency_key = 'k' WHERE idempotency_key = 'other'"
    with holding(database_url, take_the_key):
        late = Later(lambda: outcome(make, "k", "a"))
        wait_until_blocked(database_url)
    assert isinstance(late.result(), IdempotencyKeyConflict)
    assert make.one(COUNT) == {"v": 1, "o": 1}


def test_create_x_create_one_key_for_two_accounts_the_other_gives_up(
    make: Factory, database_url: str
) -> None:
    create(make, "other", account_id="b")
    with holding(database_url, "UPDATE verifications SET idempotency_key = 'k'") as connection:
        late = Later(lambda: outcome(make, "k", "a"))
        wait_until_blocked(database_url)
        connection.rollback()
    result = late.result()
    assert isinstance(result, Created)
    assert not result.replayed


def test_create_x_create_other_keys_of_one_account_leave_one_requested(make: Factory) -> None:
    make.client()
    together(16, lambda n: create(make, f"k{n}"))
    rows = make.all(
        "SELECT v.status, o.gate_reason FROM verifications v JOIN email_outbox o ON o.verification_id = v.id"
    )
    assert len(rows) == 16
    assert [row["gate_reason"] for row in rows if row["status"] == "requested"] == [None]
    assert {row["gate_reason"] for row in rows if row["status"] == "superseded"} == {GateReason.SUPERSEDED}


def test_create_x_claim_superseding_waits_for_a_held_delivery_and_closes_its_gate(
    make: Factory, database_url: str
) -> None:
    old = create(make, "k1").verification
    with holding(database_url, "SELECT 1 FROM email_outbox WHERE id = %s FOR UPDATE", old.delivery_id):
        late = Later(lambda: create(make, "k2"))
        wait_until_blocked(database_url)
    assert not late.result().replayed
    assert make.row(old.delivery_id)["status"] == State.EXPIRED


def test_create_x_sweep_the_requested_one_expires_while_it_is_waited_for(
    make: Factory, database_url: str
) -> None:
    old = create(make, "k1").verification
    with holding(database_url, LOCK_REQUESTED) as connection:
        late = Later(lambda: create(make, "k2"))
        wait_until_blocked(database_url)
        connection.execute("UPDATE verifications SET status = 'expired' WHERE id = %s", [old.id])
    assert not late.result().replayed
    assert make.one("SELECT status, superseded_by FROM verifications WHERE id = %s", old.id) == {
        "status": "expired",
        "superseded_by": None,
    }


def test_create_x_create_many_keys_and_accounts_at_random_never_deadlock(make: Factory) -> None:
    make.client()

    def call(number: int) -> str:
        try:
            return create(make, f"k{number % 5}", f"account-{number % 3}").verification.status
        except CountersignError as error:
            return type(error).__name__

    results = {result for _ in range(4) for result in together(24, call)}
    assert results <= {"requested", "superseded", "IdempotencyKeyConflict"}
