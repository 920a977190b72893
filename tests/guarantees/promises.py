"""The guarantees as statements about what the database holds: one state of it, or two with one commit between them.

Each raises AssertionError with the guarantee's number. Rows are dictionaries by column; times are the database's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from db import delivery_state as ds
from db.delivery_rules import OPERATOR_RETRIED
from db.delivery_state import Outcome, State
from tests.factories import Factory

Row = dict[str, Any]
LONGEST_WAIT = timedelta(seconds=1800)  # the evidence window; leases and backoffs are shorter
RETENTION = timedelta(days=30)
_MIN_TOKEN_LIFE = timedelta(seconds=300)
_COUNTERS = ("attempt_count", "lost_count", "replay_count")


@dataclass(frozen=True)
class Snapshot:
    """What the database holds at one instant, by id; attempts by delivery and lease."""

    now: datetime
    deliveries: dict[UUID, Row]
    verifications: dict[UUID, Row]
    accounts: dict[UUID, Row]
    attempts: dict[tuple[UUID, int], Row]

    @classmethod
    def read(cls, make: Factory) -> Snapshot:
        with make.database.transaction() as tx:
            now = tx.execute("SELECT clock_timestamp() AS now")
            tables = [
                tx.execute(f"SELECT * FROM {table}")
                for table in (
                    "email_outbox",
                    "verifications",
                    "accounts",
                    "delivery_attempts",
                )
            ]
            outbox, verifications, accounts, attempts = (cursor.fetchall() for cursor in tables)
            clock = now.fetchone()
            assert clock is not None
            return cls(
                now=clock["now"],
                deliveries={row["id"]: row for row in outbox},
                verifications={row["id"]: row for row in verifications},
                accounts={row["id"]: row for row in accounts},
                attempts={(row["delivery_id"], row["lease_token"]): row for row in attempts},
            )

    def of(self, delivery_id: UUID) -> list[Row]:
        """A delivery's attempts, oldest first."""
        return [row for key, row in sorted(self.attempts.items()) if key[0] == delivery_id]

    def open_attempts(self, delivery_id: UUID) -> list[Row]:
        """Those of them that were handed over and may have been accepted for all that is known."""
        return [
            row
            for row in self.of(delivery_id)
            if row["handed_over_at"] and row["outcome"] not in ds.CLOSING_OUTCOMES
        ]


def check_state(state: Snapshot) -> None:
    """What must hold of any state."""
    assert len(state.deliveries) == len(state.verifications), "G1: one delivery a verification"
    for delivery in state.deliveries.values():
        _nothing_is_forgotten(state, delivery)
        _ends_are_explained(state, delivery)
    for verification in state.verifications.values():
        _consumption_and_activation_are_one(state, verification)


def check_step(before: Snapshot, after: Snapshot) -> None:
    """What must hold of one commit."""
    for delivery_id, was in before.deliveries.items():
        became = after.deliveries[delivery_id]
        _moves_as_the_machine_allows(was, became)
        _leases_end_by_their_own_attempt(after, was, became)
        _counters_only_grow(was, became)
        _spends_what_it_should(before, after, was, became)
    for key, attempt in after.attempts.items():
        was_stamped = key in before.attempts and before.attempts[key]["handed_over_at"]
        if attempt["handed_over_at"] and not was_stamped:
            _handed_over_rightly(before, after, attempt)
    for verification_id, verification in before.verifications.items():
        _a_dead_verification_stays_dead(verification, after.verifications[verification_id])
        _only_what_is_over_is_forgotten(before, verification, after.verifications[verification_id])


def _nothing_is_forgotten(state: Snapshot, delivery: Row) -> None:
    still_open = {attempt["provider"] for attempt in state.open_attempts(delivery["id"])}
    status = State(delivery["status"])
    if still_open:
        assert status not in {State.PENDING, State.EXPIRED, State.CANCELLED}, (
            "G4: an open hand-over is forgotten"
        )
        assert still_open == {delivery["open_provider"]}, "G4: open at more than one provider, or at another"
    if status is State.UNKNOWN:
        assert any(a["handed_over_at"] for a in state.of(delivery["id"])), "G5: unknown without a hand-over"
    if status not in ds.TERMINAL:
        due = delivery["lease_until"] if status is State.SENDING else delivery["next_attempt_at"]
        assert due <= state.now + LONGEST_WAIT, "G3: nothing will look at it in time"


def _ends_are_explained(state: Snapshot, delivery: Row) -> None:
    if delivery["status"] == State.ACCEPTED:
        assert delivery["evidence"], "G8: accepted without evidence"
        assert any(a["handed_over_at"] for a in state.of(delivery["id"])), (
            "G8: accepted what nobody was given"
        )
    if delivery["status"] == State.FAILED:
        assert delivery["failure_category"] and delivery["failure_code"], "G8: failed without a reason"


