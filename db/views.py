"""What callers and operators see of a verification: frozen values, made by `db.receipts`.

Times are PostgreSQL's, with their zone. Addresses are masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from db import phases
from db.delivery_state import Outcome, State
from db.phases import Phase, Status


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a delivery ended without acceptance; `action` is a sentence that says what to do."""

    category: str
    code: str
    action: str


@dataclass(frozen=True, slots=True)
class Verification:
    """A verification and its delivery as the API shows them."""

    id: UUID
    client_id: UUID
    account_id: str
    purpose: str
    email_masked: str
    status: Status
    delivery_id: UUID
    delivery_status: State
    expires_at: datetime
    created_at: datetime
    consumed_at: datetime | None
    next_attempt_at: datetime | None
    correlation_id: str
    idempotency_key: str
    superseded_by: UUID | None
    mail_event: str | None
    mail_event_at: datetime | None
    failure: Failure | None
    metadata: Mapping[str, Any] | None
    suggestion: str | None  # what may have been meant, masked

    @property
    def phase(self) -> Phase:
        return phases.phase(self.status, self.delivery_status)

    @property
    def retryable(self) -> bool:
        return phases.retryable(self.status, self.delivery_status, self.mail_event)

    @property
    def retry_at(self) -> datetime | None:
        return phases.retry_at(self.status, self.delivery_status, self.mail_event, self.expires_at)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outbox row, for those who look after it. `send_before` is None once the gate was closed early."""

    id: UUID
    status: State
    lease_owner: str | None
    lease_until: datetime | None
    lease_token: int
    attempt_count: int
    lost_count: int
    replay_count: int
    next_attempt_at: datetime | None
    send_before: datetime | None
    gate_reason: str | None
    open_provider: str | None
    last_error: str | None
    failure: Failure | None
    provider: str | None
    idempotency_key: str | None
    provider_message_id: str | None
    evidence: str | None
    created_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one lease did."""

    lease_token: int
    worker: str
    provider: str | None
    started_at: datetime
    handed_over_at: datetime | None
    finished_at: datetime | None
    outcome: Outcome | None
    stale: bool
    response_status: str | None
    error_code: str | None
    provider_message_id: str | None
    correlation_id: str
    release: str | None


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """What a provider said by itself."""

    provider: str
    event_id: str
    kind: str
    occurred_at: datetime | None
    received_at: datetime
    applied_at: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """A transition of the verification (`delivery_id` is None) or of its delivery; `before` None: it was created."""

    at: datetime
    delivery_id: UUID | None
    before: str | None
    after: str
    code: str | None
    provider: str | None
    evidence: str | None


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """What an operator did to the delivery and why; `operator` and `reason` are None once anonymised."""

    id: UUID
    at: datetime
    action: str
    operator: str | None
    reason: str | None
    from_state: State
    to_state: State


@dataclass(frozen=True, slots=True)
class Pause:
    """A provider that takes no mail from `sender` until `until`; `by_operator`: because an operator said so."""

    provider: str
    sender: str
    until: datetime
    code: str
    refused_at: datetime
    by_operator: bool


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider that workers used lately, for whichever delivery; `accepted_at`: the start of what it took last."""

    name: str
    accepted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known of one verification, as of `now`."""

    verification: Verification
    delivery: Delivery
    attempts: tuple[Attempt, ...]
    events: tuple[ProviderEvent, ...]
    changes: tuple[Change, ...]
    actions: tuple[OperatorAction, ...]
    pauses: tuple[Pause, ...]
    providers: tuple[Provider, ...]
    swept_at: datetime | None  # when a worker last began to sweep
    now: datetime

    @property
    def token_leaked(self) -> bool:
        """Whether the token was used although no mail with it had left."""
        handed_over = any(attempt.handed_over_at for attempt in self.attempts)
        return self.verification.status is Status.CONSUMED and not handed_over


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened: when, what, who did it (None: the passage of time), and more in words."""

    at: datetime
    event: str
    by: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class NextAction:
    """What happens next and why, for somebody who is on call. `at` is None when nothing is scheduled."""

    code: str
    text: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The durable, readable statement about one verification."""

    known: Known
    timeline: tuple[TimelineEntry, ...]
    next_action: NextAction


def mask(email: str | None) -> str:
    """`ada@example.com` -> `a***@example.com`; an anonymised address -> `***`."""
    if email is None:
        return "***"
    local, _, domain = email.rpartition("@")
    return f"{local[:1] if len(local) > 1 else ''}***@{domain}"


def clock(at: datetime) -> str:
    """An instant for people: `2026-01-31 12:00:00 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
