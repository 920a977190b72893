"""What the rows must say of themselves: ends, evidence, budgets, fences, and the order of attempts (G2, G3, G4, G6, G8)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from db.delivery_state import TERMINAL, State
from tests.chaos.facts import Breach, Facts, Row, was_open

_COUNTED = {"accepted", "transient", "permanent", "unknown"}
_CLOCK = timedelta(seconds=0.5)  # between the beginning of a claim's transaction and its snapshot
_BY_THE_SWEEP = {"outcome_unresolved", "lease_lost"}


def every_delivery_ended(facts: Facts) -> Iterator[Breach]:
    """G3: nothing is left over once the faults are gone."""
    for row in facts.deliveries:
        if row["status"] not in TERMINAL:
            yield Breach("G3", f"it is still {row['status']}", row["id"])


def ends_are_explained(facts: Facts) -> Iterator[Breach]:
    """G8: evidence, or category and code; expired and cancelled by a gate."""
    for row in facts.deliveries:
        if row["status"] == State.ACCEPTED and not row["evidence"]:
            yield Breach("G8", "it is accepted without evidence", row["id"])
        if row["status"] == State.FAILED and not (row["failure_category"] and row["failure_code"]):
            yield Breach("G8", "it failed without category and code", row["id"])
        if row["status"] == State.CANCELLED and row["gate_reason"] != "cancelled":
            yield Breach("G8", "it is cancelled and nobody cancelled it", row["id"])


def evidence_is_real(facts: Facts) -> Iterator[Breach]:
    """G8: a response has an accepted attempt, consumption a consumed verification; both a hand-over."""
    for row in facts.deliveries:
        if row["status"] != State.ACCEPTED:
            continue
        outcomes = {attempt["outcome"] for attempt in facts.attempts_of(row["id"])}
        consumed = facts.verification_of(row["id"])["status"] == "consumed"
        if row["evidence"] == "response" and "accepted" not in outcomes:
            yield Breach("G8", "it is accepted by a response that no attempt had", row["id"])
        if row["evidence"] == "consumed" and not consumed:
            yield Breach("G8", "it is accepted by a consumption that was not", row["id"])
        if not facts.handed_over(row["id"]):
            yield Breach("G5", "it is accepted and was never handed over", row["id"])


def the_last_lease_ended_it(facts: Facts) -> Iterator[Breach]:
    """G2: a result of a lease that had passed on to another changes no row: it is stale."""
    for row in facts.deliveries:
        attempts = facts.attempts_of(row["id"])
        for attempt, later in pairwise(attempts):
            late = attempt["finished_at"] and attempt["finished_at"] > later["started_at"] + _CLOCK
            if late and not attempt["stale"]:
                text = (
                    f"lease {attempt['lease_token']} was settled after lease {later['lease_token']} had begun"
                )
                yield Breach("G2", text, row["id"])
        if row["status"] == State.FAILED and row["failure_code"] not in _BY_THE_SWEEP:
            last = attempts[-1] if attempts else None
            if last is None or last["outcome"] not in {"permanent", "transient"} or last["stale"]:
                yield Breach("G2", f"it failed ({row['failure_code']}), and not by its last lease", row["id"])


def each_lease_left_one_attempt(facts: Facts) -> Iterator[Breach]:
    """G8: leases are numbered from one and each says what it came to, unless evidence came first."""
    for row in facts.deliveries:
        attempts = facts.attempts_of(row["id"])
        tokens = [attempt["lease_token"] for attempt in attempts]
        # Evidence ends a delivery under a lease, which has nothing to say then.
        missing = row["lease_token"] - len(tokens)
        if tokens != list(range(1, len(tokens) + 1)) or missing not in _may_miss(row):
            yield Breach("G8", f"of {row['lease_token']} leases these left an attempt: {tokens}", row["id"])
        for attempt in attempts:
            if attempt["outcome"] is None and row["status"] != State.ACCEPTED:
                yield Breach("G8", f"lease {attempt['lease_token']} has no outcome", row["id"])


def _may_miss(row: Row) -> set[int]:
    return {0, 1} if row["status"] == State.ACCEPTED else {0}


def budgets_hold(facts: Facts) -> Iterator[Breach]:
    """G4, G11: counters are what the attempts say, and within their limits."""
    for row in facts.deliveries:
        attempts = facts.attempts_of(row["id"])
        said = [a for a in attempts if a["outcome"] in _COUNTED and not a["stale"]]
        after_open = [a for a in said if _began_after_a_hand_over(a, attempts)]
        if not len(said) - len(after_open) <= row["attempt_count"] <= len(said):
            yield Breach("G11", f"attempt_count is {row['attempt_count']} of {len(said)}", row["id"])
        lost = sum(a["outcome"] == "lost" for a in attempts)
        if not lost <= row["lost_count"] <= lost + sum(a["stale"] for a in attempts):
            yield Breach("G3", f"lost_count is {row['lost_count']}, attempts lost {lost}", row["id"])
        if max(row["attempt_count"], row["lost_count"]) > facts.terms.max_attempts:
            yield Breach("G11", f"its budget of {facts.terms.max_attempts} is overdrawn", row["id"])


def _began_after_a_hand_over(attempt: Row, attempts: list[Row]) -> bool:
    return any(a["handed_over_at"] and a["lease_token"] < attempt["lease_token"] for a in attempts)


def no_blind_resend(facts: Facts) -> Iterator[Breach]:
    """G4: a hand-over while another is open is a counted replay, through the same provider, when the window is over."""
    window = timedelta(seconds=facts.terms.evidence_window)
    for row in facts.deliveries:
        replays, handed_over = 0, facts.handed_over(row["id"])
        for place, again in enumerate(handed_over):
            at = again["handed_over_at"]
            opened = [a for a in handed_over[:place] if was_open(a, at)]
            if not opened:
                continue
            replays += 1
            if any(a["provider"] != again["provider"] for a in opened):
                yield Breach("G4", "an open hand-over was repeated through another provider", row["id"])
            early = max(a["handed_over_at"] for a in opened) + window - at
            if early > timedelta(seconds=0.01):
                text = (
                    f"an open hand-over was repeated {early.total_seconds():.2f} s before its window was over"
                )
                yield Breach("G4", text, row["id"])
        if replays > row["replay_count"]:
            yield Breach("G4", f"{replays} replays, {row['replay_count']} of them recorded", row["id"])
        if row["replay_count"] > facts.terms.replays:
            yield Breach("G4", f"it was replayed {row['replay_count']} times", row["id"])


def the_gate_was_open(facts: Facts) -> Iterator[Breach]:
    """G6: at each hand-over the token was good, with life left, and the delivery not over."""
    for row in facts.deliveries:
        verification = facts.verification_of(row["id"])
        last = min(
            row["created_at"] + timedelta(seconds=facts.terms.delivery_deadline),
            verification["expires_at"] - timedelta(seconds=facts.terms.min_token_life),
        )
        closed = facts.closed_at.get(row["id"])
        for attempt in facts.handed_over(row["id"]):
            at = attempt["handed_over_at"]
            if at >= last:
                yield Breach(
                    "G6", f"lease {attempt['lease_token']} handed over after the last instant", row["id"]
                )
            if closed and at > closed:
                text = f"lease {attempt['lease_token']} handed over although it was {row['gate_reason']}"
                yield Breach("G6", text, row["id"])
            if row["status"] != State.ACCEPTED and row["completed_at"] and at > row["completed_at"]:
                yield Breach("G6", f"lease {attempt['lease_token']} handed over after the end", row["id"])


def changes_end_where_the_row_is(facts: Facts) -> Iterator[Breach]:
    """The feed's last word on a delivery is its state; what was accepted stays so."""
    last: dict[object, Row] = {}
    for change in sorted(facts.changes, key=lambda change: change["id"]):
        if change["delivery_id"] is None:
            continue
        before = last.get(change["delivery_id"])
        if before is not None and before["after"] == State.ACCEPTED:
            yield Breach("G2", f"it went from accepted to {change['after']}", change["delivery_id"])
        last[change["delivery_id"]] = change
    for row in facts.deliveries:
        if row["status"] in TERMINAL and (row["id"] not in last or last[row["id"]]["after"] != row["status"]):
            yield Breach("feed", "its last change is not its state", row["id"])


RULES = (
    every_delivery_ended,
    ends_are_explained,
    evidence_is_real,
    the_last_lease_ended_it,
    each_lease_left_one_attempt,
    budgets_hold,
    no_blind_resend,
    the_gate_was_open,
    changes_end_where_the_row_is,
)
