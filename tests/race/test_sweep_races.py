"""Sweeps against workers and each other: a sweep waits for nobody, and what it took back is nobody else's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from db import leases, overdue
from db.delivery_state import GateReason, Outcome, State
from db.overdue import UnknownTerms
from tests.factories import SENDER, SMTP, Factory, policy, terms
from tests.support.races import (
    BEFORE_THE_LAST_WRITE,
    Later,
    holding,
    in_the_middle,
    in_turn,
    together,
    wait_until_blocked,
)

UNKNOWN_TERMS = UnknownTerms("live", [SMTP], SENDER, unknown_budget=3)


def overdue_lease(make: Factory) -> leases.Lease:
    """Handed over, and its lease has ended."""
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    return lease


# What the sweep makes of a row whose worker said this too late, but before the sweep.
AFTER_A_LATE_SETTLE = {
    Outcome.ACCEPTED: (State.ACCEPTED, 0),
    Outcome.UNKNOWN: (State.UNKNOWN, 1),
    Outcome.TRANSIENT: (State.PENDING, 1),
    Outcome.PERMANENT: (State.PENDING, 1),
    Outcome.REFUSED_US: (State.PENDING, 1),
    Outcome.NOT_SENT: (State.PENDING, 0),  # allowed to the holder: it undoes nothing
}


@pytest.mark.parametrize("outcome", AFTER_A_LATE_SETTLE)
def test_reclaim_x_settle_the_settle_holds_the_row(
    make: Factory, database_url: str, outcome: Outcome
) -> None:
    lease = overdue_lease(make)
    with holding(database_url, "SELECT 1 FROM delivery_attempts FOR UPDATE"):
        settled = Later(lambda: make.settle(lease, outcome, "a_code"))
        wait_until_blocked(database_url)
        assert make.reclaim() == 0, "a sweep does not wait for a row in use"
    settled.result()
    state, lost = AFTER_A_LATE_SETTLE[outcome]
    assert make.reclaim() == lost
    row = make.row(lease.delivery_id)
    assert (row["status"], row["lost_count"], row["attempt_count"]) == (state, lost, 0)
    (attempt,) = make.attempts(lease.delivery_id)
    assert attempt["outcome"] == outcome, "a loss overwrites no result"


def test_reclaim_x_hand_over_the_reclaim_first(make: Factory, database_url: str) -> None:
    lease = make.leased()
    make.pass_time(lease.delivery_id, seconds=91)
    reclaimed, handed_over = in_turn(
        database_url, BEFORE_THE_LAST_WRITE, make.reclaim, lambda: make.hand_over(lease)
    )
    assert (reclaimed, handed_over) == (1, False)
    (attempt,) = make.attempts(lease.delivery_id)
    assert (attempt["outcome"], attempt["handed_over_at"]) == ("lost", None)


def test_reclaim_x_claim_a_row_that_is_being_taken_back_is_not_leased_meanwhile(
    make: Factory, database_url: str
) -> None:
    lease = overdue_lease(make)
    with in_the_middle(database_url, make.reclaim) as sweep:
        assert leases.claim(make.database, terms()) == []
    assert sweep.result() == 1
    assert leases.claim(make.database, terms()) == [], "it waits for evidence first"
    assert make.row(lease.delivery_id)["status"] == State.UNKNOWN


def test_reclaim_x_reclaim_the_second_takes_what_the_first_does_not_hold(
    make: Factory, database_url: str
) -> None:
    first, second = overdue_lease(make), overdue_lease(make)
    with in_the_middle(database_url, lambda: reclaim_one(make)) as sweep:
        assert lost(make) == {first.delivery_id: 0, second.delivery_id: 0}
        later = Later(make.reclaim)
        wait_until_blocked(database_url, 2)  # at the last write, like the first: it holds the other row
    assert (sweep.result(), later.result()) == (1, 1)
    assert lost(make) == {first.delivery_id: 1, second.delivery_id: 1}


def reclaim_one(make: Factory) -> int:
    return overdue.reclaim_lost(make.database, policy(), lease_seconds=90, limit=1)


def lost(make: Factory) -> dict[object, int]:
    return {row["id"]: row["lost_count"] for row in make.all("SELECT id, lost_count FROM email_outbox")}


def test_sweep_x_sweep_six_at_once_move_each_row_once(make: Factory) -> None:
    """Sweeps may run at the same time, past their slots: a slot that a frozen worker took is swept again."""
    for _ in range(12):
        overdue_lease(make)
        waiting = make.waiting(send_before=10)
        make.pass_time(waiting.delivery_id, seconds=11)
        unknown = make.unknown()
        make.close_gate(unknown.delivery_id, GateReason.SUPERSEDED)
        make.pass_time(unknown.delivery_id, seconds=1801)
    moved = [sum(counts) for counts in zip(*together(6, lambda _: sweep(make)), strict=True)]
    assert moved == [12, 12, 12]
    rows = make.all("SELECT status, lost_count, failure_code FROM email_outbox")
    assert Counter((row["status"], row["lost_count"], row["failure_code"]) for row in rows) == {
        ("unknown", 1, None): 12,
        ("expired", 0, None): 12,
        ("failed", 0, "outcome_unresolved"): 12,
    }
    doubled = make.all("SELECT 1 FROM state_changes GROUP BY delivery_id, before, after HAVING count(*) > 1")
    assert doubled == []


def sweep(make: Factory) -> list[int]:
    """What time alone brings about, as a sweep does it: in batches, until there is no more."""
    database = make.database
    steps: list[Callable[[], int]] = [
        lambda: overdue.reclaim_lost(database, policy(), lease_seconds=90, limit=5),
        lambda: overdue.end_overdue_pending(database, {"live": [SMTP.name]}, SENDER, limit=5),
        lambda: overdue.end_overdue_unknown(database, policy(), UNKNOWN_TERMS, limit=5).moved,
    ]
    return [_until_none(step) for step in steps]


def _until_none(batch: Callable[[], int]) -> int:
    total = 0
    while moved := batch():
        total += moved
    return total
