"""What can be wrong with one field: the stable codes of `errors[].code`, each with its meaning and what to do. One table.

The description of the API and docs/errors.md are made from it and tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Words:
    """Two sentences: what is wrong, and what to do about it."""

    meaning: str
    remedy: str


# Of `PUT /v1/branding` alone.
BRANDING_CODES: MappingProxyType[str, Words] = MappingProxyType(
    {
        "link_elsewhere": Words(
            "Something reads as a web or mail address that is not at a host of this client's return URLs.",
            "Leave it out, or have the operator add a return URL at that host.",
        ),
        "low_contrast": Words("Text would be hard to read.", "Use colours with the contrast in `detail`."),
        "lone_colour": Words(
            "One of two colours is missing, so that text may vanish in the dark.",
            "Give color and background-color together.",
        ),
        "unknown_placeholder": Words(
            "Braces stand around something that is no placeholder here.", "Use those that `detail` lists."
        ),
        "missing_placeholder": Words(
            "A mail must not lack this.", "Use the placeholder that `detail` names."
        ),
        "placeholder_in_word": Words(
            "A placeholder touches other characters, which could make a link of both.",
            "Put white space or punctuation around it.",
        ),
        "forbidden_html": Words(
            "A tag, an attribute, a style or a value that a mail may not have.",
            "Leave it out; see docs/branding.md.",
        ),
        "invalid_html": Words(
            "The HTML is not written in the strict form that all mail programs read alike.",
            "Mend the line that `detail` names.",
        ),
        "needs_alt": Words("An image would leave a hole where images are not shown.", "Give it alt text."),
        "fixed_words": Words("These words stay as they are in this language.", "Leave them out."),
        "too_many": Words("There are more of these than a mail needs.", "Stay within the limit in `detail`."),
    }
)

FIELD_CODES: MappingProxyType[str, Words] = MappingProxyType(
    {
        "required": Words("The field is missing.", "Send it."),
        "unknown_field": Words(
            "There is no such field.", "Leave it out; check its spelling against the description."
        ),
        "invalid_type": Words(
            "The value is of another JSON type, or null.", "Send the type that `detail` names."
        ),
        "invalid_length": Words("The text is too short or too long.", "Stay within the limits in `detail`."),
        "invalid_format": Words(
            "The text has characters or a form that this field cannot have.",
            "Follow the field's pattern in the description.",
        ),
        "invalid_characters": Words(
            "A text or a key has a NUL or half a surrogate pair.", "Send whole Unicode characters, no NUL."
        ),
        "invalid": Words("The value makes no sense here.", "See `detail`."),
        "out_of_range": Words("The number is too small or too large.", "Stay within the limits in `detail`."),
        "invalid_choice": Words("The value is none of those there are.", "Use one that `detail` lists."),
        "invalid_cursor": Words(
            "This is no cursor of this call, of these filters or of this database.",
            "Send `next_cursor` as it came; if it is refused still, begin again without one.",
        ),
        "invalid_encoding": Words(
            "The query string is not percent-encoded UTF-8, or absurdly long.",
            "Let a library write it.",
        ),
        "repeated": Words("A query parameter stands there twice.", "Send it once."),
        "number_too_large": Words("The number does not fit 64 bits.", "Send it as a string."),
        "too_large": Words("The object is too large.", "Keep it elsewhere and send its id."),
        "too_deep": Words("The value is nested too deeply.", "Flatten it."),
        "invalid_address": Words(
            "No mail can be sent to this address.", "Ask the person for another; do not retry it."
        ),
        "reserved_domain": Words(
            "The domain is reserved for examples and tests.",
            "Use a real address, or set ALLOW_RESERVED_DOMAINS where no mail leaves.",
        ),
        **BRANDING_CODES,
        "unsupported_address": Words(
            "The standards allow this address, this service does not.",
            "See docs/addresses.md; ask for another.",
        ),
        "disposable_domain": Words(
            "The domain gives out mailboxes for minutes, and DISPOSABLE_POLICY is `reject`.",
            "Ask for an address that lasts.",
        ),
        "test_word": Words("The address reads like a sample.", "Ask for a real one."),
        "not_allowed": Words(
            "The address is not on this client's list of return URLs.",
            "Have the operator add it, or send one from the list.",
        ),
    }
)
