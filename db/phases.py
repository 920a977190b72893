"""What a caller makes of a verification and its delivery: `phase`, `retryable`, `retry_at`. Pure; tables below."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from db.delivery_state import State


class Status(StrEnum):
    """`verifications.status`."""

    REQUESTED = "requested"
    CONSUMED = "consumed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class CancelledBy(StrEnum):
    """`verifications.cancelled_by`: who did not want it any more."""

    CLIENT = "client"
    RECIPIENT = "recipient"
    OPERATOR = "operator"


class Phase(StrEnum):
    """Both machines in one word."""

    QUEUED = "queued"
    LEASED = "leased"
    AWAITING_RECONCILIATION = "awaiting_reconciliation"
    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CONSUMED = "consumed"


# The verification speaks first; while it is requested, its delivery does.
_OF_STATUS = MappingProxyType(
    {
        Status.CONSUMED: Phase.CONSUMED,
        Status.CANCELLED: Phase.CANCELLED,
        Status.EXPIRED: Phase.EXPIRED,
        Status.SUPERSEDED: Phase.EXPIRED,
    }
)
_OF_STATE = MappingProxyType(
    {
        State.PENDING: Phase.QUEUED,
        State.SENDING: Phase.LEASED,
        State.UNKNOWN: Phase.AWAITING_RECONCILIATION,
        State.ACCEPTED: Phase.DELIVERED,
        State.FAILED: Phase.FAILED,
        State.EXPIRED: Phase.EXPIRED,
        State.CANCELLED: Phase.CANCELLED,
    }
)

# Phases that something can still move: a caller may poll.
MOVING = frozenset({Phase.QUEUED, Phase.LEASED, Phase.AWAITING_RECONCILIATION, Phase.DELIVERED})


def phase(status: Status, state: State) -> Phase:
    """One word for a verification in `status` whose delivery is in `state`."""
    return _OF_STATUS.get(status) or _OF_STATE[state]


# Would a new request make sense, by the verification alone; a requested one asks its delivery.
_RETRYABLE_STATUS = MappingProxyType(
    {
        Status.CONSUMED: False,  # it is confirmed
        Status.SUPERSEDED: False,  # the newer one is the one to ask
        Status.EXPIRED: True,
        Status.CANCELLED: True,
    }
)
_RETRYABLE_STATE = MappingProxyType(
    {
        State.PENDING: False,
        State.SENDING: False,
        State.UNKNOWN: False,
        State.ACCEPTED: False,  # the token in that mail still works
        State.FAILED: True,
        State.EXPIRED: True,
        State.CANCELLED: True,
    }
)


def retryable(status: Status, state: State, mail_event: str | None) -> bool:
    """Whether a new request would make sense now. `mail_event` is the provider's latest word on the mail."""
    if status is not Status.REQUESTED:
        return _RETRYABLE_STATUS[status]
    return mail_event == "bounced" or _RETRYABLE_STATE[state]


def retry_at(status: Status, state: State, mail_event: str | None, expires_at: datetime) -> datetime | None:
    """When `retryable` turns true by itself at the latest; None when it is true already, or never will be."""
    if status is not Status.REQUESTED or retryable(status, state, mail_event):
        return None
    return expires_at
