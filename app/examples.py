"""Examples of requests and answers, by operation, in one place. Tests send each request and compare each answer.

Addresses are on reserved domains, keys and tokens are nobody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """A body to send. `summary` says what it shows."""

    summary: str
    value: Json


_VERIFICATION_ID = "ver_01a22dce57c57462b69eafae1e780dd6"
_DELIVERY_ID = "dlv_01a22dce57c576e49b095228419d7ea6"
_RETURN_URL = "https://host.example/welcome"
IDS: Mapping[str, str] = MappingProxyType({"verification_id": _VERIFICATION_ID, "delivery_id": _DELIVERY_ID})
RETURN_URL = _RETURN_URL  # what a client must allow for the examples to work

_VERIFICATION: Json = {
    "verification_id": _VERIFICATION_ID,
    "account_id": "42",
    "purpose": "signup",
    "email_masked": "a***@example.com",
    "phase": "queued",
    "verification_status": "requested",
    "delivery_id": _DELIVERY_ID,
    "delivery_status": "pending",
    "retryable": False,
    "retry_at": "2026-12-01T18:53:47.120000Z",
    "expires_at": "2026-12-01T18:53:47.120000Z",
    "created_at": "2026-11-30T18:53:47.120000Z",
    "consumed_at": None,
    "next_attempt_at": "2026-11-30T18:53:47.120000Z",
    "correlation_id": "req_01a22dce57ba71079507443af98a55fb",
    "idempotency_key": "welcome-42",
    "superseded_by": None,
    "mail_event": None,
    "mail_event_at": None,
    "failure": None,
    "metadata": {"plan": "team"},
    "suggestion": None,
    "disposable": False,
}
_CONSUMED: Json = {
    "verification_id": _VERIFICATION_ID,
    "purpose": "signup",
    "consumed_at": "2026-11-30T18:55:02.480000Z",
    "return_url": _RETURN_URL,
}
_DELIVERED: Json = {
    **_VERIFICATION,
    "phase": "delivered",
    "delivery_status": "accepted",
    "next_attempt_at": None,
}
_RECEIPT: Json = {
    "verification": _DELIVERED,
    "delivery": {
        "delivery_id": _DELIVERY_ID,
        "status": "accepted",
        "lease_owner": None,
        "lease_until": None,
        "lease_token": 1,
        "attempt_count": 1,
        "lost_count": 0,
        "replay_count": 0,
        "next_attempt_at": None,
        "send_before": "2026-11-30T22:53:47.120000Z",
        "gate_reason": None,
        "open_provider": None,
        "last_error": None,
        "failure": None,
        "provider": "smtp/mail.example",
        "idempotency_key": "dlv_01a22dce57c576e49b095228419d7ea6",
        "provider_message_id": None,
        "evidence": "response",
        "created_at": "2026-11-30T18:53:47.120000Z",
        "completed_at": "2026-11-30T18:53:47.525000Z",
    },
    "attempts": [
        {
            "lease_token": 1,
            "worker": "host:26056:15",
            "provider": "smtp/mail.example",
            "started_at": "2026-11-30T18:53:47.451000Z",
            "handed_over_at": "2026-11-30T18:53:47.518000Z",
            "finished_at": "2026-11-30T18:53:47.525000Z",
            "outcome": "accepted",
            "stale": False,
            "response_status": "250 2.0.0",
            "error_code": None,
            "provider_message_id": None,
            "correlation_id": "req_01a22dce57ba71079507443af98a55fb",
            "release": None,
        }
    ],
    "events": [],
    "timeline": [
        {
            "at": "2026-11-30T18:53:47.120000Z",
            "event": "verification.requested",
            "by": "client",
            "detail": "signup of a***@example.com, valid until 2026-12-01 18:53:47 UTC",
        },
        {
            "at": "2026-11-30T18:53:47.525000Z",
            "event": "attempt.accepted",
            "by": "provider smtp/mail.example",
            "detail": "the provider took it; answer 250 2.0.0",
        },
    ],
    "next_action": {
        "code": "wait_for_recipient",
        "text": "The provider took the mail; the person has until 2026-12-01 18:53:47 UTC to confirm.",
        "at": "2026-12-01T18:53:47.120000Z",
    },
}
_CANCELLED: Json = {
    **_DELIVERED,
    "phase": "cancelled",
    "verification_status": "cancelled",
    "retryable": True,
    "retry_at": None,
}
_CHANGE: Json = {
    "cursor": "1042",
    "at": "2026-11-30T18:53:47.525000Z",
    "event": "delivery.accepted",
    "verification_id": _VERIFICATION_ID,
    "delivery_id": _DELIVERY_ID,
    "account_id": "42",
    "purpose": "signup",
    "before": "sending",
    "after": "accepted",
    "code": None,
    "evidence": "response",
}
_BRANDING: Json = {
    "name": "Example Shop",
    "colours": {"button": "#0b6b3a", "button_text": "#ffffff"},
    "wording": {
        "en": {"subject": "Your address at {name}", "lead.signup": "Welcome to {name}! One step is left."}
    },
}
_STORED_BRANDING: Json = {
    "branding_id": "brd_01a22dce57c57d0fa3a9d21b4c6e8f10",
    "set_at": "2026-11-30T18:50:00.000000Z",
    "branding": _BRANDING,
}
RECEIPT_TEXT = (
    f"Verification {_VERIFICATION_ID}: delivered\n  for        a***@example.com (account 42, signup)\n"
)

REQUESTS: Mapping[str, Mapping[str, Request]] = MappingProxyType(
    {
        "verifications_create": {
            "least": Request("What is needed", {"account_id": "42", "email": "ada@example.com"}),
            "all": Request(
                "Everything there is",
                {
                    "account_id": "43",
                    "email": "grace@example.com",
                    "purpose": "email_change",
                    "expires_in": 3600,
                    "locale": "de-AT",
                    "return_url": _RETURN_URL,
                    "metadata": {"plan": "team", "seats": 12},
                },
            ),
        },
        "verifications_cancel": {"nothing": Request("No body is needed; an empty object will do", {})},
        "tokens_consume": {
            "typed": Request("As a person types it", {"token": "k7mq 2x9d 4tr0 8wza"}),
        },
        "branding_replace": {"some": Request("A name, colours and a few words", _BRANDING)},
        "branding_preview": {
            "german": Request(
                "One that is not set yet", {"branding": _BRANDING, "purpose": "signup", "locale": "de"}
            )
        },
    }
)

# What is answered when all goes well.
ANSWERS: Mapping[str, Json] = MappingProxyType(
    {
        "verifications_create": _VERIFICATION,
        "verifications_show": _DELIVERED,
        "verifications_receipt": _RECEIPT,
        "verifications_list": {"items": [_DELIVERED], "next_cursor": None},
        "verifications_cancel": _CANCELLED,
        "verifications_token": {
            "verification_id": _VERIFICATION_ID,
            "token": "K7MQ-2X9D-4TR0-8WZA",
            "link": "https://verify.host.example/verify#K7MQ-2X9D-4TR0-8WZA",
        },
        "changes_list": {"items": [_CHANGE], "next_cursor": "1042"},
        "tokens_consume": _CONSUMED,
        "branding_show": _STORED_BRANDING,
        "branding_replace": _STORED_BRANDING,
        "branding_reset": {"branding_id": None, "set_at": None, "branding": None},
        "branding_preview": {
            "subject": "Your address at Example Shop",
            "text": "Welcome to Example Shop! One step is left.\n…",
            "html": "<!doctype html>…",
        },
    }
)

# Members of problems beyond those that all have, by code.
MORE: Mapping[str, Json] = MappingProxyType(
    {
        "invalid_request": {
            "errors": [{"pointer": "/email", "code": "required", "detail": "This field is needed."}]
        },
        "verification_expired": {"reason": "superseded", "newer_exists": True},
        "resend_cooldown": {"verification_id": _VERIFICATION_ID},
        "rate_limited": {"limit": "create_by_client"},
    }
)

_BY_ID: Json = {"parameters": {"verification_id": "$response.body#/verification_id"}}
_FIRST: Json = {"parameters": {"verification_id": "$response.body#/items/0/verification_id"}}
_BY_ACCOUNT: Json = {"parameters": {"account_id": "$response.body#/account_id"}}
# Where an answer leads: operation -> operation -> which of its values goes where.
LINKS: Mapping[str, Mapping[str, Json]] = MappingProxyType(
    {
        "verifications_create": {
            "verifications_show": _BY_ID,
            "verifications_receipt": _BY_ID,
            "verifications_cancel": _BY_ID,
            "verifications_token": _BY_ID,
            "verifications_list": _BY_ACCOUNT,
        },
        "verifications_cancel": {"verifications_show": _BY_ID, "verifications_receipt": _BY_ID},
        "verifications_list": {"verifications_show": _FIRST, "verifications_cancel": _FIRST},
        "verifications_token": {
            "tokens_consume": {"requestBody": {"token": "$response.body#/token"}},
            "verifications_show": _BY_ID,
        },
        "changes_list": {
            "verifications_show": _FIRST,
            "changes_list": {"parameters": {"after": "$response.body#/next_cursor"}},
        },
        "tokens_consume": {"verifications_show": _BY_ID, "verifications_cancel": _BY_ID},
    }
)
