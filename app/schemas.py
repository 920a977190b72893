"""The shapes of requests and answers. Shapes only: what needs settings or the database is checked where it is used.

Messages are `Complaint`s: text with the stable code that goes into `errors[].code`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from app.errors import FieldError
from app.strict_json import escape
from db.phases import Phase, Status

_LONGEST_METADATA = 4096
_MOST_ERRORS = 50  # of a body with thousands of unknown fields
_LONGEST_LIFE = 30 * 86_400  # a month: nobody confirms later
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # and what turns text around


class Complaint(str):
    """A validation message with its code."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, text: str) -> Complaint:
        made = super().__new__(cls, text)
        made.code = code
        return made


_COMMON = {
    "required": Complaint("required", "This field is needed."),
    "null": Complaint("invalid_type", "This field may be left out but not be null."),
    "validator_failed": Complaint("invalid", "This value is not valid."),
}


class Text(fields.String):
    """A string, nothing converted into one."""

    default_error_messages = {  # noqa: RUF012 (marshmallow's protocol)
        **_COMMON,
        "invalid": Complaint("invalid_type", "This must be a string."),
        "invalid_utf8": Complaint("invalid_type", "This must be a string."),
    }

    def __init__(self, shortest: int, longest: int, pattern: str = rf"[^{_CONTROL}]*", **kwargs: Any) -> None:
        super().__init__(
            validate=[
                validate.Length(
                    shortest,
                    longest,
                    error=Complaint("invalid_length", f"Use {shortest} to {longest} characters."),
                ),
                validate.Regexp(
                    rf"\A(?:{pattern})\Z",
                    error=Complaint("invalid_format", "This has characters it must not have."),
                ),
            ],
            **kwargs,
        )


