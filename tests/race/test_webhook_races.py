"""A provider's event against all but a settle: what it proves is on record once, and nothing undoes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from db import leases, provider_events
from db.consumption import Consumed
from db.delivery_state import Outcome, State
from db.provider_events import Event, Kind
from db.views import Verification
from tests.factories import SMTP, Factory, terms
from tests.support.acts import cancel, consume, create
from tests.support.races import BEFORE_THE_LAST_WRITE, in_the_middle, in_turn

LOCK_DELIVERY = "SELECT 1 FROM email_outbox FOR UPDATE"


def arrive(make: Factory, delivery_id: UUID, number: int = 1) -> bool:
    """The provider tells us that it delivered the mail."""
    event = Event(SMTP.name, f"evt_{number}", delivery_id, Kind.DELIVERED)
    return provider_events.record(make.database, event)


def ended(make: Factory, delivery_id: UUID) -> tuple[str, str | None, int]:
    """State, evidence and attempts counted."""
    row = make.row(delivery_id)
    return row["status"], row["evidence"], row["attempt_count"]


def test_webhook_x_webhook_two_events_of_one_mail_are_both_kept_and_one_moves_it(
    make: Factory, database_url: str
) -> None:
    delivery_id = make.unknown().delivery_id
    recorded = in_turn(
        database_url,
        BEFORE_THE_LAST_WRITE,
        lambda: arrive(make, delivery_id, 1),
        lambda: arrive(make, delivery_id, 2),
    )
    assert recorded == (True, True)
    moved = make.all("SELECT 1 FROM state_changes WHERE after = 'accepted'")
    assert len(moved) == 1


@pytest.mark.parametrize("event_first", [True, False])
def test_webhook_x_consume(make: Factory, database_url: str, event_first: bool) -> None:
    made, token = create(make)
    make.settle(handed_over(make, made), Outcome.UNKNOWN, "reply_timeout")
    recorded, consumed = either_way(
        database_url, event_first, lambda: arrive(make, made.delivery_id), lambda: consume(make, token)
    )
    assert recorded is True
    assert isinstance(consumed, Consumed)
    evidence = "webhook" if event_first else "consumed"
    assert ended(make, made.delivery_id) == (State.ACCEPTED, evidence, 1)


@pytest.mark.parametrize("event_first", [True, False])
def test_webhook_x_cancel(make: Factory, database_url: str, event_first: bool) -> None:
    """The mail had left; its link is dead all the same."""
    made, token = create(make)
    make.settle(handed_over(make, made), Outcome.UNKNOWN, "reply_timeout")
    recorded, cancelled = either_way(
        database_url, event_first, lambda: arrive(make, made.delivery_id), lambda: cancel(make, made)
    )
    assert recorded is True
    assert isinstance(cancelled, Verification)
    assert ended(make, made.delivery_id) == (State.ACCEPTED, "webhook", 1)
    assert not isinstance(consume(make, token), Consumed)


def test_webhook_x_reclaim_the_event_first(make: Factory, database_url: str) -> None:
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    with in_the_middle(database_url, lambda: arrive(make, lease.delivery_id)) as event:
        assert make.reclaim() == 0, "a sweep does not wait for a row in use"
    assert event.result() is True
    assert make.reclaim() == 0
    assert make.row(lease.delivery_id)["lost_count"] == 0


def test_webhook_x_reclaim_the_reclaim_first(make: Factory, database_url: str) -> None:
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    reclaimed, recorded = in_turn(
        database_url,
        BEFORE_THE_LAST_WRITE,
        make.reclaim,
        lambda: arrive(make, lease.delivery_id),
    )
    assert (reclaimed, recorded) == (1, True)
    row = make.row(lease.delivery_id)
    assert (row["status"], row["evidence"], row["lost_count"]) == (State.ACCEPTED, "webhook", 1)


def test_webhook_x_claim_the_event_first(make: Factory, database_url: str) -> None:
    """No replay of a mail whose arrival is just being recorded, nor of one whose arrival is."""
    delivery_id = make.unknown().delivery_id
    make.pass_time(delivery_id, seconds=1801)
    with in_the_middle(database_url, lambda: arrive(make, delivery_id)) as event:
        assert leases.claim(make.database, terms()) == []
    assert event.result() is True
    assert leases.claim(make.database, terms()) == []


@pytest.mark.parametrize("event_first", [True, False])
def test_webhook_x_hand_over_of_a_replay(make: Factory, database_url: str, event_first: bool) -> None:
    """The event keeps the second mail from leaving, or comes when it is on its way and accepts it."""
    delivery_id = make.unknown().delivery_id
    make.pass_time(delivery_id, seconds=1801)
    replay = make.claim(delivery_id)
    recorded, handed_over = either_way(
        database_url,
        event_first,
        lambda: arrive(make, delivery_id),
        lambda: make.hand_over(replay),
    )
    assert recorded is True
    assert handed_over is not event_first
    row = make.row(delivery_id)
    assert (row["status"], row["evidence"]) == (State.ACCEPTED, "webhook")
    assert row["replay_count"] == int(not event_first)


def handed_over(make: Factory, made: Verification) -> leases.Lease:
    lease = make.claim(made.delivery_id)
    assert make.hand_over(lease)
    return lease


def either_way(
    url: str,
    event_first: bool,
    event: Callable[[], bool],
    other: Callable[[], Any],
) -> tuple[bool, Any]:
    """Both in turn; the event's result stands first."""
    if event_first:
        return in_turn(url, LOCK_DELIVERY, event, other)
    others, events = in_turn(url, LOCK_DELIVERY, other, event)
    return events, others
