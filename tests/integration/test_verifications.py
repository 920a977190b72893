"""Create, consume and revoke on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from db import clients, consumption, ids, receipts, tokens, verifications
from db.delivery_state import GateReason, Outcome, State
from db.errors import (
    AlreadyVerified,
    CommitUnknown,
    IdempotencyKeyConflict,
    TokenAlreadyUsed,
    TokenExpired,
    TokenInvalid,
)
from db.phases import Phase, Status
from db.session import Database
from db.verifications import Created
from db.views import Verification
from tests.factories import Factory
from tests.support.api import snapshot, token_of
from tests.support.courier import DATABASE_SETTINGS, request
from tests.support.lossy_proxy import LossyProxy


def create(make: Factory, **changes: Any) -> Created:
    return verifications.create(make.database, make.key(), request(**changes), DATABASE_SETTINGS)


def token(make: Factory, verification: Verification) -> str:
    return token_of(make.database, ids.public("ver", verification.id))


def account(make: Factory, external_id: str) -> dict[str, Any]:
    return make.one("SELECT email, activated_at FROM accounts WHERE external_id = %s", external_id)


def verification_row(make: Factory, verification: Verification) -> dict[str, Any]:
    return make.one("SELECT * FROM verifications WHERE id = %s", verification.id)


def expire(make: Factory, verification: Verification) -> None:
    """Let a verification's time run out."""
    make.execute(
        "UPDATE verifications SET created_at = created_at - interval '2 days', expires_at = clock_timestamp() WHERE id = %s",
        verification.id,
    )


def test_create_makes_one_verification_with_one_delivery_that_is_due(make: Factory) -> None:
    made = create(make, metadata={"plan": "a"}, locale="de", return_url="https://host.example/")
    assert not made.replayed
    assert made.verification == receipts.read(make.database, make.client(), made.verification.id)
    assert made.verification.phase is Phase.QUEUED
    row, delivery = verification_row(make, made.verification), make.row(made.verification.delivery_id)
    assert row["expires_at"] - row["created_at"] == timedelta(seconds=DATABASE_SETTINGS.token_ttl)
    assert delivery["next_attempt_at"] >= row["created_at"]
    assert delivery["send_before"] == row["created_at"] + timedelta(
        seconds=DATABASE_SETTINGS.delivery_deadline
    )
    assert (row["locale"], row["return_url"], row["metadata"]) == (
        "de",
        "https://host.example/",
        {"plan": "a"},
    )


def test_the_gate_closes_while_a_short_lived_token_has_its_minimum_left(make: Factory) -> None:
    made = create(make, lifetime=1000.0).verification
    assert make.row(made.delivery_id)["send_before"] == made.expires_at - timedelta(seconds=300)


def test_the_token_is_nowhere_in_the_database(make: Factory) -> None:
    made = create(make)
    used = token(make, made.verification)
    assert verification_row(make, made.verification)["token_hash"] == tokens.digest(used)
    everything = repr(snapshot(make.database))
    assert used not in everything
    assert tokens.grouped(used) not in everything


def test_the_same_key_and_body_answer_the_same_verification_as_it_stands(make: Factory) -> None:
    first = create(make, idempotency_key="k", account_id="a")
    consumption.consume(make.database, token(make, first.verification))
    again = create(make, idempotency_key="k", account_id="a", correlation_id="another")
    assert again.replayed
    assert again.verification.id == first.verification.id
    assert again.verification.phase is Phase.CONSUMED
    assert len(make.all("SELECT id FROM verifications")) == len(make.all("SELECT id FROM email_outbox")) == 1


def test_numbers_and_defaults_in_one_spelling_are_the_same_body(make: Factory) -> None:
    create(make, idempotency_key="k", account_id="a", metadata={"a": 1, "b": 2})
    assert create(make, idempotency_key="k", account_id="a", metadata={"b": 2, "a": 1}).replayed


