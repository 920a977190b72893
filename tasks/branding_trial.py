"""Tries a branding out before it is kept: every language and purpose is laid out with the longest values there can be.

So a mail that a client's words or templates would spoil is refused when they are set, not found out by a worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any, Final

from tasks import branding_rules, message
from tasks.branding import Branding, InvalidBranding, step
from tasks.branding_text import Fault
from tasks.message import CURRENT_TEMPLATE_VERSION, Configuration, Layout, Sender
from tasks.providers.mail_syntax import header_text

LARGEST_PART: Final = (
    32 * 1024
)  # characters of text or HTML; mail programs cut off what is larger than 100 KB
_MOST_LINES = 200  # of text: who scrolls further?
_LONGEST_LINE = 998  # RFC 5322
_HOST: Final = "verify.invalid"
_SENDER: Final = Sender("", f"no-reply@{_HOST}")
_PUBLIC_URL: Final = f"https://{_HOST}/{'long/' * 40}"


def accept(document: Any, hosts: Set[str] | None) -> Branding:
    """The branding of a document, judged and tried out. Raises InvalidBranding.

    Only pages of `hosts` may be linked to; None: of any.
    """
    branding = branding_rules.parse(document, hosts)
    faults = [fault for language in branding.languages for fault in _faults(branding, language)]
    if faults:
        raise InvalidBranding(list({fault.pointer: fault for fault in faults}.values()))
    return branding


def _faults(branding: Branding, language: str) -> Iterator[Fault]:
    configuration = Configuration(CURRENT_TEMPLATE_VERSION, _PUBLIC_URL, _SENDER, branding)
    layouts = {
        purpose: message.lay_out(configuration, language, purpose)
        for purpose in sorted({*configuration.template.PURPOSES, *branding.purposes})
    }
    for purpose, layout in layouts.items():
        yield from _too_large(layout, language)
        if not _is_header(layout.subject):
            pointer = _subject_of(branding, language, purpose)
            yield Fault(pointer, "invalid_length", "With the name filled in, this is too long for a header.")
            return
    # Encoding is what takes time, and purposes differ in two sentences.
    longest = max(layouts.values(), key=lambda layout: len(layout.text) + len(layout.html))
    lines = message.mime_of(longest, _SENDER).split("\r\n")
    if max(map(len, lines)) > _LONGEST_LINE or not all(line.isascii() for line in lines):
        yield Fault("/templates", "invalid_format", "This makes no well-formed mail.")


def _too_large(layout: Layout, language: str) -> Iterator[Fault]:
    for kind, text in (("text", layout.text), ("html", layout.html)):
        if len(text) > LARGEST_PART:
            pointer = f"/templates/{step(language)}/{kind}"
            yield Fault(pointer, "too_large", f"Filled in, it is longer than {LARGEST_PART} characters.")
    if layout.text.count("\n") > _MOST_LINES:
        pointer = f"/templates/{step(language)}/text"
        yield Fault(pointer, "too_large", f"Filled in, it has more than {_MOST_LINES} lines.")


def _is_header(text: str) -> bool:
    try:
        header_text(text)
    except ValueError:
        return False
    return True


def _subject_of(branding: Branding, language: str, purpose: str) -> str:
    words = branding.wording.get(language, {})
    key = next((key for key in (f"subject.{purpose}", "subject") if key in words), None)
    return f"/wording/{step(language)}/{key}" if key else "/name"
