"""The states of a delivery, the events that move it, and where each event may lead. Standard library only.

This table is the one truth: the CHECK constraints (`db.models`), the SQL (`db/leases.sql`) and the diagram in
`docs/architecture.md` are tested against it.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """`email_outbox.status`."""

    PENDING = "pending"
    SENDING = "sending"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """`delivery_attempts.outcome`: what one lease came to."""

    ACCEPTED = "accepted"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"
    REFUSED_US = "refused_us"
    NOT_SENT = "not_sent"
    LOST = "lost"


class Evidence(StrEnum):
    """`email_outbox.evidence`: what proves that a provider took the mail."""

    RESPONSE = "response"
    LOOKUP = "lookup"
    WEBHOOK = "webhook"
    CONSUMED = "consumed"
    OPERATOR = "operator"


class GateReason(StrEnum):
    """`email_outbox.gate_reason`: why the gate was closed before its time."""

    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    CONSUMED = "consumed"


class Action(StrEnum):
    """`operator_actions.action`: what an operator may do to a delivery."""

    RETRY = "retry"
    RESOLVE = "resolve"
    CANCEL = "cancel"


class FailureCategory(StrEnum):
    """`email_outbox.failure_category`: whose move it is."""

    RECIPIENT = "recipient"
    CONTENT = "content"
    CONFIG = "config"
    EXHAUSTED = "exhausted"
    UNRESOLVED = "unresolved"
    INTERNAL = "internal"


class Event(StrEnum):
    """What can happen to a delivery."""

    CLAIM = "claim"
    HAND_OVER = "hand_over"
    SETTLE_ACCEPTED = "settle_accepted"
    SETTLE_TRANSIENT = "settle_transient"
    SETTLE_PERMANENT = "settle_permanent"
    SETTLE_UNKNOWN = "settle_unknown"
    SETTLE_REFUSED_US = "settle_refused_us"
    SETTLE_NOT_SENT = "settle_not_sent"
    RECLAIM = "reclaim"
    EVIDENCE = "evidence"
    CLOSE_GATE = "close_gate"
    END_OVERDUE = "end_overdue"
    OPERATOR_RETRY = "operator_retry"
    OPERATOR_RESOLVE = "operator_resolve"


TERMINAL = frozenset({State.ACCEPTED, State.FAILED, State.EXPIRED, State.CANCELLED})
LIVE = frozenset(State) - TERMINAL

# An attempt that was handed over stays open (the provider may have the mail) until its own outcome is one of these.
CLOSING_OUTCOMES = frozenset({Outcome.TRANSIENT, Outcome.PERMANENT, Outcome.REFUSED_US, Outcome.NOT_SENT})

_INTO_PENDING = frozenset({State.PENDING, State.EXPIRED, State.CANCELLED})
_BACK = _INTO_PENDING | {State.UNKNOWN}

_S, _E = State, Event
TRANSITIONS: MappingProxyType[tuple[State, Event], frozenset[State]] = MappingProxyType(
    {
        # pending: waits until next_attempt_at; no hand-over is open
        (_S.PENDING, _E.CLAIM): frozenset({_S.SENDING, _S.FAILED}),  # failed: the address is suppressed
        (_S.PENDING, _E.CLOSE_GATE): frozenset({_S.EXPIRED, _S.CANCELLED}),
        (_S.PENDING, _E.END_OVERDUE): frozenset({_S.EXPIRED}),
        (_S.PENDING, _E.EVIDENCE): frozenset({_S.ACCEPTED}),
        (_S.PENDING, _E.OPERATOR_RETRY): frozenset({_S.PENDING}),
        # sending: leased
        (_S.SENDING, _E.HAND_OVER): frozenset({_S.SENDING}),
        (_S.SENDING, _E.SETTLE_ACCEPTED): frozenset({_S.ACCEPTED}),
        (_S.SENDING, _E.SETTLE_TRANSIENT): _BACK | {_S.FAILED},
        (_S.SENDING, _E.SETTLE_PERMANENT): frozenset({_S.FAILED, _S.UNKNOWN}),
        (_S.SENDING, _E.SETTLE_UNKNOWN): frozenset({_S.UNKNOWN}),
        (_S.SENDING, _E.SETTLE_REFUSED_US): _BACK,
        (_S.SENDING, _E.SETTLE_NOT_SENT): _BACK,
        (_S.SENDING, _E.RECLAIM): _BACK | {_S.FAILED},
        (_S.SENDING, _E.CLOSE_GATE): frozenset({_S.SENDING}),
        (_S.SENDING, _E.EVIDENCE): frozenset({_S.ACCEPTED}),
        # unknown: a hand-over is open; waits until next_attempt_at to be looked up or replayed
        (_S.UNKNOWN, _E.CLAIM): frozenset({_S.SENDING, _S.UNKNOWN}),  # unknown: not yet, put off
        (_S.UNKNOWN, _E.CLOSE_GATE): frozenset({_S.UNKNOWN}),
        (_S.UNKNOWN, _E.END_OVERDUE): _BACK | {_S.FAILED},
        (_S.UNKNOWN, _E.EVIDENCE): frozenset({_S.ACCEPTED}),
        # what an operator takes for accepted is evidence, like any other
        (_S.UNKNOWN, _E.OPERATOR_RESOLVE): _INTO_PENDING | {_S.FAILED},
        # the dead can still turn out to have been delivered
        (_S.FAILED, _E.EVIDENCE): frozenset({_S.ACCEPTED}),
        (_S.EXPIRED, _E.EVIDENCE): frozenset({_S.ACCEPTED}),
        (_S.CANCELLED, _E.EVIDENCE): frozenset({_S.ACCEPTED}),
        # and an operator may give them another chance while the verification lives and no hand-over is open
        (_S.FAILED, _E.OPERATOR_RETRY): frozenset({_S.PENDING}),
        (_S.EXPIRED, _E.OPERATOR_RETRY): frozenset({_S.PENDING}),
        (_S.CANCELLED, _E.OPERATOR_RETRY): frozenset({_S.PENDING}),
    }
)

# Columns that exist in some states only: where each must be set, and where it may be. Elsewhere it is null.
REQUIRED_IN: MappingProxyType[str, frozenset[State]] = MappingProxyType(
    {
        "lease_owner": frozenset({_S.SENDING}),
        "lease_until": frozenset({_S.SENDING}),
        "next_attempt_at": frozenset({_S.PENDING, _S.UNKNOWN}),
        "open_provider": frozenset({_S.UNKNOWN}),
        "evidence": frozenset({_S.ACCEPTED}),
        "completed_at": TERMINAL,
        "failure_category": frozenset({_S.FAILED}),
        "failure_code": frozenset({_S.FAILED}),
    }
)
ALLOWED_IN: MappingProxyType[str, frozenset[State]] = MappingProxyType(
    {
        **REQUIRED_IN,
        "open_provider": frozenset({_S.SENDING, _S.UNKNOWN, _S.ACCEPTED, _S.FAILED}),
        # what waited for a paused provider until its gate closed says so
        "failure_category": frozenset({_S.FAILED, _S.EXPIRED}),
        "failure_code": frozenset({_S.FAILED, _S.EXPIRED}),
    }
)


def may_move(before: State, event: Event, after: State) -> bool:
    """Whether `event` may lead from `before` to `after`."""
    return after in TRANSITIONS.get((before, event), frozenset())
