"""Locked deliveries: read the facts, write the move. Everything that changes an `email_outbox` row after its claim
goes through here (but for an operator's retry, `db.operations`), under the row's lock and inside the caller's transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from db import delivery_rules as rules
from db.delivery_rules import Attempt, AttemptResult, Delivery, Facts, Move
from db.delivery_state import Evidence, GateReason, Outcome, State
from db.errors import NotFound
from db.queries import load
from db.session import Row, Tx

SQL = load("leases.sql")

_MOVES = {
    State.PENDING: SQL["to_pending"],
    State.UNKNOWN: SQL["to_unknown"],
    State.ACCEPTED: SQL["to_accepted"],
    State.FAILED: SQL["to_failed"],
    State.EXPIRED: SQL["to_expired"],
    State.CANCELLED: SQL["to_cancelled"],
}


def lock(tx: Tx, delivery_id: UUID) -> Facts:
    """Lock one delivery and read its facts. Raises NotFound."""
    return _one(tx, tx.execute(SQL["lock_deliveries"], {"ids": [delivery_id]}).fetchall())


def lock_of_verification(tx: Tx, verification_id: UUID) -> Facts:
    """The same for a verification's delivery. The caller holds account and verification (lock order). Raises NotFound."""
    rows = tx.execute(SQL["lock_delivery_of_verification"], {"verification_id": verification_id}).fetchall()
    return _one(tx, rows)


def read_facts(tx: Tx, locked_rows: Iterable[Row]) -> list[Facts]:
    """The facts of rows the caller has just locked, read after the locks, in their order."""
    rows = list(locked_rows)
    if not rows:
        return []
    # Sent together, read after: two statements, one round trip.
    attempts_cursor = tx.execute(SQL["read_attempts"], {"ids": [row["id"] for row in rows]})
    clock_cursor = tx.execute(SQL["read_clock"])
    attempts: dict[UUID, list[Attempt]] = defaultdict(list)
    for row in attempts_cursor:
        attempts[row["delivery_id"]].append(_attempt(row))
    clock = clock_cursor.fetchone()
    assert clock is not None
    return [Facts(_delivery(row), tuple(attempts[row["id"]]), clock["now"]) for row in rows]


def move(
    tx: Tx,
    delivery: Delivery,
    to: Move,
    *,
    last_error: str | None = None,
    provider_message_id: str | None = None,
) -> State:
    """Write a move of a locked delivery; answers the new state."""
    tx.execute(
        _MOVES[to.to],
        {
            "id": delivery.id,
            "lease_token": delivery.lease_token,
            "before": delivery.status,
            "next_attempt_at": to.next_attempt_at,
            "evidence": to.evidence,
            "failure_category": to.failure_category,
            "failure_code": to.failure_code,
            "gate_reason": to.gate_reason,
            "still_open": to.still_open,
            "attempts": to.attempts,
            "losses": to.losses,
            "last_error": last_error,
            "provider_message_id": provider_message_id,
        },
    )
    return to.to


def record_evidence(
    tx: Tx,
    facts: Facts,
    evidence: Evidence,
    *,
    provider: str | None = None,
    provider_message_id: str | None = None,
) -> bool:
    """Accept a delivery on evidence, whatever its state. `provider` is the one that gave it; None for any.

    False, and nothing changes, when it is accepted already or no attempt was handed over to that provider.
    """
    handed_over = [a for a in facts.attempts if a.handed_over_at and provider in {None, a.provider}]
    if facts.delivery.status is State.ACCEPTED or not handed_over:
        return False
    move(tx, facts.delivery, rules.accept(evidence), provider_message_id=provider_message_id)
    return True


def close_gate(tx: Tx, facts: Facts, reason: GateReason) -> State:
    """No hand-over from now on. A waiting delivery ends here; one that has ended is left as it is."""
    if not rules.is_live(facts.delivery):
        return facts.delivery.status
    ended = rules.close_gate(facts, reason)
    if ended is not None:
        return move(tx, facts.delivery, ended)
    tx.execute(SQL["shut_gate"], {"id": facts.delivery.id, "gate_reason": reason})
    return facts.delivery.status


def consume(tx: Tx, facts: Facts) -> bool:
    """The person used the token: evidence if the mail was ever handed over, else the gate closes.

    False says that the token was used although no mail left: it leaked, and someone must be told.
    """
    if facts.was_handed_over:
        record_evidence(tx, facts, Evidence.CONSUMED)
        return True
    close_gate(tx, facts, GateReason.CONSUMED)
    return False


def record_attempt(
    tx: Tx, facts: Facts, values: dict[str, Any], result: AttemptResult, *, stale: bool
) -> None:
    """Write the one attempt of a lease; a final outcome on record stands.

    `values`: id, lease_token, owner, claimed_at, provider, correlation_id, release.
    """
    exists = any(attempt.lease_token == values["lease_token"] for attempt in facts.attempts)
    tx.execute(
        SQL["complete_attempt" if exists else "insert_attempt"],
        {
            **values,
            "outcome": result.outcome,
            "error_code": result.error_code,
            "response_status": result.response_status,
            "provider_message_id": result.provider_message_id,
            "stale": stale,
        },
    )


def _one(tx: Tx, rows: list[Row]) -> Facts:
    if not rows:
        raise NotFound("no such delivery")
    return read_facts(tx, rows)[0]


def _delivery(row: Row) -> Delivery:
    reason = row["gate_reason"]
    return Delivery(
        id=row["id"],
        verification_id=row["verification_id"],
        status=State(row["status"]),
        lease_owner=row["lease_owner"],
        lease_until=row["lease_until"],
        lease_token=row["lease_token"],
        attempt_count=row["attempt_count"],
        lost_count=row["lost_count"],
        replay_count=row["replay_count"],
        send_before=row["send_before"],
        gate_reason=GateReason(reason) if reason else None,
        open_provider=row["open_provider"],
    )


def _attempt(row: Row) -> Attempt:
    outcome = row["outcome"]
    return Attempt(
        row["lease_token"], row["provider"], row["handed_over_at"], Outcome(outcome) if outcome else None
    )
