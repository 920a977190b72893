"""The shapes of lists and of the changes feed: their query parameters and their answers. Shapes only."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from app import cursors
from app.schemas import Complaint, Instant, Text, VerificationSchema, public_id, word
from db.changes import LARGEST_PLACE
from db.delivery_state import Evidence, State
from db.listing import Position
from db.phases import Status

MOST = 100  # items of a page
FEW = 20
_LIMIT = re.compile(r"[0-9]{1,3}")
_PLACE = re.compile(r"0|[1-9][0-9]{0,18}")
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)

EVENTS = (
    *(f"verification.{status}" for status in Status if status is not Status.REQUESTED),
    *(f"delivery.{state}" for state in State if state is not State.SENDING),
)


class Limit(fields.Integer):
    """How many items a page may have: decimal digits, nothing that Python would take besides."""

    described: ClassVar[dict[str, Any]] = {"minimum": 1, "maximum": MOST}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if not _LIMIT.fullmatch(value) or not 1 <= int(value) <= MOST:
            raise ValidationError(Complaint("out_of_range", f"Use a whole number from 1 to {MOST}."))
        return int(value)


class Choice(fields.Enum[Any]):
    """One of few words."""

    def __init__(self, values: type[StrEnum], **kwargs: Any) -> None:
        listed = ", ".join(values)
        super().__init__(
            values,
            by_value=True,
            error_messages={"unknown": Complaint("invalid_choice", f"Use one of: {listed}.")},
            **kwargs,
        )


class Since(fields.Field[datetime]):
    """An instant: RFC 3339, with its zone."""

    described: ClassVar[dict[str, Any]] = {"type": "string", "format": "date-time"}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> datetime:
        try:
            if not _RFC_3339.fullmatch(value):
                raise ValueError("no instant")
            return datetime.fromisoformat(value.upper())
        except ValueError:
            raise ValidationError(
                Complaint(
                    "invalid_format", "Use a time such as 2026-01-31T12:00:00Z; in a URL + is written %2B."
                )
            ) from None


class Cursor(fields.Field[Position]):
    """Where a page of a list ended."""

    described: ClassVar[dict[str, Any]] = {"type": "string", "pattern": f"^{cursors.PATTERN}$"}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Position:
        try:
            return cursors.decode(value)
        except ValueError:
            raise ValidationError(
                Complaint("invalid_cursor", "Send `next_cursor` of the page before, unchanged.")
            ) from None


class Place(fields.Field[int]):
    """A place in the feed."""

    described: ClassVar[dict[str, Any]] = {"type": "string", "pattern": f"^(?:{_PLACE.pattern})$"}

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if not _PLACE.fullmatch(value) or int(value) > LARGEST_PLACE:
            raise ValidationError(
                Complaint("invalid_cursor", "Send `next_cursor` of the last answer, unchanged.")
            )
        return int(value)


class _Query(Schema):
    class Meta:
        unknown = RAISE

    error_messages = {"unknown": Complaint("unknown_field", "There is no such parameter.")}  # noqa: RUF012

    limit = Limit(load_default=FEW, metadata={"description": "How many items at most."})


class ListQuerySchema(_Query):
    """`GET /v1/verifications`."""

    verification_status = Choice(Status, load_default=None, metadata={"description": "Those of this status."})
    delivery_status = Choice(
        State, load_default=None, metadata={"description": "Those whose delivery is in this state."}
    )
    account_id = Text(1, 255, load_default=None, metadata={"description": "Your own id of the account."})
    consumed_since = Since(
        load_default=None,
        metadata={"description": "Those confirmed then or later; the newest confirmation first."},
    )
    cursor = Cursor(
        load_default=None,
        metadata={"description": "`next_cursor` of the page before, with the same filters."},
    )


class FeedQuerySchema(_Query):
    """`GET /v1/changes`."""

    after = Place(
        load_default=0,
        metadata={"description": "`next_cursor` of the last answer. Without it: from the beginning."},
    )


class NothingSchema(Schema):
    """A call that needs no body; an empty object will do."""

    may_be_absent = True

    class Meta:
        unknown = RAISE

    error_messages = {  # noqa: RUF012
        "unknown": Complaint("unknown_field", "There is no such field."),
        "type": Complaint("invalid_type", "The body must be an empty JSON object, or absent."),
    }


class VerificationListSchema(Schema):
    """A page of verifications."""

    items = fields.List(fields.Nested(VerificationSchema), required=True, validate=validate.Length(max=MOST))
    next_cursor = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Where the next page begins; null: this is the last."},
    )


class ChangeSchema(Schema):
    """One change of a verification or of its delivery. It never changes afterwards."""

    cursor = fields.String(
        required=True, metadata={"pattern": "^[1-9][0-9]*$", "description": "Its place in the feed."}
    )
    at = Instant(
        required=True,
        metadata={"description": "When it happened. The feed's order is another: that of commits."},
    )
    event = word(EVENTS, "What happened to which of the two: `verification.` or `delivery.` and `after`.")
    verification_id = public_id("ver")
    delivery_id = public_id("dlv", "The delivery that changed; null: the verification itself did.", none=True)
    account_id = fields.String(required=True, metadata={"description": "Your own id of the account."})
    purpose = fields.String(required=True)
    before = word((*Status, *State), "null: it was created.", none=True)
    after = word((*Status, *State))
    code = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "pattern": "^[a-z0-9_]+$",
            "description": "Why, in a word: of a failure, a retry, a closed gate; of a cancellation who asked for it.",
        },
    )
    evidence = word(Evidence, "What proves that the provider has the mail.", none=True)


class ChangesSchema(Schema):
    """A page of the feed, oldest first."""

    items = fields.List(fields.Nested(ChangeSchema), required=True, validate=validate.Length(max=MOST))
    next_cursor = fields.String(
        required=True,
        metadata={
            "pattern": f"^(?:{_PLACE.pattern})$",
            "description": "Store it together with what you made of the items, and ask again with it.",
        },
    )