class Seconds(fields.Float):
    """A number of seconds, not a string of digits."""

    default_error_messages = {  # noqa: RUF012
        **_COMMON,
        "invalid": Complaint("invalid_type", "This must be a number of seconds."),
        "too_large": Complaint("invalid_type", "This must be a number of seconds."),
        "special": Complaint("invalid_type", "This must be a number of seconds."),
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.make_error("invalid")
        if not 0 < value <= _LONGEST_LIFE or not math.isfinite(value):
            raise ValidationError(
                Complaint("out_of_range", f"Use more than 0 and at most {_LONGEST_LIFE} seconds.")
            )
        return float(value)


class Metadata(fields.Dict):
    """An object of the caller's own, kept and given back."""

    default_error_messages = {**_COMMON, "invalid": Complaint("invalid_type", "This must be an object.")}  # noqa: RUF012

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise self.make_error("invalid")
        if len(json.dumps(value, separators=(",", ":"))) > _LONGEST_METADATA:
            raise ValidationError(
                Complaint("too_large", f"Use at most {_LONGEST_METADATA} characters of JSON.")
            )
        return value


class Instant(fields.DateTime):
    """RFC 3339 in UTC, with a Z."""

    def _serialize(self, value: Any, attr: str | None, obj: Any, **kwargs: Any) -> str | None:
        return None if value is None else instant(value)


def instant(value: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`: always six digits, so that text sorts as time does."""
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


class _Request(Schema):
    class Meta:
        unknown = RAISE

    error_messages = {  # noqa: RUF012
        "unknown": Complaint("unknown_field", "There is no such field."),
        "type": Complaint("invalid_type", "The body must be a JSON object."),
    }


class NewVerificationSchema(_Request):
    """`POST /v1/verifications`."""

    account_id = Text(1, 255, required=True, metadata={"description": "Your own id of the account."})
    email = Text(
        3, 320, required=True, metadata={"description": "Who is to be verified, exactly as it is mailed to."}
    )
    purpose = Text(
        1,
        64,
        r"[a-z][a-z0-9_-]*",
        load_default="signup",
        metadata={"description": "`signup`, `email_change`, or a word of your own."},
    )
    expires_in = Seconds(load_default=None, metadata={"description": "How long the token lives, in seconds."})
    locale = Text(2, 35, r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", load_default=None)
    return_url = Text(8, 2000, r"https?://[!-~]+", load_default=None)
    metadata = Metadata(load_default=None)


class ConsumeSchema(_Request):
    """`POST /v1/tokens/consume`."""

    token = Text(
        1, 255, r"[\s\S]*", required=True, metadata={"description": "As in the mail; spelling is forgiven."}
    )


class FailureSchema(Schema):
    """Why a delivery ended without acceptance."""

    category = fields.String()
    code = fields.String()
    action = fields.String()


class VerificationSchema(Schema):
    """A verification and its delivery."""

    verification_id = fields.String(required=True)
    account_id = fields.String(required=True)
    purpose = fields.String(required=True)
    email_masked = fields.String(required=True)
    phase = fields.Enum(Phase, by_value=True, required=True)
    verification_status = fields.Enum(Status, by_value=True, required=True)
    delivery_id = fields.String(required=True)
    delivery_status = fields.String(required=True)
    retryable = fields.Boolean(required=True)
    retry_at = Instant(allow_none=True, required=True)
    expires_at = Instant(required=True)
    created_at = Instant(required=True)
    consumed_at = Instant(allow_none=True, required=True)
    next_attempt_at = Instant(allow_none=True, required=True)
    correlation_id = fields.String(required=True)
    idempotency_key = fields.String(required=True)
    superseded_by = fields.String(allow_none=True, required=True)
    mail_event = fields.String(allow_none=True, required=True)
    mail_event_at = Instant(allow_none=True, required=True)
    failure = fields.Nested(FailureSchema, allow_none=True, required=True)
    metadata = fields.Dict(allow_none=True, required=True)
    suggestion = fields.String(allow_none=True, required=True)


class DeliverySchema(Schema):
    """The delivery, for those who look after it."""

    delivery_id = fields.String(required=True)
    status = fields.String(required=True)
    lease_owner = fields.String(allow_none=True)
    lease_until = Instant(allow_none=True)
    lease_token = fields.Integer(required=True)
    attempt_count = fields.Integer(required=True)
    lost_count = fields.Integer(required=True)
    replay_count = fields.Integer(required=True)
    next_attempt_at = Instant(allow_none=True)
    send_before = Instant(allow_none=True)
    gate_reason = fields.String(allow_none=True)
    open_provider = fields.String(allow_none=True)
    last_error = fields.String(allow_none=True)
    failure = fields.Nested(FailureSchema, allow_none=True)
    provider = fields.String(allow_none=True)
    idempotency_key = fields.String(allow_none=True)
    provider_message_id = fields.String(allow_none=True)
    evidence = fields.String(allow_none=True)
    created_at = Instant(required=True)
    completed_at = Instant(allow_none=True)


class AttemptSchema(Schema):
    """What one lease did."""

    lease_token = fields.Integer(required=True)
    worker = fields.String(required=True)
    provider = fields.String(allow_none=True)
    started_at = Instant(required=True)
    handed_over_at = Instant(allow_none=True)
    finished_at = Instant(allow_none=True)
    outcome = fields.String(allow_none=True)
    stale = fields.Boolean(required=True)
    response_status = fields.String(allow_none=True)
    error_code = fields.String(allow_none=True)
    provider_message_id = fields.String(allow_none=True)
    correlation_id = fields.String(required=True)
    release = fields.String(allow_none=True)


class EventSchema(Schema):
    """What a provider said by itself."""

    provider = fields.String(required=True)
    event_id = fields.String(required=True)
    kind = fields.String(required=True)
    occurred_at = Instant(allow_none=True)
    received_at = Instant(required=True)
    applied_at = Instant(allow_none=True)


class TimelineSchema(Schema):
    """One thing that happened."""

    at = Instant(required=True)
    event = fields.String(required=True)
    by = fields.String(allow_none=True)
    detail = fields.String(allow_none=True)


class NextActionSchema(Schema):
    """What happens next, and why."""

    code = fields.String(required=True)
    text = fields.String(required=True)
    at = Instant(allow_none=True)


class ReceiptSchema(Schema):
    """All that is known of one verification."""

    verification = fields.Nested(VerificationSchema, required=True)
    delivery = fields.Nested(DeliverySchema, required=True)
    attempts = fields.List(fields.Nested(AttemptSchema), required=True)
    events = fields.List(fields.Nested(EventSchema), required=True)
    timeline = fields.List(fields.Nested(TimelineSchema), required=True)
    next_action = fields.Nested(NextActionSchema, required=True)


class ConsumedSchema(Schema):
    """A confirmation."""

    verification_id = fields.String(required=True)
    purpose = fields.String(required=True)
    consumed_at = Instant(required=True)
    return_url = fields.String(allow_none=True, required=True)


class FieldErrorSchema(Schema):
    """What is wrong with one field."""

    pointer = fields.String(required=True)
    code = fields.String(required=True)
    detail = fields.String(required=True)


class ProblemSchema(Schema):
    """RFC 9457."""

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    code = fields.String(required=True)
    detail = fields.String(required=True)
    request_id = fields.String(required=True)
    errors = fields.List(fields.Nested(FieldErrorSchema))


def field_errors(messages: Mapping[str, Any]) -> list[FieldError]:
    """marshmallow's messages as `errors[]`, one a field, in the order of their pointers, the first of many."""
    found = []
    for name, texts in messages.items():
        pointer = "" if name == "_schema" else f"/{escape(str(name))}"
        text = texts[0] if isinstance(texts, list) else Complaint("invalid", "This value is not valid.")
        found.append(FieldError(pointer, getattr(text, "code", "invalid"), str(text)))
    return sorted(found, key=lambda error: error.pointer)[:_MOST_ERRORS]