@pytest.mark.parametrize(
    "change",
    [
        {"email": "eve@example.com", "email_canonical": "eve@example.com"},
        {"account_id": "other"},
        {"purpose": "email_change"},
        {"lifetime": 1000.0},
        {"locale": "de"},
        {"return_url": "https://host.example/"},
        {"metadata": {}},
    ],
)
def test_the_same_key_with_another_body_conflicts_and_changes_nothing(
    make: Factory, change: dict[str, Any]
) -> None:
    create(make, idempotency_key="k", account_id="a")
    before = [row for row in snapshot(make.database) if row["table"] != "accounts"]
    with pytest.raises(IdempotencyKeyConflict):
        create(make, **{"idempotency_key": "k", "account_id": "a", **change})
    assert [row for row in snapshot(make.database) if row["table"] != "accounts"] == before


def test_a_replay_survives_a_new_active_key_but_not_the_loss_of_the_old_one(make: Factory) -> None:
    wanted = request(idempotency_key="k")
    verifications.create(make.database, make.key(), wanted, DATABASE_SETTINGS)
    rotated = replace(
        DATABASE_SETTINGS, token_keys={"k2": b"2" * 32, **DATABASE_SETTINGS.token_keys}, active_token_key="k2"
    )
    assert verifications.create(make.database, make.key(), wanted, rotated).replayed
    lost = replace(rotated, token_keys={"k2": b"2" * 32})
    with pytest.raises(IdempotencyKeyConflict):
        verifications.create(make.database, make.key(), wanted, lost)


def test_the_fingerprint_is_keyed(make: Factory) -> None:
    made = create(make, idempotency_key="k", account_id="a")
    other = replace(DATABASE_SETTINGS, token_keys={"k1": b"9" * 32})
    with pytest.raises(IdempotencyKeyConflict):
        verifications.create(make.database, make.key(), request(idempotency_key="k", account_id="a"), other)
    assert len(verification_row(make, made.verification)["fingerprint"]) == 32


def test_another_client_may_use_the_same_key_and_account(make: Factory) -> None:
    first = create(make, idempotency_key="k", account_id="a")
    other = clients.create(make.database, "other").key
    second = verifications.create(
        make.database, other, request(idempotency_key="k", account_id="a"), DATABASE_SETTINGS
    )
    assert not second.replayed
    assert second.verification.id != first.verification.id
    assert first.verification.status is Status.REQUESTED


def test_a_new_request_supersedes_the_live_one_and_closes_its_gate(make: Factory) -> None:
    old = create(make, account_id="a").verification
    new = create(make, account_id="a").verification
    seen = receipts.read(make.database, make.client(), old.id)
    assert (seen.status, seen.superseded_by, seen.delivery_status) == (
        Status.SUPERSEDED,
        new.id,
        State.EXPIRED,
    )
    assert make.row(old.delivery_id)["gate_reason"] == GateReason.SUPERSEDED
    assert new.status is Status.REQUESTED


def test_superseding_closes_the_gate_of_a_leased_delivery_and_leaves_the_lease(make: Factory) -> None:
    old = create(make, account_id="a").verification
    lease = make.claim(old.delivery_id)
    create(make, account_id="a")
    assert make.row(old.delivery_id)["status"] == State.SENDING
    assert make.hand_over(lease) is False


def test_an_overdue_verification_expires_and_needs_no_write_on_its_delivery(make: Factory) -> None:
    old = create(make, account_id="a").verification
    expire(make, old)
    before = make.row(old.delivery_id)
    create(make, account_id="a")
    assert receipts.read(make.database, make.client(), old.id).status is Status.EXPIRED
    assert make.row(old.delivery_id) == before


def test_another_purpose_of_the_same_account_lives_beside_it(make: Factory) -> None:
    one = create(make, account_id="a").verification
    create(make, account_id="a", purpose="newsletter")
    assert receipts.read(make.database, make.client(), one.id).status is Status.REQUESTED


