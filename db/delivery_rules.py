"""Decides where a delivery goes, from facts read under its row's lock. Pure: no database, no clock, no chance.

`db.leases` locks the row, reads the facts, asks here, and writes the answer. Times are PostgreSQL's; durations are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from db.delivery_state import (
    CLOSING_OUTCOMES,
    LIVE,
    Evidence,
    FailureCategory,
    GateReason,
    Outcome,
    State,
)

# What an operator decided, where a provider's word would stand: `last_error`, `failure_code`, an attempt's `error_code`.
OPERATOR_RETRIED = "operator_retried"
OPERATOR_RESOLVED = "operator_resolved"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One `email_outbox` row, as far as decisions need it."""

    id: UUID
    verification_id: UUID
    status: State
    lease_owner: str | None
    lease_until: datetime | None
    lease_token: int
    attempt_count: int
    lost_count: int
    replay_count: int
    send_before: datetime
    gate_reason: GateReason | None
    open_provider: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One `delivery_attempts` row, as far as decisions need it."""

    lease_token: int
    provider: str | None
    handed_over_at: datetime | None
    outcome: Outcome | None

    @property
    def is_open(self) -> bool:
        """Whether the provider may have the mail for all this attempt says."""
        return self.handed_over_at is not None and self.outcome not in CLOSING_OUTCOMES


@dataclass(frozen=True, slots=True)
class Facts:
    """A locked delivery, its attempts, and the database's time after the lock was granted."""

    delivery: Delivery
    attempts: tuple[Attempt, ...]
    now: datetime

    @property
    def open_attempts(self) -> tuple[Attempt, ...]:
        """The attempts whose hand-over is open, oldest first."""
        return tuple(attempt for attempt in self.attempts if attempt.is_open)

    @property
    def was_handed_over(self) -> bool:
        """Whether any attempt ever reached a hand-over."""
        return any(attempt.handed_over_at for attempt in self.attempts)

    @property
    def gate_is_closed(self) -> bool:
        return self.delivery.send_before <= self.now

    def with_outcome(self, lease_token: int, outcome: Outcome) -> Facts:
        """These facts once the attempt of `lease_token` has ended so: facts first, then the row."""
        return replace(
            self,
            attempts=tuple(
                replace(attempt, outcome=outcome) if attempt.lease_token == lease_token else attempt
                for attempt in self.attempts
            ),
        )


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What a lease came to. `error_code` is a stable snake_case word, `response_status` never free text of a server."""

    outcome: Outcome
    error_code: str | None = None
    category: FailureCategory | None = None
    response_status: str | None = None
    provider_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Where the row goes, and what its columns become there."""

    to: State
    next_attempt_at: datetime | None = None
    evidence: Evidence | None = None
    failure_category: FailureCategory | None = None
    failure_code: str | None = None
    gate_reason: GateReason | None = None
    still_open: bool = False
    attempts: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """What decisions need of a configured provider; `replay_window` in seconds, 0 for one that knows no key."""

    name: str
    can_look_up: bool
    replay_window: float


class Policy(Protocol):
    """The budgets and pauses of `tasks.retry_policy`; each method answers in seconds."""

    @property
    def max_attempts(self) -> int: ...
    @property
    def evidence_window(self) -> float: ...
    def after_transient(self, attempt_count: int) -> float: ...
    def after_refusal(self) -> float: ...
    def after_loss(self, lost_count: int) -> float: ...
    def check_again(self, provider: str, *, checks: int, replays: int) -> float | None:
        """When to look up or replay; None: there is nothing to do before the evidence window ends."""


