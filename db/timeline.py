"""A verification's history in one list, oldest first. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from db import advice
from db.delivery_rules import OPERATOR_RESOLVED
from db.delivery_state import Outcome
from db.phases import Status
from db.views import (
    Attempt,
    Change,
    Known,
    OperatorAction,
    ProviderEvent,
    TimelineEntry,
    Verification,
    clock,
)

# Who ends a verification so; time does the rest. Of a cancellation the change itself says who asked for it, unless an
# older release wrote it.
_ENDED_BY = {"consumed": "recipient", "superseded": "client", "cancelled": "client or recipient"}

_OUTCOME_WORDS = {
    Outcome.ACCEPTED: "the provider took it",
    Outcome.TRANSIENT: "refused for now",
    Outcome.PERMANENT: "refused for good",
    Outcome.UNKNOWN: "no answer: the provider may have it",
    Outcome.REFUSED_US: "the provider refuses us or cannot be reached; nothing was sent",
    Outcome.NOT_SENT: "nothing was sent",
    Outcome.LOST: "the lease ran out; the worker died or was too late",
}

# A look-up's lease ends `not_sent`, which is true of it and would be read as said of the mail.
_LOOKED_UP = {
    "lookup_found": "the provider was asked: it has the mail",
    "lookup_not_found": "the provider was asked: it does not know the mail (yet); that proves nothing",
    "lookup_failed": "the provider was asked, and gave no answer that could be used",
}


def build(known: Known) -> tuple[TimelineEntry, ...]:
    """Requests, claims, hand-overs, outcomes, provider events and state changes in the order of their instants."""
    entries = [_requested(known.verification)]
    for attempt in known.attempts:
        entries += _of_attempt(attempt)
    entries += [_of_action(action) for action in known.actions]
    entries += [_of_change(change, leaked=known.token_leaked) for change in known.changes]
    entries += [_of_event(event) for event in known.events]
    # Stable: what happened at the same instant stays in the order of cause and effect.
    return tuple(sorted(entries, key=lambda entry: entry.at))


def _requested(verification: Verification) -> TimelineEntry:
    detail = (
        f"{verification.purpose} of {verification.email_masked}, valid until {clock(verification.expires_at)}"
    )
    return TimelineEntry(verification.created_at, "verification.requested", "client", detail)


def _of_attempt(attempt: Attempt) -> Iterator[TimelineEntry]:
    by = f"worker {attempt.worker}"
    yield TimelineEntry(attempt.started_at, "attempt.claimed", by, f"lease {attempt.lease_token}")
    if attempt.handed_over_at:
        detail = f"to {attempt.provider}: from here on the provider may have the mail"
        yield TimelineEntry(attempt.handed_over_at, "attempt.handed_over", by, detail)
    if attempt.finished_at and attempt.outcome:
        said_by = f"provider {attempt.provider}" if attempt.response_status else by
        if attempt.error_code == OPERATOR_RESOLVED:
            said_by = "operator"
        event = "looked_up" if attempt.error_code in _LOOKED_UP else attempt.outcome
        yield TimelineEntry(attempt.finished_at, f"attempt.{event}", said_by, _outcome_detail(attempt))


def _outcome_detail(attempt: Attempt) -> str:
    assert attempt.outcome is not None
    found = _LOOKED_UP.get(attempt.error_code or "")
    if found:
        parts = [found, attempt.response_status and f"answer {attempt.response_status}"]
        return "; ".join(part for part in parts if part)
    parts = [
        _OUTCOME_WORDS[attempt.outcome],
        attempt.response_status and f"answer {attempt.response_status}",
        attempt.provider_message_id and f"provider id {attempt.provider_message_id}",
        attempt.error_code if attempt.outcome is not Outcome.ACCEPTED else None,
        "too late to change the delivery" if attempt.stale else None,
        advice.cause(attempt.error_code) if attempt.outcome is not Outcome.ACCEPTED else None,
    ]
    return "; ".join(part for part in parts if part)


def _of_change(change: Change, *, leaked: bool) -> TimelineEntry:
    if change.delivery_id is None:
        if leaked and change.after == Status.CONSUMED:
            return TimelineEntry(
                change.at, "verification.consumed", "somebody", "no mail had left with the token"
            )
        by = change.code or _ENDED_BY.get(change.after)
        return TimelineEntry(change.at, f"verification.{change.after}", by, None)
    parts = [
        f"was {change.before}" if change.before else "waits for a worker",
        change.evidence and f"evidence: {change.evidence}",
        change.code if change.before and not change.evidence else None,
    ]
    return TimelineEntry(
        change.at, f"delivery.{change.after}", None, "; ".join(part for part in parts if part)
    )


def _of_action(action: OperatorAction) -> TimelineEntry:
    by = f"operator {action.operator}" if action.operator else "operator"
    parts = [
        f"was {action.from_state}, became {action.to_state}",
        action.reason and f"because: {action.reason}",
    ]
    return TimelineEntry(
        action.at, f"operator.{action.action}", by, "; ".join(part for part in parts if part)
    )


def _of_event(event: ProviderEvent) -> TimelineEntry:
    return TimelineEntry(
        event.occurred_at or event.received_at, f"provider.{event.kind}", f"provider {event.provider}", None
    )
