"""The shapes of `/v1/branding`, for its description. What a document must keep to beyond them, `tasks.branding_trial` judges,
so that the command line and the API refuse the same."""

from __future__ import annotations

from typing import Any

from marshmallow import RAISE, Schema, fields, validate

from app.schemas import Complaint, Instant, Text
from tasks.branding_rules import FIXED, LARGEST, LONGEST_NAME, WORDS

_WORD_KEYS = "|".join(
    name + (r"(\.[a-z][a-z0-9_-]{0,63})?" if word.by_purpose else "") for name, word in WORDS.items()
)
_LANGUAGE_KEYS = {"propertyNames": {"pattern": "^[a-z]{2,3}$"}}
_OBJECT = Complaint("invalid_type", "This must be an object.")


class _Part(fields.Nested):
    """An object of a document: described here, judged as a whole later."""

    default_error_messages = {"null": _OBJECT}  # noqa: RUF012 (marshmallow's protocol)

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> Any:
        return value


class _ByKey(fields.Dict):
    """The same for one whose keys are the caller's."""

    default_error_messages = {"null": _OBJECT}  # noqa: RUF012

    def __init__(self, *, described: dict[str, Any], **kwargs: Any) -> None:
        self.described = described
        super().__init__(**kwargs)

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> Any:
        return value


class _Body(Schema):
    class Meta:
        unknown = RAISE

    error_messages = {"unknown": Complaint("unknown_field", "There is no such field."), "type": _OBJECT}  # noqa: RUF012


class ColoursSchema(Schema):
    """The button's colours, readable by themselves in the light and in the dark."""

    button = Text(7, 7, "#[0-9a-fA-F]{6}", required=True)
    button_text = Text(
        7,
        7,
        "#[0-9a-fA-F]{6}",
        required=True,
        metadata={"description": "Contrast to `button` at least 4.5:1."},
    )


class TemplatesSchema(Schema):
    """One language's templates; docs/branding.md says what they must and may hold."""

    text = Text(1, LARGEST, r"[^\x00]*")
    html = Text(1, LARGEST, r"[^\x00]*", metadata={"description": "What stands within the body."})


class BrandingSchema(_Body):
    """A client's branding, whole. What is left out is ours."""

    name = Text(
        1,
        LONGEST_NAME,
        required=True,
        metadata={"description": "Who writes: in the From header and as `{name}`."},
    )
    colours = _Part(ColoursSchema)
    wording = _ByKey(
        keys=fields.String(),
        values=fields.Dict(keys=fields.String(validate=validate.Regexp(_WORD_KEYS)), values=fields.String()),
        described=_LANGUAGE_KEYS,
        metadata={
            "description": "By language, then by word: "
            + ", ".join(f"`{word}`" for word in WORDS)
            + "; those that depend on the purpose also as `lead.signup`. A language that the service has no words for needs "
            "them all; in the others "
            + " and ".join(f"`{word}`" for word in sorted(FIXED))
            + " stay as they are."
        },
    )
    templates = _ByKey(keys=fields.String(), values=fields.Nested(TemplatesSchema), described=_LANGUAGE_KEYS)


class StoredBrandingSchema(Schema):
    """What new verifications are rendered with; all null: the service's own words."""

    branding_id = fields.String(required=True, allow_none=True, metadata={"pattern": "^brd_[0-9a-f]{32}$"})
    set_at = Instant(required=True, allow_none=True)
    branding = fields.Nested(BrandingSchema, required=True, allow_none=True)


class PreviewSchema(_Body):
    """What to show: a branding that is not set yet, or, left out, the one that is."""

    branding = _Part(BrandingSchema)
    purpose = Text(1, 64, r"[a-z][a-z0-9_-]*", load_default="signup")
    locale = Text(2, 35, r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", load_default="en")


class PreviewedSchema(Schema):
    """A mail as it would be, with a token that opens nothing."""

    subject = fields.String(required=True)
    text = fields.String(required=True)
    html = fields.String(required=True)
