"""A worker's result against everything else that speaks of the same mail: events, people, sweeps. Both orders, each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from db import consumption, ids, leases, overdue, provider_events
from db.delivery_state import Outcome, State
from db.leases import Lease, Settled
from db.overdue import UnknownTerms
from db.provider_events import Event, Kind
from tests.factories import DIGEST, SENDER, SMTP, Factory, policy, terms
from tests.support.api import token_of
from tests.support.cluster import wait_for
from tests.support.courier import create
from tests.support.races import BEFORE_THE_LAST_WRITE, in_the_middle, in_turn, together

LOCK_DELIVERY = "SELECT 1 FROM email_outbox FOR UPDATE"
CODES = {
    Outcome.ACCEPTED: None,
    Outcome.UNKNOWN: "reply_timeout",
    Outcome.TRANSIENT: "mailbox_full",
    Outcome.PERMANENT: "mailbox_unavailable",
    Outcome.NOT_SENT: "shutting_down",
}
each_outcome = pytest.mark.parametrize("outcome", CODES)


def settle(make: Factory, lease: Lease, outcome: Outcome) -> Settled:
    return make.settle(lease, outcome, CODES[outcome])


def event(make: Factory, lease: Lease, event_id: str = "e1") -> bool:
    said = Event(SMTP.name, event_id, lease.delivery_id, Kind.DELIVERED)
    return provider_events.record(make.database, said)


def reclaim(make: Factory) -> int:
    return overdue.reclaim_lost(make.database, policy(), lease_seconds=90)


def end_unknown(make: Factory) -> int:
    unknown = UnknownTerms("live", [SMTP], SENDER, unknown_budget=3)
    return overdue.end_overdue_unknown(make.database, policy(), unknown).moved


def ends(make: Factory, lease: Lease) -> tuple[str, str | None]:
    row = make.row(lease.delivery_id)
    return row["status"], row["evidence"]


def outcomes(make: Factory, lease: Lease) -> list[tuple[str, bool]]:
    return [(attempt["outcome"], attempt["stale"]) for attempt in make.attempts(lease.delivery_id)]


@each_outcome
def test_webhook_x_settle_the_event_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    """What the provider said stands; the worker's own result is kept beside it and moves nothing."""
    lease = make.handed_over()
    recorded, settled = in_turn(
        database_url, LOCK_DELIVERY, lambda: event(make, lease), lambda: settle(make, lease, outcome)
    )
    assert (recorded, settled) == (True, Settled(State.ACCEPTED, stale=True))
    assert ends(make, lease) == ("accepted", "webhook")
    assert outcomes(make, lease) == [(outcome, True)]
    assert make.row(lease.delivery_id)["attempt_count"] == 0


@each_outcome
def test_webhook_x_settle_the_settle_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    """Whatever the worker thought, the provider had the mail."""
    lease = make.handed_over()
    settled, recorded = in_turn(
        database_url, LOCK_DELIVERY, lambda: settle(make, lease, outcome), lambda: event(make, lease)
    )
    assert (settled.stale, recorded) == (False, True)
    assert ends(make, lease) == ("accepted", "response" if outcome is Outcome.ACCEPTED else "webhook")
    assert outcomes(make, lease) == [(outcome, False)]


def mailed(make: Factory) -> tuple[Lease, str]:
    made = create(make.database, make.key())
    lease = make.claim(made.delivery_id)
    assert make.hand_over(lease)
    return lease, token_of(make.database, ids.public("ver", made.id))


@each_outcome
def test_consume_x_settle_the_consumption_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    lease, token = mailed(make)
    consumed, settled = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: consumption.consume(make.database, token),
        lambda: settle(make, lease, outcome),
    )
    assert (consumed.leaked, settled) == (False, Settled(State.ACCEPTED, stale=True))
    assert ends(make, lease) == ("accepted", "consumed")
    assert outcomes(make, lease) == [(outcome, True)]


@each_outcome
def test_consume_x_settle_the_settle_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    """A token that was used had arrived, even if the server is said to have refused its mail."""
    lease, token = mailed(make)
    settled, consumed = in_turn(
        database_url,
        LOCK_DELIVERY,
        lambda: settle(make, lease, outcome),
        lambda: consumption.consume(make.database, token),
    )
    assert (settled.stale, consumed.leaked) == (False, False)
    assert ends(make, lease) == ("accepted", "response" if outcome is Outcome.ACCEPTED else "consumed")
    assert make.one("SELECT activated_at FROM accounts")["activated_at"] is not None


def test_consume_x_settle_x_webhook_nobody_waits_in_a_circle(make: Factory) -> None:
    for _ in range(6):
        lease, token = mailed(make)
        calls: list[Callable[[], Any]] = [
            lambda token=token: consumption.consume(make.database, token),  # type: ignore[misc]
            lambda lease=lease: settle(make, lease, Outcome.UNKNOWN),  # type: ignore[misc]
            lambda lease=lease: event(make, lease, lease.delivery_id.hex),  # type: ignore[misc]
            lambda: reclaim(make),
        ]
        together(len(calls), lambda number, calls=calls: calls[number]())  # type: ignore[misc]
        assert ends(make, lease)[0] == "accepted"


