"""`phase`, `retryable` and `retry_at`: the whole table."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from db import phases
from db.delivery_state import State
from db.phases import Phase, Status

EXPIRES = datetime(2026, 1, 1, tzinfo=UTC)
R, C, E, S, X = Status.REQUESTED, Status.CONSUMED, Status.EXPIRED, Status.SUPERSEDED, Status.CANCELLED

# verification, delivery -> phase, retryable (without a bounce)
TABLE = {
    (R, State.PENDING): (Phase.QUEUED, False),
    (R, State.SENDING): (Phase.LEASED, False),
    (R, State.UNKNOWN): (Phase.AWAITING_RECONCILIATION, False),
    (R, State.ACCEPTED): (Phase.DELIVERED, False),
    (R, State.FAILED): (Phase.FAILED, True),
    (R, State.EXPIRED): (Phase.EXPIRED, True),
    (R, State.CANCELLED): (Phase.CANCELLED, True),
    **{(C, state): (Phase.CONSUMED, False) for state in State},
    **{(E, state): (Phase.EXPIRED, True) for state in State},
    **{(S, state): (Phase.EXPIRED, False) for state in State},
    **{(X, state): (Phase.CANCELLED, True) for state in State},
}


def test_the_table_is_complete() -> None:
    assert set(TABLE) == set(product(Status, State))


@pytest.mark.parametrize(("status", "state"), list(TABLE))
def test_phase_and_retryable(status: Status, state: State) -> None:
    assert (phases.phase(status, state), phases.retryable(status, state, None)) == TABLE[status, state]


@pytest.mark.parametrize(
    ("event", "retryable"), [("bounced", True), ("complained", False), ("delivered", False)]
)
def test_a_bounce_makes_an_accepted_mail_retryable(event: str, retryable: bool) -> None:
    assert phases.retryable(R, State.ACCEPTED, event) is retryable
    assert phases.retryable(C, State.ACCEPTED, event) is False


@pytest.mark.parametrize(("status", "state"), list(TABLE))
def test_retry_at_is_set_exactly_while_waiting_helps(status: Status, state: State) -> None:
    waits = status is R and not TABLE[status, state][1]
    assert phases.retry_at(status, state, None, EXPIRES) == (EXPIRES if waits else None)


def test_only_moving_phases_are_worth_polling() -> None:
    moving = {TABLE[R, state][0] for state in (State.PENDING, State.SENDING, State.UNKNOWN, State.ACCEPTED)}
    assert moving == phases.MOVING