def test_signup_of_an_active_account_with_the_same_address_is_refused(make: Factory) -> None:
    made = create(make, account_id="a", email="Ada@example.com").verification
    consumption.consume(make.database, token(make, made))
    with pytest.raises(AlreadyVerified):
        create(make, account_id="a", email="ada@example.com")
    assert create(make, account_id="a", email="new@example.com")
    assert create(make, account_id="a", email="ada@example.com", purpose="email_change")


def test_consume_activates_the_account_in_the_same_transaction(make: Factory) -> None:
    made = create(make, account_id="a", return_url="https://host.example/x").verification
    consumed = consumption.consume(make.database, token(make, made))
    assert (consumed.verification_id, consumed.purpose) == (made.id, "signup")
    assert consumed.return_url == "https://host.example/x"
    assert account(make, "a") == {"email": "person@example.com", "activated_at": consumed.consumed_at}


def test_email_change_sets_the_address_and_does_not_activate(make: Factory) -> None:
    made = create(make, account_id="a", purpose="email_change").verification
    consumption.consume(make.database, token(make, made))
    assert account(make, "a") == {"email": "person@example.com", "activated_at": None}


def test_any_other_purpose_is_consumption_only(make: Factory) -> None:
    made = create(make, account_id="a", purpose="newsletter").verification
    consumption.consume(make.database, token(make, made))
    assert account(make, "a") == {"email": None, "activated_at": None}


def test_a_second_signup_keeps_the_first_activation(make: Factory) -> None:
    first = create(make, account_id="a").verification
    consumption.consume(make.database, token(make, first))
    before = account(make, "a")["activated_at"]
    second = create(make, account_id="a", email="new@example.com").verification
    consumption.consume(make.database, token(make, second))
    assert account(make, "a") == {"email": "new@example.com", "activated_at": before}


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.ACCEPTED, Outcome.TRANSIENT, None])
def test_using_the_token_of_a_mail_that_was_handed_over_is_evidence(
    make: Factory, outcome: Outcome | None
) -> None:
    made = create(make).verification
    lease = make.claim(made.delivery_id)
    assert make.hand_over(lease)
    if outcome is not None:
        make.settle(lease, outcome)
    consumed = consumption.consume(make.database, token(make, made))
    row = make.row(made.delivery_id)
    assert not consumed.leaked
    assert row["status"] == State.ACCEPTED
    assert row["evidence"] == ("response" if outcome is Outcome.ACCEPTED else "consumed")
    assert row["lease_owner"] is None


def test_using_a_token_that_never_left_closes_the_gate_and_says_so(make: Factory) -> None:
    made = create(make).verification
    assert consumption.consume(make.database, token(make, made)).leaked
    row = make.row(made.delivery_id)
    assert (row["status"], row["gate_reason"]) == (State.EXPIRED, GateReason.CONSUMED)


def _used(make: Factory) -> Verification:
    made = create(make, account_id="a").verification
    consumption.consume(make.database, token(make, made))
    return made


def _overdue(make: Factory) -> Verification:
    made = create(make, account_id="a").verification
    expire(make, made)
    return made


def _superseded(make: Factory) -> Verification:
    made = create(make, account_id="a").verification
    create(make, account_id="a")
    return made


def _superseded_by_an_expired_one(make: Factory) -> Verification:
    made = create(make, account_id="a").verification
    expire(make, create(make, account_id="a").verification)
    return made


def _revoked(make: Factory) -> Verification:
    made = create(make, account_id="a").verification
    consumption.revoke(make.database, token(make, made))
    return made


DEAD = [
    (_used, TokenAlreadyUsed, None, None),
    (_overdue, TokenExpired, "expired", False),
    (_superseded, TokenExpired, "superseded", True),
    (_superseded_by_an_expired_one, TokenExpired, "superseded", False),
    (_revoked, TokenExpired, "cancelled", False),
]


