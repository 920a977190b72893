"""Any order of claims, hand-overs, results (late ones too), crashes, sweeps, gates, evidence, pauses and passing time keeps
the promises of a delivery's state machine. Hypothesis looks for an order that breaks one, on the real SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from db import deliveries, leases, overdue
from db import delivery_state as ds
from db.delivery_state import Event, GateReason, Outcome, State
from db.leases import Lease
from db.overdue import UnknownTerms
from db.provider_pauses import Refusal
from tests.factories import DIGEST, KEYED, SEARCHABLE, SENDER, SMTP, Factory, policy, terms

ALL = (SMTP, KEYED, SEARCHABLE)
POLICY = policy(*ALL)
LONGEST_WAIT = timedelta(seconds=1800)  # the evidence window; leases and backoffs are shorter
COUNTERS = ("lease_token", "attempt_count", "lost_count", "replay_count")
AWAY = Refusal("away", "connection_refused", retry_after=None, backoff=(5.0, 15.0, 60.0))
BEFORE = sorted(ds.CLOSING_OUTCOMES)  # what a lease can come to without a hand-over
AFTER = [*BEFORE, Outcome.ACCEPTED, Outcome.UNKNOWN, Outcome.UNKNOWN]
FROM_OUTSIDE = [*(provider.name for provider in ALL), GateReason.SUPERSEDED, GateReason.CANCELLED, "consumed"]
MOVE_TIME = """
WITH rows AS (
    UPDATE email_outbox SET lease_until = lease_until - %(past)s, next_attempt_at = next_attempt_at - %(past)s,
        send_before = CASE WHEN gate_reason IS NULL THEN send_before - %(past)s ELSE send_before END
), attempts AS (
    UPDATE delivery_attempts SET handed_over_at = handed_over_at - %(past)s, finished_at = finished_at - %(past)s
)
UPDATE provider_status SET paused_until = paused_until - %(past)s, refused_at = refused_at - %(past)s
"""

Providers = tuple[Any, ...]
configured = st.lists(st.sampled_from(ALL), min_size=1, unique=True).map(tuple)
mostly = st.sampled_from([True, True, True, False])
# One rule for all: Hypothesis would leave out whole kinds of events (swarm testing), and few deliveries would get anywhere.
WEIGHTS = {"take": 6, "settle": 4, "time": 4, "sweep": 3, "hand_over": 2, "outside": 2, "make": 1}


class DeliveryMachine(RuleBasedStateMachine):
    """Workers that may come back to a lease at any time or never, a sweep, clients, and time that is moved on."""

    def __init__(self, make: Factory) -> None:
        super().__init__()
        self.make = make
        self.moved_on = timedelta()
        self.claimed_when: dict[tuple[UUID, int], timedelta] = {}
        self.handed_over: set[tuple[UUID, int]] = set()
        self.said: dict[tuple[UUID, int], Outcome] = {}
        make.execute("TRUNCATE clients, provider_status, state_changes CASCADE")
        make.client_id = None
        self.made = [make.waiting().delivery_id]
        self.held: list[Lease] = []
        self.rows = self.read()

    # What happens.

    @rule(
        what=st.sampled_from([what for what, weight in WEIGHTS.items() for _ in range(weight)]),
        providers=configured,
        which=st.integers(0, 3),
        yes=mostly,
        outcome=st.sampled_from([None, None, *AFTER]),
        outside=st.sampled_from(FROM_OUTSIDE),
        seconds=st.sampled_from([6, 31, 61, 91, 91, 301, 1801, 1801]),
    )
    def something_happens(
        self,
        *,
        what: str,
        providers: Providers,
        which: int,
        yes: bool,
        outcome: Outcome | None,
        outside: str,
        seconds: int,
    ) -> None:
        lease = self.held[-1 - which % len(self.held)] if self.held else None
        match what:
            case "take":
                self.a_worker_takes_one(providers, goes_on=yes, outcome=outcome)
            case "hand_over" if lease:
                self.hand_over(lease, same_bytes=yes)
            case "settle" if lease and outcome:
                self.settle(lease, outcome)
            case "sweep":
                self.sweep(providers)
            case "time":
                self.time_passes(seconds)
            case "outside":
                self.something_comes_from_outside(self.made[-1 - which % len(self.made)], outside)
            case "make":
                self.made.append(self.make.waiting(send_before=14_400.0 if yes else 45.0).delivery_id)

    def a_worker_takes_one(self, providers: Providers, *, goes_on: bool, outcome: Outcome | None) -> None:
        """It may stop after the claim or after the hand-over (`outcome` None), and come back late, or never."""
        before = self.read()
        with self.moving(Event.CLAIM):
            claimed = leases.claim(self.make.database, terms(*providers))
        for lease in claimed:
            old = before[lease.delivery_id]
            assert old["status"] in {State.PENDING, State.UNKNOWN}, "a live lease was taken over"
            assert lease.token == old["lease_token"] + 1
            assert lease.action == "send" or lease.provider == old["open_provider"]
            self.held.append(lease)
            self.claimed_when[lease.delivery_id, lease.token] = self.moved_on
            if goes_on:
                self.hand_over(lease, same_bytes=outcome is not Outcome.NOT_SENT)
            if outcome is not None:
                self.settle(lease, outcome)

    def hand_over(self, lease: Lease, *, same_bytes: bool) -> None:
        key = lease.delivery_id, lease.token
        if key in self.handed_over or key in self.said or lease.action == "look_up":
            return
        before = self.read()[lease.delivery_id]
        with self.moving(Event.HAND_OVER):
            stamped = self.make.hand_over(self.aged(lease), DIGEST if same_bytes else b"\x02" * 32)
        if stamped:
            self.handed_over.add(key)
            self.check_hand_over(lease, before, self.rows[lease.delivery_id])

    def settle(self, lease: Lease, outcome: Outcome) -> None:
        """What the provider said: at once or an hour late, once or, after an unknown commit, twice."""
        key = lease.delivery_id, lease.token
        outcome = self.said.get(key, Outcome.NOT_SENT if lease.action == "look_up" else outcome)
        if key not in self.handed_over and outcome not in BEFORE:
            return
        self.said[key] = outcome
        refusal = AWAY if outcome is Outcome.REFUSED_US else None
        late = {Event.EVIDENCE} if outcome is Outcome.ACCEPTED else set()
        with self.moving(Event[f"SETTLE_{outcome.name}"], *late):
            self.make.settle(self.aged(lease), outcome, "a_code", policy=POLICY, refusal=refusal)

    def sweep(self, providers: Providers) -> None:
        database, names = self.make.database, [provider.name for provider in providers]
        with self.moving(Event.RECLAIM):
            self.make.reclaim(policy=POLICY)
        with self.moving(Event.END_OVERDUE):
            overdue.end_overdue_pending(database, {"live": names}, SENDER)
        with self.moving(Event.END_OVERDUE):
            overdue.return_answered_late(database, POLICY)
        with self.moving(Event.END_OVERDUE):
            overdue.end_overdue_unknown(database, POLICY, UnknownTerms("live", providers, SENDER, 3))

    def something_comes_from_outside(self, delivery_id: UUID, what: str) -> None:
        """A webhook of some provider, a client that supersedes or cancels, a person who uses the token."""
        with self.moving(Event.EVIDENCE, Event.CLOSE_GATE), self.make.database.transaction() as tx:
            facts = deliveries.lock(tx, delivery_id)
            if what == "consumed":
                deliveries.consume(tx, facts)
            elif isinstance(what, GateReason):
                deliveries.close_gate(tx, facts, what)
            else:
                deliveries.record_evidence(tx, facts, ds.Evidence.WEBHOOK, provider=what)

    def time_passes(self, seconds: int) -> None:
        past = timedelta(seconds=seconds)
        self.make.execute_named(MOVE_TIME, {"past": past})
        self.moved_on += past
        self.rows = self.read()

    # What must hold.

    @contextmanager
    def moving(self, *events: Event) -> Iterator[None]:
        """Only what one of `events` may do happens meanwhile."""
        before = self.read()
        yield
        self.rows = self.read()
        for delivery_id, old in before.items():
            new = self.rows[delivery_id]
            was, became = State(old["status"]), State(new["status"])
            allowed = was is became or any(ds.may_move(was, event, became) for event in events)
            assert allowed, f"{was} -> {became} by {events}"
            assert was not in ds.TERMINAL or became in {was, State.ACCEPTED}
            assert all(old[name] <= new[name] for name in COUNTERS), "a counter went back"
            assert old["gate_reason"] in {None, new["gate_reason"]}

    def check_hand_over(self, lease: Lease, before: dict[str, Any], after: dict[str, Any]) -> None:
        assert (before["status"], before["lease_token"]) == (State.SENDING, lease.token)
        assert before["gate_reason"] is None and before["send_before"] > before["now"], "the gate was closed"
        if before["open_provider"] is not None:
            assert lease.provider == before["open_provider"], "a replay went elsewhere"
            assert after["payload_digest"] == before["payload_digest"], "a replay of other bytes"
            assert after["replay_count"] == before["replay_count"] + 1
            assert after["replay_count"] <= (3 if lease.provider == KEYED.name else 1), "one replay too many"

    @invariant()
    def nothing_is_forgotten(self) -> None:
        self.rows = self.read()
        attempts = self.make.all("SELECT * FROM delivery_attempts WHERE handed_over_at IS NOT NULL")
        for delivery_id, row in self.rows.items():
            mine = [attempt for attempt in attempts if attempt["delivery_id"] == delivery_id]
            still_open = {a["provider"] for a in mine if a["outcome"] not in ds.CLOSING_OUTCOMES}
            status = State(row["status"])
            if still_open:
                assert status not in {State.PENDING, State.EXPIRED, State.CANCELLED}, (
                    "an open hand-over is forgotten"
                )
                assert still_open == {row["open_provider"]}
            if status is State.ACCEPTED:
                assert row["evidence"] and mine, "accepted without evidence"
            if status not in ds.TERMINAL:
                due = row["lease_until"] if status is State.SENDING else row["next_attempt_at"]
                assert due <= row["now"] + LONGEST_WAIT, "nothing will look at it in time"

    def teardown(self) -> None:
        """With time, sweeps, and workers that all crash, every delivery ends: nothing waits for ever."""
        for _ in range(16):
            if {row["status"] for row in self.read().values()} <= ds.TERMINAL:
                return
            while leases.claim(self.make.database, terms(*ALL)):
                pass
            self.time_passes(1801)
            self.sweep(ALL)
        raise AssertionError(f"never ended: {self.rows}")

    def read(self) -> dict[UUID, dict[str, Any]]:
        return {
            row["id"]: row for row in self.make.all("SELECT *, clock_timestamp() AS now FROM email_outbox")
        }

    def aged(self, lease: Lease) -> Lease:
        """The lease as if it had been claimed before the time that was moved on since."""
        past = self.moved_on - self.claimed_when[lease.delivery_id, lease.token]
        return replace(lease, claimed_at=lease.claimed_at - past)


def test_no_order_of_events_breaks_a_promise(make: Factory) -> None:
    run_state_machine_as_test(
        lambda: DeliveryMachine(make),  # type: ignore[arg-type]
        settings=settings(
            max_examples=28, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