def _consumption_and_activation_are_one(state: Snapshot, verification: Row) -> None:
    account = state.accounts[verification["account_id"]]
    consumed = verification["status"] == "consumed"
    assert consumed == (verification["consumed_at"] is not None), "G7"
    if consumed and verification["purpose"] == "signup":
        assert account["activated_at"] is not None, "G7: consumed, but the account is not active"
    if account["activated_at"] is not None:
        assert any(
            v["status"] == "consumed" and v["purpose"] == "signup" and v["account_id"] == account["id"]
            for v in state.verifications.values()
        ), "G7: an account is active that nobody confirmed"


def _moves_as_the_machine_allows(was: Row, became: Row) -> None:
    before, after = State(was["status"]), State(became["status"])
    allowed = before is after or any(ds.may_move(before, event, after) for event in ds.Event)
    assert allowed, f"{before} -> {after}"
    assert _restarted(became) or was["gate_reason"] in {None, became["gate_reason"]}, "a gate reopened"
    if became["lease_token"] > was["lease_token"]:
        assert before in {State.PENDING, State.UNKNOWN}, "G2: a live lease was taken over"
        assert became["lease_token"] == was["lease_token"] + 1


def _restarted(became: Row) -> bool:
    """By an operator, in place: as new, but for the fence."""
    is_new = became["status"] == State.PENDING and not any(became[name] for name in _COUNTERS)
    return is_new and became["last_error"] == OPERATOR_RETRIED


def _leases_end_by_their_own_attempt(after: Snapshot, was: Row, became: Row) -> None:
    """G2: a result of an earlier lease ends no later one, and a live lease ends by nobody else's word but evidence."""
    if was["status"] != State.SENDING or became["status"] in {State.SENDING, State.ACCEPTED}:
        return
    own = after.attempts.get((was["id"], was["lease_token"]))
    assert own is not None and own["outcome"], "G2: a lease was ended by another's result"
    if own["outcome"] not in {Outcome.LOST, Outcome.NOT_SENT} and not own["stale"]:
        assert own["finished_at"] < was["lease_until"], (
            "G2: a result that came after the lease's end moved the row"
        )


def _counters_only_grow(was: Row, became: Row) -> None:
    assert _restarted(became) or all(was[name] <= became[name] for name in _COUNTERS), "a counter went back"


def _spends_what_it_should(before: Snapshot, after: Snapshot, was: Row, became: Row) -> None:
    """G11, and section 3: only an attempt that said something about this mail counts."""
    if became["attempt_count"] <= was["attempt_count"]:
        return
    assert became["attempt_count"] == was["attempt_count"] + 1
    attempt = after.attempts[was["id"], was["lease_token"]]
    said = {Outcome.ACCEPTED, Outcome.TRANSIENT, Outcome.PERMANENT, Outcome.UNKNOWN}
    assert attempt["outcome"] in said, f"G11: {attempt['outcome']} spent an attempt"


def _handed_over_rightly(before: Snapshot, after: Snapshot, attempt: Row) -> None:
    delivery = before.deliveries[attempt["delivery_id"]]
    verification = before.verifications[delivery["verification_id"]]
    assert (delivery["status"], delivery["lease_token"]) == (State.SENDING, attempt["lease_token"]), (
        "G2: handed over without the lease"
    )
    assert delivery["lease_until"] > before.now, "G2: handed over after the lease's end"
    assert delivery["gate_reason"] is None and delivery["send_before"] > before.now, "G6: the gate was closed"
    assert verification["status"] == "requested", f"G6: the token was {verification['status']}"
    assert verification["expires_at"] >= before.now + _MIN_TOKEN_LIFE, "G6: no life left in the token"
    if delivery["open_provider"] is not None:
        _replayed_rightly(delivery, after.deliveries[delivery["id"]], attempt)


def _replayed_rightly(delivery: Row, became: Row, attempt: Row) -> None:
    assert attempt["provider"] == delivery["open_provider"], "G4: a replay went elsewhere"
    assert became["payload_digest"] == delivery["payload_digest"], "G4: a replay of other bytes"
    assert became["replay_count"] == delivery["replay_count"] + 1
    allowed = 3 if attempt["provider"].startswith("keyed") else 1
    assert became["replay_count"] <= allowed, "G4: one replay too many"


def _only_what_is_over_is_forgotten(before: Snapshot, was: Row, became: Row) -> None:
    if was["anonymised_at"] is not None:
        assert became["anonymised_at"] == was["anonymised_at"] and became["token_hash"] is None
    elif became["anonymised_at"] is not None:
        delivery = next(d for d in before.deliveries.values() if d["verification_id"] == was["id"])
        assert was["status"] != "requested" and delivery["status"] in ds.TERMINAL, (
            "forgotten before it was over"
        )
        changed = max(was["created_at"], delivery["completed_at"], was["consumed_at"] or was["created_at"])
        assert changed < before.now - RETENTION, "forgotten too early"


def _a_dead_verification_stays_dead(was: Row, became: Row) -> None:
    if was["status"] != "requested":
        assert became["status"] == was["status"], "G7: a dead verification rose"
        assert became["consumed_at"] == was["consumed_at"], "G7: consumed twice"
