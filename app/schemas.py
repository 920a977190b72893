"""The shapes of requests and answers. Shapes only: what needs settings or the database is checked where it is used.

Messages are `Complaint`s: text with the stable code that goes into `errors[].code`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from app.errors import MOST_ERRORS, FieldError
from app.field_codes import FIELD_CODES
from app.strict_json import LARGEST_INTEGER, escape
from db.delivery_state import Evidence, FailureCategory, GateReason, Outcome, State
from db.phases import Phase, Status

MAIL_EVENTS = ("delivered", "bounced", "complained")
EXPIRED_REASONS = (Status.EXPIRED, Status.SUPERSEDED, Status.CANCELLED)
_LONGEST_METADATA = 4096
_LONGEST_LIFE = 30 * 86_400  # a month: nobody confirms later
_NO_NUL = r"^[^\x00]*$"
# What text of one line must not have, so that what looks the same is the same: controls and line ends; whatever is
# drawn as nothing (Unicode's default ignorables: joiners, fillers, variation selectors, tags) or turns text around;
# private use and noncharacters, which mean something else to everybody. Code points that are not assigned yet pass.
# Lone surrogates are refused before; a pattern that named them would be none for most programs that read the description.
_UNSEEN = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\ufffe\uffff"
    # JSON Schema's patterns have no escape for these that Python knows too.
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U0001fffe\U0001ffff"
    "\U0002fffe\U0002ffff\U0003fffe-\U0010ffff"  # planes without characters, tags, private use
)


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

    def __init__(
        self,
        shortest: int,
        longest: int,
        pattern: str = rf"[^{_UNSEEN}]*",
        *,
        allowed: str = "This has characters it must not have.",
        **kwargs: Any,
    ) -> None:
        """`allowed` says what `pattern` means."""
        self.described = {"pattern": rf"^(?:{pattern})$"}  # as JSON Schema writes it
        super().__init__(
            validate=[
                validate.Length(
                    shortest,
                    longest,
                    error=Complaint(
                        "invalid_length",
                        f"Use {shortest} to {longest} characters."
                        if shortest < longest
                        else f"Use {longest} characters.",
                    ),
                ),
                validate.Regexp(
                    rf"\A(?:{pattern})\Z",
                    error=Complaint("invalid_format", allowed),
                ),
            ],
            **kwargs,
        )


class Seconds(fields.Float):
    """A number of seconds, not a string of digits."""

    described: ClassVar[dict[str, Any]] = {"exclusiveMinimum": 0, "maximum": _LONGEST_LIFE}
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

    described: ClassVar[dict[str, Any]] = {
        "propertyNames": {"pattern": _NO_NUL},
        "additionalProperties": {"$ref": "#/components/schemas/MetadataValue"},
    }
    default_error_messages = {**_COMMON, "invalid": Complaint("invalid_type", "This must be an object.")}  # noqa: RUF012

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise self.make_error("invalid")
        if len(json.dumps(value, separators=(",", ":"))) > _LONGEST_METADATA:
            raise ValidationError(
                Complaint("too_large", f"Use at most {_LONGEST_METADATA} characters of JSON.")
            )
        return value


# What may stand in it, for the description; `app.strict_json` enforces it, and the depth that a schema cannot count.
METADATA_VALUE: dict[str, Any] = {
    "description": "Any JSON value; at most eight levels deep, no NUL, integers of at most 64 bits.",
    "anyOf": [
        {"type": "string", "pattern": _NO_NUL},
        {"type": "number", "minimum": -LARGEST_INTEGER, "maximum": LARGEST_INTEGER},
        {"type": ["boolean", "null"]},
        {"type": "array", "items": {"$ref": "#/components/schemas/MetadataValue"}},
        {"type": "object", **Metadata.described},
    ],
}


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
        3,
        320,
        required=True,
        metadata={
            "format": "email",
            "description": "Who is to be verified, exactly as it is mailed to; the domain may be international.",
        },
    )
    purpose = Text(
        1,
        64,
        r"[a-z][a-z0-9_-]*",
        allowed="Use lower-case letters, digits, - and _, beginning with a letter: sign-up.",
        load_default="signup",
        metadata={"description": "`signup`, `email_change`, or a word of your own."},
    )
    expires_in = Seconds(load_default=None, metadata={"description": "How long the token lives, in seconds."})
    locale = Text(
        2,
        35,
        r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*",
        allowed="Use a language tag of BCP 47: en, pt-BR.",
        load_default=None,
        metadata={"description": "The language of mail and page, as BCP 47 writes it."},
    )
    return_url = Text(
        8,
        2000,
        r"https?://[!-~]+",
        allowed="Use an http:// or https:// URL in ASCII, percent-encoded where needed.",
        load_default=None,
        metadata={
            "description": "Where the page offers to go afterwards: an address on the client's list, or below one.",
        },
    )
    metadata = Metadata(
        load_default=None,
        metadata={
            "description": f"Anything of your own, given back as it came. At most {_LONGEST_METADATA} characters of JSON."
        },
    )


class ConsumeSchema(_Request):
    """`POST /v1/tokens/consume`."""

    token = Text(
        1, 255, r"[^\x00]*", required=True, metadata={"description": "As in the mail; spelling is forgiven."}
    )


def public_id(kind: str, text: str = "", *, none: bool = False) -> fields.String:
    """A public id of an answer, such as `ver_…`."""
    described = {"pattern": f"^{kind}_[0-9a-f]{{32}}$", **({"description": text} if text else {})}
    return fields.String(required=True, allow_none=none, metadata=described)


def word(values: Iterable[str], text: str = "", *, none: bool = False) -> fields.String:
    """One of few words of an answer."""
    listed = [str(value) for value in values]
    described = {"enum": [*listed, None] if none else listed, **({"description": text} if text else {})}
    return fields.String(required=True, allow_none=none, metadata=described)


def _text(text: str = "", *, none: bool = False) -> fields.String:
    return fields.String(
        required=True, allow_none=none, metadata={"description": text} if text else {"minLength": 1}
    )


def _instant(text: str = "", *, none: bool = False) -> Instant:
    return Instant(required=True, allow_none=none, metadata={"description": text} if text else {})


def _count(text: str) -> fields.Integer:
    return fields.Integer(required=True, metadata={"description": text, "minimum": 0})


class FailureSchema(Schema):
    """Why a delivery ended without acceptance."""

    category = word(FailureCategory, "Whose move it is.")
    code = fields.String(
        required=True, metadata={"pattern": "^[a-z0-9_]+$", "description": "What it was, in a word."}
    )
    action = _text("A sentence or two: what happened, and what to do.")


class VerificationSchema(Schema):
    """A verification and its delivery."""

    verification_id = public_id("ver")
    account_id = _text("Your own id of the account.")
    purpose = _text()
    email_masked = _text("Enough of the address to recognise it.")
    phase = word(Phase, "Verification and delivery in one word.")
    verification_status = word(Status)
    delivery_id = public_id("dlv")
    delivery_status = word(State)
    retryable = fields.Boolean(required=True, metadata={"description": "Would a new request make sense now?"})
    retry_at = _instant("When `retryable` turns true by itself at the latest.", none=True)
    expires_at = _instant("When the token stops working.")
    created_at = _instant()
    consumed_at = _instant("When the person confirmed.", none=True)
    next_attempt_at = _instant("When the delivery is looked at next.", none=True)
    correlation_id = _text("The X-Request-ID of the request that made it.")
    idempotency_key = _text()
    superseded_by = public_id("ver", "The newer verification that took its place.", none=True)
    mail_event = word(MAIL_EVENTS, "The provider's latest word on the mail.", none=True)
    mail_event_at = _instant(none=True)
    failure = fields.Nested(FailureSchema, allow_none=True, required=True)
    metadata = fields.Dict(
        allow_none=True, required=True, metadata={"description": "As the request gave it."}
    )
    suggestion = fields.String(
        allow_none=True,
        required=True,
        metadata={
            "description": "The address that may have been meant, masked: `a***@gmail.com`. A hint only."
        },
    )
    disposable = fields.Boolean(
        required=True,
        metadata={"description": "At a disposable domain. Always false where DISPOSABLE_POLICY is `allow`."},
    )


class DeliverySchema(Schema):
    """The delivery, for those who look after it."""

    delivery_id = public_id("dlv")
    status = word(State)
    lease_owner = _text("The worker that holds it.", none=True)
    lease_until = _instant(none=True)
    lease_token = _count("How often it was leased; only grows.")
    attempt_count = _count("Attempts that said something about this mail.")
    lost_count = _count("Leases that ran out.")
    replay_count = _count("Repeats of a hand-over whose answer is missing.")
    next_attempt_at = _instant(none=True)
    send_before = _instant("The gate: nothing is handed over from here on.", none=True)
    gate_reason = word(GateReason, "Why the gate was closed before its time.", none=True)
    open_provider = _text("The provider that may have the mail.", none=True)
    last_error = _text(none=True)
    failure = fields.Nested(FailureSchema, allow_none=True, required=True)
    provider = _text(none=True)
    idempotency_key = _text("The provider's key.", none=True)
    provider_message_id = _text(none=True)
    evidence = word(Evidence, "What proves that the provider has it.", none=True)
    created_at = _instant()
    completed_at = _instant(none=True)


class AttemptSchema(Schema):
    """What one lease did."""

    lease_token = _count("Which lease.")
    worker = _text()
    provider = _text(none=True)
    started_at = _instant()
    handed_over_at = _instant("From here on the provider may have the mail.", none=True)
    finished_at = _instant(none=True)
    outcome = word(Outcome, none=True)
    stale = fields.Boolean(
        required=True, metadata={"description": "It came too late to change the delivery."}
    )
    response_status = _text("What the provider answered, without its words.", none=True)
    error_code = _text(none=True)
    provider_message_id = _text(none=True)
    correlation_id = _text()
    release = _text("The release of the worker.", none=True)


class EventSchema(Schema):
    """What a provider said by itself, or what an operator did (`timeline` has their words)."""

    provider = _text("Which provider, or `operator`.")
    event_id = _text()
    kind = _text()
    occurred_at = _instant(none=True)
    received_at = _instant()
    applied_at = _instant(none=True)


class TimelineSchema(Schema):
    """One thing that happened."""

    at = _instant()
    event = _text("What, as `subject.happened`.")
    by = _text("Who did it; null: the passage of time.", none=True)
    detail = _text(none=True)


class NextActionSchema(Schema):
    """What happens next, and why."""

    code = fields.String(required=True, metadata={"pattern": "^[a-z_]+$"})
    text = _text()
    at = _instant(none=True)


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

    verification_id = public_id("ver")
    purpose = _text()
    consumed_at = _instant()
    return_url = _text("As the request gave it.", none=True)


class FieldErrorSchema(Schema):
    """What is wrong with one field."""

    pointer = fields.String(
        required=True,
        metadata={
            "description": "A JSON Pointer into the body, or `?` and a query parameter's name. Empty: the whole."
        },
    )
    code = word(FIELD_CODES, "Stable; see docs/errors.md.")
    detail = _text()


class ProblemSchema(Schema):
    """An error, as RFC 9457 writes it."""

    type = fields.String(required=True, metadata={"pattern": "^urn:countersign:problem:[a-z_]+$"})
    title = _text("What is wrong, in a few words.")
    status = fields.Integer(required=True, metadata={"minimum": 400, "maximum": 599})
    code = fields.String(
        required=True, metadata={"pattern": "^[a-z_]+$", "description": "Stable: decide by this."}
    )
    detail = _text("What to do.")
    request_id = _text("As in X-Request-ID; quote it when you ask for help.")


class InvalidRequestProblemSchema(ProblemSchema):
    """A request that is not valid, with the fields that are not."""

    errors = fields.List(
        fields.Nested(FieldErrorSchema), required=True, validate=validate.Length(min=1, max=MOST_ERRORS)
    )


class ExpiredProblemSchema(ProblemSchema):
    """A token that can no longer be used."""

    reason = word(EXPIRED_REASONS, "Why it cannot.")
    newer_exists = fields.Boolean(required=True, metadata={"description": "A newer mail can still be used."})


class CooldownProblemSchema(ProblemSchema):
    """A request too soon after another for the same account and purpose."""

    verification_id = public_id("ver", "The live one.")


class RateLimitedProblemSchema(ProblemSchema):
    """More than an hour allows."""

    limit = fields.String(
        required=True, metadata={"pattern": "^[a-z_]+$", "description": "Which hourly limit is used up."}
    )


def _in_body(name: str) -> str:
    return f"/{escape(name)}"


def field_errors(
    messages: Mapping[str, Any], pointer_to: Callable[[str], str] = _in_body
) -> list[FieldError]:
    """marshmallow's messages as `errors[]`, one a field, in the order of their pointers, the first of many."""
    found = []
    for name, texts in messages.items():
        pointer = "" if name == "_schema" else pointer_to(str(name))
        text = texts[0] if isinstance(texts, list) else Complaint("invalid", "This value is not valid.")
        found.append(FieldError(pointer, getattr(text, "code", "invalid"), str(text)))
    return sorted(found, key=lambda error: error.pointer)