# Of a result that comes once the lease was taken back, by what it says: only acceptance moves the row.
AFTER_RECLAIM = {
    Outcome.ACCEPTED: ("accepted", "response"),
    Outcome.UNKNOWN: ("unknown", None),
    Outcome.TRANSIENT: ("unknown", None),
    Outcome.PERMANENT: ("unknown", None),
    Outcome.NOT_SENT: ("unknown", None),
}


@each_outcome
def test_sweep_x_settle_the_sweep_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    """The worker waits while the sweep takes its lease back: it has to see that it lost it."""
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    swept, late = in_turn(
        database_url, BEFORE_THE_LAST_WRITE, lambda: reclaim(make), lambda: settle(make, lease, outcome)
    )
    assert (swept, late.stale) == (1, True)
    assert ends(make, lease) == AFTER_RECLAIM[outcome]
    assert outcomes(make, lease) == [(outcome, True)]
    assert make.row(lease.delivery_id)["lost_count"] == 1


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.UNKNOWN, Outcome.TRANSIENT])
def test_sweep_x_settle_the_settle_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    """The lease ends while its holder writes the result: the sweep passes over the row and finds nothing to do later."""
    lease = make.leased()
    assert leases.hand_over(make.database, lease, DIGEST, key=None, lease_seconds=1.0, release=None)
    with in_the_middle(database_url, lambda: settle(make, lease, outcome)) as settled:
        is_over = "SELECT 1 FROM email_outbox WHERE lease_until < clock_timestamp()"
        wait_for(lambda: make.all(is_over), "the lease's end")
        assert reclaim(make) == 0
    assert not settled.result().stale
    assert reclaim(make) == 0
    assert outcomes(make, lease) == [(outcome, False)]
    assert make.row(lease.delivery_id)["lost_count"] == 0


# The evidence window is over, and the sweep gives up; or the answer comes just before.
@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.TRANSIENT])
def test_the_last_sweep_x_settle_the_sweep_first(make: Factory, database_url: str, outcome: Outcome) -> None:
    lease = unresolved(make)
    swept, late = in_turn(
        database_url, BEFORE_THE_LAST_WRITE, lambda: end_unknown(make), lambda: settle(make, lease, outcome)
    )
    assert (swept, late.stale) == (1, True)
    accepted = outcome is Outcome.ACCEPTED
    assert ends(make, lease) == (("accepted", "response") if accepted else ("failed", None))


def test_the_last_sweep_x_settle_the_settle_first(make: Factory, database_url: str) -> None:
    lease = unresolved(make)
    with in_the_middle(database_url, lambda: settle(make, lease, Outcome.ACCEPTED)) as late:
        assert end_unknown(make) == 0, "a sweep does not wait for a row in use"
    assert late.result().state is State.ACCEPTED
    assert end_unknown(make) == 0
    assert ends(make, lease) == ("accepted", "response")


def test_the_last_sweep_x_webhook_the_sweep_first(make: Factory, database_url: str) -> None:
    """Somebody was alerted for nothing; evidence wins all the same."""
    lease = unresolved(make)
    swept, recorded = in_turn(
        database_url, BEFORE_THE_LAST_WRITE, lambda: end_unknown(make), lambda: event(make, lease)
    )
    assert (swept, recorded) == (1, True)
    assert ends(make, lease) == ("accepted", "webhook")


def test_the_last_sweep_x_webhook_the_event_first(make: Factory, database_url: str) -> None:
    lease = unresolved(make)
    with in_the_middle(database_url, lambda: event(make, lease)) as recorded:
        assert end_unknown(make) == 0
    assert recorded.result()
    assert end_unknown(make) == 0
    assert ends(make, lease) == ("accepted", "webhook")


def unresolved(make: Factory) -> Lease:
    """Nothing but evidence can resolve it any more: it was replayed, and that was not answered either. The replay's lease."""
    delivery_id = due_unknown(make).delivery_id
    replay = make.claim(delivery_id)
    assert make.hand_over(replay)
    settle(make, replay, Outcome.UNKNOWN)
    make.pass_time(delivery_id, seconds=1801)
    return replay


def due_unknown(make: Factory) -> Lease:
    """An unanswered hand-over whose evidence window is over. Its lease."""
    lease = make.unknown()
    make.pass_time(lease.delivery_id, seconds=1801)
    return lease


def test_claim_x_claim_a_replay_has_one_owner(make: Factory) -> None:
    lease = due_unknown(make)
    claimed = together(12, lambda n: leases.claim(make.database, terms(owner=f"host:{n}:0")))
    assert [won.action for batch in claimed for won in batch] == ["replay"]
    assert make.row(lease.delivery_id)["lease_token"] == lease.token + 1