def settle(
    facts: Facts,
    lease_token: int,
    result: AttemptResult,
    policy: Policy,
    *,
    begun_with_open: bool = False,
    pauses: bool = False,
) -> Move:
    """sending -> where `result` leads. `facts` are those before the attempt's outcome was written.

    `begun_with_open` says that an earlier hand-over was open when the lease began: such a lease spends no attempt.
    `pauses` says that the provider is paused with it: the row is due at once then, behind all that waits already, so
    that the next probe is another mail.
    """
    counted = int(not begun_with_open)
    after = facts.with_outcome(lease_token, result.outcome)
    attempt_count = facts.delivery.attempt_count + counted
    match result.outcome:
        case Outcome.ACCEPTED:
            return replace(accept(Evidence.RESPONSE), attempts=counted)
        case Outcome.UNKNOWN:
            return replace(_into_unknown(after, policy), attempts=counted)
        case Outcome.PERMANENT if after.open_attempts:
            return replace(_into_unknown(after, policy), attempts=counted)
        case Outcome.PERMANENT:
            category = result.category or FailureCategory.CONTENT
            return _failed(category, result.error_code or "rejected", attempts=counted)
        case Outcome.TRANSIENT:
            at = facts.now + timedelta(seconds=policy.after_transient(attempt_count))
            exhausted = _exhausted(after, attempt_count, at, result, policy)
            return replace(_back(after, at, policy, exhausted=exhausted), attempts=counted)
        case Outcome.REFUSED_US:
            wait = 0.0 if pauses else policy.after_refusal()
            at = facts.now + timedelta(seconds=wait)
            return _back(after, at, policy, waited_for_provider=True)
        case Outcome.NOT_SENT:
            return _back(after, facts.now, policy)
        case Outcome.LOST:
            raise ValueError("only a reclaim loses a lease")


def reclaim(facts: Facts, policy: Policy) -> Move:
    """sending -> back, once the lease ran out."""
    delivery = facts.delivery
    lost_count = delivery.lost_count + 1
    own = next((a for a in facts.attempts if a.lease_token == delivery.lease_token), None)
    # A result that came between the lease's end and this reclaim stands.
    settled_late = own is not None and own.outcome is not None
    after = facts if settled_late else facts.with_outcome(delivery.lease_token, Outcome.LOST)
    if lost_count >= policy.max_attempts:
        failed = _failed(FailureCategory.INTERNAL, "lease_lost", losses=1)
        return replace(failed, still_open=bool(after.open_attempts))
    at = facts.now + timedelta(seconds=policy.after_loss(lost_count))
    return replace(_back(after, at, policy), losses=1)


def accept(evidence: Evidence) -> Move:
    """Anything but accepted -> accepted. `accepted` never closes a hand-over."""
    return Move(State.ACCEPTED, evidence=evidence, still_open=True)


def close_gate(facts: Facts, reason: GateReason) -> Move | None:
    """pending -> expired or cancelled; sending and unknown keep their state (None), the gate closes all the same."""
    if facts.delivery.status is State.PENDING:
        return replace(_ended_by_gate(reason), gate_reason=reason)
    return None


def end_overdue_pending(*, waited_for_provider: bool) -> Move:
    """pending -> expired, when its gate closed by the clock."""
    return _ended_by_gate(None, waited_for_provider=waited_for_provider)


def end_overdue_unknown(
    facts: Facts, policy: Policy, *, may_replay: bool, paused: bool, has_early_step: bool = False
) -> Move | None:
    """unknown -> back when every attempt is closed, failed when nothing can resolve it any more, else put off.

    `may_replay` says that a replay is or will be allowed; `paused` that its provider does not take mail now. None: the next
    claim takes it.
    """
    if not facts.open_attempts:
        # Not at once: the late answer was a refusal.
        return _back(facts, facts.now + timedelta(seconds=policy.after_refusal()), policy)
    window_end = evidence_window_end(facts.open_attempts, policy)
    if facts.now < window_end:
        if has_early_step and not paused:
            return None
        at = facts.now + timedelta(seconds=policy.after_refusal()) if has_early_step else window_end
        return Move(State.UNKNOWN, next_attempt_at=min(at, window_end), still_open=True)
    if not may_replay:
        return replace(_failed(FailureCategory.UNRESOLVED, "outcome_unresolved"), still_open=True)
    if paused:
        wait = timedelta(seconds=policy.after_refusal())
        return Move(State.UNKNOWN, next_attempt_at=facts.now + wait, still_open=True)
    return None


def resolve_failed() -> Move:
    """unknown -> failed, by an operator: nobody will know. The hand-over stays open, so that late evidence still counts."""
    return replace(_failed(FailureCategory.UNRESOLVED, OPERATOR_RESOLVED), still_open=True)


