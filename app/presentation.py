"""Domain values as the API's JSON: public ids, plain dictionaries for the schemas."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app import config
from app.disposable import DisposablePolicy, is_listed
from db.changes import FeedChange
from db.consumption import Consumed
from db.ids import public
from db.views import OperatorAction, Receipt, Verification


def verification(value: Verification) -> dict[str, Any]:
    """What `VerificationSchema` shows."""
    return {
        "verification_id": public("ver", value.id),
        "account_id": value.account_id,
        "purpose": value.purpose,
        "email_masked": value.email_masked,
        "phase": value.phase,
        "verification_status": value.status,
        "delivery_id": public("dlv", value.delivery_id),
        "delivery_status": value.delivery_status,
        "retryable": value.retryable,
        "retry_at": value.retry_at,
        "expires_at": value.expires_at,
        "created_at": value.created_at,
        "consumed_at": value.consumed_at,
        "next_attempt_at": value.next_attempt_at,
        "correlation_id": value.correlation_id,
        "idempotency_key": value.idempotency_key,
        "superseded_by": public("ver", value.superseded_by) if value.superseded_by else None,
        "mail_event": value.mail_event,
        "mail_event_at": value.mail_event_at,
        "failure": value.failure,
        "metadata": value.metadata,
        "suggestion": value.suggestion,
        "disposable": _is_flagged(value),
    }


def _is_flagged(value: Verification) -> bool:
    """By today's list, for as long as the domain is known: nothing is stored."""
    if config.disposable_policy() is DisposablePolicy.ALLOW:
        return False
    return is_listed(value.email_masked.rpartition("@")[2])


def receipt(value: Receipt) -> dict[str, Any]:
    """What `ReceiptSchema` shows."""
    known = value.known
    return {
        "verification": verification(known.verification),
        "delivery": {**asdict(known.delivery), "delivery_id": public("dlv", known.delivery.id)},
        "attempts": known.attempts,
        "events": sorted(
            [*map(asdict, known.events), *map(_operation, known.actions)], key=lambda e: e["received_at"]
        ),
        "timeline": value.timeline,
        "next_action": value.next_action,
    }


def _operation(action: OperatorAction) -> dict[str, Any]:
    """What an operator did, in the shape of what a provider says."""
    return {
        "provider": "operator",
        "event_id": public("opr", action.id),
        "kind": f"operator_{action.action}",
        "occurred_at": action.at,
        "received_at": action.at,
        "applied_at": action.at,
    }


def change(value: FeedChange) -> dict[str, Any]:
    """What `ChangeSchema` shows."""
    subject = "verification" if value.delivery_id is None else "delivery"
    return {
        "cursor": str(value.seq),
        "at": value.at,
        "event": f"{subject}.{value.after}",
        "verification_id": public("ver", value.verification_id),
        "delivery_id": public("dlv", value.delivery_id) if value.delivery_id else None,
        "account_id": value.account_id,
        "purpose": value.purpose,
        "before": value.before,
        "after": value.after,
        "code": value.code,
        "evidence": value.evidence,
    }


def consumed(value: Consumed) -> dict[str, Any]:
    """What `ConsumedSchema` shows."""
    return {
        "verification_id": public("ver", value.verification_id),
        "purpose": value.purpose,
        "consumed_at": value.consumed_at,
        "return_url": value.return_url,
    }
