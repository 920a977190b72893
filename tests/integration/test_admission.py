"""Cooldown, hourly limits and backlog: what guards a mailbox is exact, and given back when no mail left."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from db import consumption, endings, ids, limits
from db.config import CreateLimits
from db.delivery_state import Outcome
from db.endings import CancelledBy
from db.errors import AlreadyVerified, ClientBacklog, InvalidKey, RateLimited, ResendCooldown
from db.limits import Bucket
from db.verifications import Created
from db.verifications import create as create_verification
from tests.factories import Factory
from tests.support.api import token_of
from tests.support.courier import DATABASE_SETTINGS, request

NONE = CreateLimits(cooldown=0, max_waiting=0, account=0, address=0, client=0, caller=0)


def create(make: Factory, key: str | None = None, *, limited: dict[str, Any], **changes: Any) -> Created:
    settings = replace(DATABASE_SETTINGS, limits=replace(NONE, **limited))
    wanted = request(**{"account_id": "a", **changes})
    return create_verification(make.database, key or make.key(), wanted, settings)


def age(make: Factory, verification_id: UUID, **interval: float) -> None:
    past = timedelta(**interval)
    make.execute("UPDATE verifications SET created_at = created_at - %s WHERE id = %s", past, verification_id)


def send(make: Factory, made: Created, outcome: Outcome) -> None:
    lease = make.claim(made.verification.delivery_id)
    assert make.hand_over(lease)
    make.settle(lease, outcome, None if outcome is Outcome.ACCEPTED else "smtp_answer")


def test_another_mail_within_the_cooldown_is_refused_and_names_the_live_one(make: Factory) -> None:
    first = create(make, limited={"cooldown": 60})
    with pytest.raises(ResendCooldown) as refused:
        create(make, limited={"cooldown": 60})
    assert refused.value.verification_id == first.verification.id
    assert 58 <= refused.value.retry_after <= 60


def test_after_the_cooldown_another_supersedes_the_first(make: Factory) -> None:
    first = create(make, limited={"cooldown": 60})
    age(make, first.verification.id, seconds=61)
    second = create(make, limited={"cooldown": 60})
    row = make.one("SELECT status, superseded_by FROM verifications WHERE id = %s", first.verification.id)
    assert row == {"status": "superseded", "superseded_by": second.verification.id}


def test_a_repeated_request_is_answered_within_the_cooldown_too(make: Factory) -> None:
    wanted = {"idempotency_key": "k"}
    first = create(make, limited={"cooldown": 60, "account": 1, "address": 1, "client": 1}, **wanted)
    again = create(make, limited={"cooldown": 60, "account": 1, "address": 1, "client": 1}, **wanted)
    assert again.replayed
    assert again.verification.id == first.verification.id


@pytest.mark.parametrize(
    "changes", [{"email": "p2@example.com"}, {"purpose": "email_change"}, {"account_id": "b"}]
)
def test_a_cooldown_is_of_one_account_purpose_and_address(make: Factory, changes: dict[str, str]) -> None:
    create(make, limited={"cooldown": 60})
    canonical = {"email_canonical": changes["email"]} if "email" in changes else {}
    assert not create(make, limited={"cooldown": 60}, **changes, **canonical).replayed


def test_a_cooldown_names_the_mail_whose_link_works(make: Factory) -> None:
    """Asked for one address, for another, and for the first again: its link is dead, and nobody should look for it."""
    other = {"email": "p2@example.com", "email_canonical": "p2@example.com"}
    first = create(make, limited={"cooldown": 60})
    send(make, first, Outcome.ACCEPTED)
    second = create(make, limited={"cooldown": 60}, **other)
    create(make, limited={"cooldown": 60}, purpose="newsletter", **other)
    with pytest.raises(ResendCooldown) as refused:
        create(make, limited={"cooldown": 60})
    assert refused.value.verification_id == second.verification.id
    age(make, first.verification.id, seconds=61)
    assert not create(make, limited={"cooldown": 60}).replayed, "the other address has a cooldown of its own"


@pytest.mark.parametrize("how", ["refused", "cancelled before it left", "expired before it left"])
def test_a_mail_that_certainly_never_left_starts_no_cooldown_and_uses_up_no_limit(
    make: Factory, how: str
) -> None:
    limited = {"cooldown": 60, "account": 1, "address": 1}
    first = create(make, limited=limited)
    if how == "refused":
        send(make, first, Outcome.PERMANENT)
    elif how == "cancelled before it left":
        endings.cancel(make.database, make.client(), first.verification.id, by=CancelledBy.CLIENT)
    else:
        make.execute(
            "UPDATE email_outbox SET status = 'expired', next_attempt_at = NULL, completed_at = now()"
        )
    assert not create(make, limited=limited).replayed


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.UNKNOWN, Outcome.TRANSIENT, None])
def test_a_mail_that_left_may_have_left_or_will_leave_counts(make: Factory, outcome: Outcome | None) -> None:
    first = create(make, limited={"cooldown": 60})
    if outcome is not None:
        send(make, first, outcome)
    with pytest.raises(ResendCooldown):
        create(make, limited={"cooldown": 60})
    with pytest.raises(RateLimited):
        create(make, limited={"account": 1})


def test_a_mail_that_was_cancelled_after_it_left_still_counts(make: Factory) -> None:
    first = create(make, limited={"cooldown": 60})
    send(make, first, Outcome.ACCEPTED)
    endings.cancel(make.database, make.client(), first.verification.id, by=CancelledBy.CLIENT)
    with pytest.raises(ResendCooldown) as refused:
        create(make, limited={"cooldown": 60})
    assert refused.value.verification_id == first.verification.id


def test_an_hours_mails_for_an_account_are_counted_whatever_their_address(make: Factory) -> None:
    for number in range(3):
        create(make, limited={"account": 3}, email_canonical=f"p{number}@example.com", purpose=f"p{number}")
    with pytest.raises(RateLimited) as refused:
        create(make, limited={"account": 3}, email_canonical="p9@example.com", purpose="p9")
    assert refused.value.limit == "create_by_account"
    assert 3595 <= refused.value.retry_after <= 3600


def test_an_hours_mails_to_a_mailbox_are_counted_whatever_their_account(make: Factory) -> None:
    for number in range(3):
        create(make, limited={"address": 3}, account_id=f"a{number}")
    with pytest.raises(RateLimited) as refused:
        create(make, limited={"address": 3}, account_id="a9")
    assert refused.value.limit == "create_by_address"
    assert not create(make, limited={"address": 3}, email_canonical="other@example.com").replayed


def test_there_is_room_again_when_the_oldest_mail_is_an_hour_old(make: Factory) -> None:
    first = create(make, limited={"account": 2}, purpose="one")
    create(make, limited={"account": 2}, purpose="two")
    age(make, first.verification.id, minutes=59, seconds=50)
    with pytest.raises(RateLimited) as refused:
        create(make, limited={"account": 2}, purpose="three")
    assert 5 <= refused.value.retry_after <= 10
    age(make, first.verification.id, seconds=11)
    assert not create(make, limited={"account": 2}, purpose="three").replayed


def test_the_limits_of_one_client_are_not_anothers(make: Factory) -> None:
    from db import clients

    other = clients.create(make.database, "other").key
    limited = {"cooldown": 60, "account": 1, "address": 1, "client": 1, "max_waiting": 1}
    create(make, limited=limited)
    assert not create(make, other, limited=limited).replayed


def test_a_client_with_too_much_unfinished_waits(make: Factory) -> None:
    first = create(make, limited={"max_waiting": 2}, account_id="a1")
    create(make, limited={"max_waiting": 2}, account_id="a2")
    with pytest.raises(ClientBacklog):
        create(make, limited={"max_waiting": 2}, account_id="a3")
    send(make, first, Outcome.ACCEPTED)
    assert not create(make, limited={"max_waiting": 2}, account_id="a3").replayed


@pytest.mark.parametrize("whose", ["client", "caller"])
def test_a_clients_or_callers_hour_leaks_and_refuses_what_does_not_fit(make: Factory, whose: str) -> None:
    for number in range(3):
        create(make, limited={whose: 3}, account_id=f"a{number}")
    before = make.one(
        "SELECT (SELECT count(*) FROM verifications) AS v, (SELECT count(*) FROM accounts) AS a"
    )
    with pytest.raises(RateLimited) as refused:
        create(make, limited={whose: 3}, account_id="a9")
    assert refused.value.limit == f"create_by_{whose}"
    assert 1190 <= refused.value.retry_after <= 1200
    assert before == make.one(
        "SELECT (SELECT count(*) FROM verifications) AS v, (SELECT count(*) FROM accounts) AS a"
    )
    make.execute("UPDATE rate_limits SET at = at - interval '1200 seconds'")
    assert not create(make, limited={whose: 3}, account_id="a9").replayed


def test_a_clock_that_went_back_refuses_nobody_for_longer(make: Factory) -> None:
    bucket = Bucket("test", b"x", 1)
    limits.record(make.database, bucket)
    make.execute("UPDATE rate_limits SET at = at + interval '1 day'")
    with pytest.raises(RateLimited) as refused:
        limits.refuse_if_full(make.database, bucket)
    assert refused.value.retry_after <= 3600


def test_a_refused_request_changes_no_row(make: Factory) -> None:
    from tests.support.api import snapshot

    limited = {"cooldown": 60}
    create(make, limited=limited)
    before = snapshot(make.database)
    with pytest.raises(ResendCooldown):
        create(make, limited=limited)
    assert snapshot(make.database) == before


def test_an_active_account_is_told_so_before_any_limit(make: Factory) -> None:
    limited = {"cooldown": 60, "account": 1, "max_waiting": 1}
    made = create(make, limited=limited)
    token = token_of(make.database, ids.public("ver", made.verification.id))
    consumption.consume(make.database, token)
    with pytest.raises(AlreadyVerified):
        create(make, limited=limited)


def test_empty_buckets_are_forgotten(make: Factory) -> None:
    limits.record(make.database, Bucket("test", b"x", 10))
    assert limits.prune(make.database, limit=100) == 0
    make.execute("UPDATE rate_limits SET empty_at = now() - interval '1 second'")
    assert limits.prune(make.database, limit=100) == 1


def test_a_wrong_key_leaves_no_trace(make: Factory) -> None:
    with pytest.raises(InvalidKey):
        create(make, "cs_live_aaaaaaaaaa_" + "a" * 32, limited={})
    assert make.all("SELECT * FROM accounts") == []