def resolve_not_sent(facts: Facts) -> Move:
    """unknown -> pending, by an operator who knows that no provider has it: the gate decides, as it does for all."""
    for attempt in facts.open_attempts:
        facts = facts.with_outcome(attempt.lease_token, Outcome.NOT_SENT)
    return _into_pending(facts, facts.now, exhausted=None, waited_for_provider=False)


def may_replay(facts: Facts, provider: ProviderTraits | None, unknown_budget: int) -> bool:
    """Whether the open hand-over may be repeated now or later: gate open, provider still ours, key and budget left."""
    if provider is None or facts.gate_is_closed or not facts.open_attempts:
        return False
    if not provider.replay_window:
        return facts.delivery.replay_count < 1
    first = facts.open_attempts[0].handed_over_at
    assert first is not None, "an open attempt was handed over"
    in_window = facts.now < first + timedelta(seconds=provider.replay_window)
    return in_window and facts.delivery.replay_count < unknown_budget


def evidence_window_end(open_attempts: Iterable[Attempt], policy: Policy) -> datetime:
    """When evidence for the last open hand-over stops being waited for."""
    last = max(attempt.handed_over_at for attempt in open_attempts if attempt.handed_over_at)
    return last + timedelta(seconds=policy.evidence_window)


def is_live(delivery: Delivery) -> bool:
    """Whether the delivery has not ended."""
    return delivery.status in LIVE


def _back(
    facts: Facts,
    at: datetime,
    policy: Policy,
    *,
    exhausted: Move | None = None,
    waited_for_provider: bool = False,
) -> Move:
    """unknown while a hand-over is open, else towards pending. An open hand-over is sticky (G4)."""
    if facts.open_attempts:
        return _into_unknown(facts, policy)
    return _into_pending(facts, at, exhausted=exhausted, waited_for_provider=waited_for_provider)


def _into_pending(facts: Facts, at: datetime, *, exhausted: Move | None, waited_for_provider: bool) -> Move:
    """The one way into pending: through the gate, then the budget."""
    if facts.gate_is_closed:
        return _ended_by_gate(facts.delivery.gate_reason, waited_for_provider=waited_for_provider)
    return exhausted or Move(State.PENDING, next_attempt_at=at)


def _into_unknown(facts: Facts, policy: Policy) -> Move:
    window_end = evidence_window_end(facts.open_attempts, policy)
    first = facts.open_attempts[0]
    # The lease that ends here counts too: of a look-up there is no attempt yet.
    leases = {facts.delivery.lease_token, *(attempt.lease_token for attempt in facts.attempts)}
    checks = sum(token > first.lease_token for token in leases)
    assert first.provider is not None, "a hand-over names its provider"
    wait = policy.check_again(first.provider, checks=checks, replays=facts.delivery.replay_count)
    at = window_end if wait is None else facts.now + timedelta(seconds=wait)
    if facts.now < window_end:
        at = min(at, window_end)
    if at <= facts.now:  # a replay was due and did not happen: not again at once, and more and more seldom
        at = facts.now + timedelta(seconds=policy.after_transient(max(checks, 1)))
    return Move(State.UNKNOWN, next_attempt_at=at, still_open=True)


def _exhausted(
    facts: Facts, attempt_count: int, at: datetime, result: AttemptResult, policy: Policy
) -> Move | None:
    if attempt_count >= policy.max_attempts or at >= facts.delivery.send_before:
        return _failed(result.category or FailureCategory.EXHAUSTED, result.error_code or "not_now")
    return None


def _ended_by_gate(reason: GateReason | None, *, waited_for_provider: bool = False) -> Move:
    if reason is GateReason.CANCELLED:
        return Move(State.CANCELLED)
    if waited_for_provider:
        return Move(
            State.EXPIRED,
            failure_category=FailureCategory.CONFIG,
            failure_code="provider_unavailable",
        )
    return Move(State.EXPIRED)


def _failed(category: FailureCategory, code: str, *, attempts: int = 0, losses: int = 0) -> Move:
    return Move(
        State.FAILED,
        failure_category=category,
        failure_code=code,
        attempts=attempts,
        losses=losses,
    )
