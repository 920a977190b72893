"""Decisions over frozen facts: every event from every state, and the rules that keep hand-overs from being forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from db import delivery_rules as rules
from db.delivery_rules import Attempt, AttemptResult, Delivery, Facts
from db.delivery_state import CLOSING_OUTCOMES, TRANSITIONS, Event, GateReason, Outcome, State, may_move
from tests.factories import KEYED, SMTP, policy

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SETTLE_EVENTS = {
    Outcome.ACCEPTED: Event.SETTLE_ACCEPTED,
    Outcome.TRANSIENT: Event.SETTLE_TRANSIENT,
    Outcome.PERMANENT: Event.SETTLE_PERMANENT,
    Outcome.UNKNOWN: Event.SETTLE_UNKNOWN,
    Outcome.REFUSED_US: Event.SETTLE_REFUSED_US,
    Outcome.NOT_SENT: Event.SETTLE_NOT_SENT,
}


def facts(status: State = State.SENDING, *attempts: Attempt, **columns: Any) -> Facts:
    values: dict[str, Any] = {
        "id": UUID(int=1),
        "verification_id": UUID(int=2),
        "status": status,
        "lease_owner": "host:1:0",
        "lease_until": NOW + timedelta(seconds=90),
        "lease_token": 3,
        "attempt_count": 0,
        "lost_count": 0,
        "replay_count": 0,
        "send_before": NOW + timedelta(hours=1),
        "gate_reason": None,
        "open_provider": None,
        **columns,
    }
    return Facts(Delivery(**values), attempts, NOW)


def handed_over(token: int, outcome: Outcome | None = None, ago: float = 1.0) -> Attempt:
    return Attempt(token, SMTP.name, NOW - timedelta(seconds=ago), outcome)


OWN = handed_over(3)
LEAVING_THE_DEAD = {Event.EVIDENCE: State.ACCEPTED, Event.OPERATOR_RETRY: State.PENDING}
EARLIER_OPEN = handed_over(1, Outcome.UNKNOWN, ago=600)
GATES = [
    {},
    {"send_before": NOW},
    *({"send_before": EPOCH, "gate_reason": reason} for reason in GateReason),
]


@pytest.mark.parametrize("outcome", SETTLE_EVENTS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("earlier", [(), (EARLIER_OPEN,)])
@pytest.mark.parametrize("attempt_count", [0, 5])
def test_every_settle_leads_where_the_table_allows(
    outcome: Outcome, gate: dict[str, Any], earlier: tuple[Attempt, ...], attempt_count: int
) -> None:
    before = facts(State.SENDING, *earlier, OWN, attempt_count=attempt_count, **gate)
    move = rules.settle(before, 3, AttemptResult(outcome), policy())
    assert may_move(State.SENDING, SETTLE_EVENTS[outcome], move.to)
    if earlier and outcome is not Outcome.ACCEPTED:
        assert move.to is State.UNKNOWN, "an open hand-over is sticky"
    if move.to is State.PENDING:
        assert not gate


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("attempts", [(), (OWN,), (EARLIER_OPEN,)])
@pytest.mark.parametrize("lost_count", [0, 5])
def test_every_reclaim_leads_where_the_table_allows(
    gate: dict[str, Any], attempts: tuple[Attempt, ...], lost_count: int
) -> None:
    move = rules.reclaim(facts(State.SENDING, *attempts, lost_count=lost_count, **gate), policy())
    assert may_move(State.SENDING, Event.RECLAIM, move.to)
    assert move.losses == 1
    if lost_count == 5:
        assert (move.to, move.failure_code) == (State.FAILED, "lease_lost")
    elif attempts:
        assert move.to is State.UNKNOWN


@pytest.mark.parametrize(("status", "reason"), list(product(State, GateReason)))
def test_closing_a_gate_ends_only_what_waits(status: State, reason: GateReason) -> None:
    move = rules.close_gate(facts(status), reason)
    if status is State.PENDING:
        assert move is not None
        assert may_move(status, Event.CLOSE_GATE, move.to)
        assert (move.to is State.CANCELLED) == (reason is GateReason.CANCELLED)
    else:
        assert move is None


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("attempts", [(EARLIER_OPEN,), (handed_over(1, Outcome.UNKNOWN, ago=1801),), ()])
@pytest.mark.parametrize("may_replay", [True, False])
@pytest.mark.parametrize("paused", [True, False])
def test_every_end_of_an_unknown_leads_where_the_table_allows(
    gate: dict[str, Any], attempts: tuple[Attempt, ...], may_replay: bool, paused: bool
) -> None:
    move = rules.end_overdue_unknown(
        facts(State.UNKNOWN, *attempts, **gate), policy(), may_replay=may_replay, paused=paused
    )
    if move is None:
        assert may_replay
        assert not paused
    else:
        assert may_move(State.UNKNOWN, Event.END_OVERDUE, move.to)
        if move.to is State.UNKNOWN:
            assert move.next_attempt_at is not None
            assert move.next_attempt_at > NOW, "put off, or the same sweep finds it for ever"


def test_no_terminal_state_is_left_but_on_evidence_or_by_an_operator() -> None:
    for (state, event), targets in TRANSITIONS.items():
        if state in {State.FAILED, State.EXPIRED, State.CANCELLED}:
            assert targets == frozenset({LEAVING_THE_DEAD[event]})
        assert state is not State.ACCEPTED


@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_an_attempt_is_open_until_its_own_outcome_closes_it(outcome: Outcome | None) -> None:
    assert handed_over(1, outcome).is_open == (outcome not in CLOSING_OUTCOMES)
    assert not Attempt(1, SMTP.name, None, outcome).is_open


@pytest.mark.parametrize("outcome", SETTLE_EVENTS)
def test_a_lease_begun_with_an_open_hand_over_adds_nothing_to_the_attempts(outcome: Outcome) -> None:
    counts = {Outcome.ACCEPTED, Outcome.TRANSIENT, Outcome.PERMANENT, Outcome.UNKNOWN}
    fresh = rules.settle(facts(State.SENDING, OWN), 3, AttemptResult(outcome), policy())
    replay = rules.settle(
        facts(State.SENDING, EARLIER_OPEN, OWN), 3, AttemptResult(outcome), policy(), begun_with_open=True
    )
    assert (fresh.attempts, replay.attempts) == (int(outcome in counts), 0)


def test_a_refusal_with_a_pause_is_due_at_once_and_without_one_later() -> None:
    refused = AttemptResult(Outcome.REFUSED_US, "connection_refused")
    paused = rules.settle(facts(), 3, refused, policy(), pauses=True)
    alone = rules.settle(facts(), 3, refused, policy())
    assert paused.next_attempt_at == NOW
    assert alone.next_attempt_at == NOW + timedelta(seconds=60)


def test_an_unknown_is_looked_at_again_by_schedule_and_at_the_latest_when_the_window_ends() -> None:
    first = rules.settle(
        facts(State.SENDING, Attempt(3, KEYED.name, NOW, None)),
        3,
        AttemptResult(Outcome.UNKNOWN),
        policy(KEYED),
    )
    assert first.next_attempt_at == NOW + timedelta(seconds=30)
    late = handed_over(3, ago=1790)
    last = rules.settle(
        facts(State.SENDING, late, lease_token=3), 3, AttemptResult(Outcome.UNKNOWN), policy()
    )
    assert last.next_attempt_at == NOW + timedelta(seconds=10)


def test_a_replay_that_did_not_happen_is_not_due_again_at_once() -> None:
    before = facts(State.SENDING, handed_over(1, Outcome.UNKNOWN, ago=1801), lease_token=2)
    move = rules.settle(before, 2, AttemptResult(Outcome.NOT_SENT, "hand_over_refused"), policy())
    assert move.to is State.UNKNOWN
    assert move.next_attempt_at == NOW + timedelta(seconds=60)


def test_a_result_that_came_between_the_leases_end_and_the_reclaim_stands() -> None:
    late = handed_over(3, Outcome.TRANSIENT)
    assert rules.reclaim(facts(State.SENDING, late), policy()).to is State.PENDING
    assert not rules.reclaim(facts(State.SENDING, late, lost_count=5), policy()).still_open


@pytest.mark.parametrize(
    ("provider", "replays", "ago", "gate", "allowed"),
    [
        (SMTP, 0, 10, {}, True),
        (SMTP, 1, 10, {}, False),
        (KEYED, 2, 10, {}, True),
        (KEYED, 3, 10, {}, False),
        (KEYED, 0, 86_401, {}, False),
        (SMTP, 0, 10, {"send_before": NOW}, False),
        (None, 0, 10, {}, False),
    ],
)
def test_a_replay_needs_gate_provider_key_and_budget(
    provider: Any, replays: int, ago: float, gate: dict[str, Any], allowed: bool
) -> None:
    before = facts(State.UNKNOWN, handed_over(1, Outcome.UNKNOWN, ago=ago), replay_count=replays, **gate)
    assert rules.may_replay(before, provider, unknown_budget=3) is allowed