@pytest.mark.parametrize(("prepare", "error", "reason", "newer_exists"), DEAD)
def test_a_try_that_fails_says_why_and_changes_no_row(
    make: Factory, prepare: Any, error: type[Exception], reason: str | None, newer_exists: bool | None
) -> None:
    dead = token(make, prepare(make))
    before = snapshot(make.database)
    for _ in range(2):
        with pytest.raises(error) as refused:
            consumption.consume(make.database, dead)
        assert getattr(refused.value, "reason", None) == reason
        assert getattr(refused.value, "newer_exists", None) == newer_exists
    assert snapshot(make.database) == before


def test_an_unknown_token_is_invalid_for_everybody(make: Factory) -> None:
    create(make)
    before = snapshot(make.database)
    for call in (consumption.consume, consumption.revoke):
        with pytest.raises(TokenInvalid):
            call(make.database, "0" * 16)
    assert snapshot(make.database) == before


def test_revoking_cancels_the_verification_and_its_delivery_and_may_be_repeated(make: Factory) -> None:
    made = create(make).verification
    for _ in range(2):
        assert consumption.revoke(make.database, token(make, made)).verification_id == made.id
    seen = receipts.read(make.database, make.client(), made.id)
    assert (seen.status, seen.delivery_status) == (Status.CANCELLED, State.CANCELLED)
    assert make.row(made.delivery_id)["gate_reason"] == GateReason.CANCELLED


def test_revoking_after_the_mail_arrived_leaves_the_delivery_accepted(make: Factory) -> None:
    made = create(make).verification
    lease = make.claim(made.delivery_id)
    make.hand_over(lease)
    make.settle(lease, Outcome.ACCEPTED)
    consumption.revoke(make.database, token(make, made))
    assert receipts.read(make.database, make.client(), made.id).delivery_status is State.ACCEPTED


@pytest.mark.parametrize("prepare", [_used, _overdue, _superseded])
def test_a_stale_link_revokes_nothing(make: Factory, prepare: Any) -> None:
    dead = token(make, prepare(make))
    before = snapshot(make.database)
    with pytest.raises((TokenAlreadyUsed, TokenExpired)):
        consumption.revoke(make.database, dead)
    assert snapshot(make.database) == before


@pytest.fixture
def proxy(database_url: str) -> Iterator[LossyProxy]:
    with LossyProxy(database_url) as opened:
        yield opened


@pytest.fixture
def lossy(proxy: LossyProxy) -> Iterator[Database]:
    opened = Database(proxy.url, statement_timeout=4.0, size=2)
    yield opened
    opened.close()


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_to_create_is_told_and_the_same_key_repeats_it_safely(
    make: Factory, lossy: Database, proxy: LossyProxy, committed: bool
) -> None:
    wanted = request(idempotency_key="k")
    proxy.lose(committed=committed)
    with pytest.raises(CommitUnknown):
        verifications.create(lossy, make.key(), wanted, DATABASE_SETTINGS)
    assert verifications.create(lossy, make.key(), wanted, DATABASE_SETTINGS).replayed is committed
    assert len(make.all("SELECT id FROM email_outbox")) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_under_a_key_of_ours_is_settled_before_the_caller_is_answered(
    make: Factory, lossy: Database, proxy: LossyProxy, committed: bool
) -> None:
    proxy.lose(committed=committed)
    made = verifications.create(lossy, make.key(), request(key_is_ours=True), DATABASE_SETTINGS)
    assert not made.replayed
    assert [row["verification_id"] for row in make.all("SELECT verification_id FROM email_outbox")] == [
        made.verification.id
    ]


def test_a_lost_answer_to_consume_is_read_back(make: Factory, lossy: Database, proxy: LossyProxy) -> None:
    made = create(make).verification
    proxy.lose(committed=True)
    assert consumption.consume(lossy, token(make, made)).verification_id == made.id
    assert proxy.lost == 1


def test_a_consumption_that_was_not_committed_may_be_repeated(
    make: Factory, lossy: Database, proxy: LossyProxy
) -> None:
    made = create(make).verification
    proxy.lose(committed=False)
    with pytest.raises(CommitUnknown):
        consumption.consume(lossy, token(make, made))
    assert consumption.consume(lossy, token(make, made)).verification_id == made.id
