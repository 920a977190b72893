"""Which documents may become a branding: each field judged by itself. Pure.

Whoever holds an API key can send one, so it is judged as an attacker's: it can neither lead people elsewhere, nor hide what
must be seen, nor begin another header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from tasks.branding import WORD_KEY, Branding, InvalidBranding, Reader, Templates, step
from tasks.branding_html import check_html
from tasks.branding_text import (
    Fault,
    contrast,
    empty_lines_fault,
    link_elsewhere,
    placeholders_of,
    template_text_fault,
    text_fault,
    with_any_values,
)
from tasks.templates import v1

LARGEST: Final = 16 * 1024  # bytes of a document, which is what the API takes as a body
LONGEST_NAME: Final = 64

_OURS = frozenset(v1.WORDS)
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_MOST_LANGUAGES = 10
_MOST_PURPOSES = 10
_LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text
_MOST_PLACEHOLDERS = 40  # in one template: each may stand for hundreds of characters


@dataclass(frozen=True, slots=True)
class Word:
    """One sentence that a client may put in its own words."""

    longest: int
    placeholders: Set[str]
    needs: Set[str] = frozenset()
    lines: bool = False  # may hold line ends
    by_purpose: bool = False  # may be said differently for a purpose: `lead.signup`


_NAME = frozenset({"name"})
WORDS: Final[Mapping[str, Word]] = MappingProxyType(
    {
        "subject": Word(120, _NAME, by_purpose=True),
        "lead": Word(500, _NAME, lines=True, by_purpose=True),
        "open_link": Word(200, _NAME),
        "button": Word(60, _NAME),
        "type_code": Word(200, _NAME),
        "until": Word(200, _NAME | {"expires"}, needs=frozenset({"expires"})),
        "not_you": Word(500, _NAME, lines=True),
        "reference_line": Word(100, frozenset({"reference"}), needs=frozenset({"reference"})),
    }
)
# In our languages these two stay ours: whoever gets a mail that they did not ask for must be told so.
FIXED: Final = frozenset({"not_you", "reference_line"})
TEMPLATE_PLACEHOLDERS: Final = frozenset({*WORDS, "name", "link", "page", "token", "expires", "reference"})
NEEDED_IN_TEMPLATES: Final = frozenset({"link", "token", *FIXED})


def parse(document: Any, hosts: Set[str] | None) -> Branding:
    """Read what a client wants. Only pages of `hosts` may be linked to; None: of any. Raises InvalidBranding."""
    if not isinstance(document, dict):
        raise InvalidBranding([Fault("", "invalid_type", "This must be an object.")])
    reader = Reader()
    branding = reader.shape(document, also_unknown=True)
    if not reader.faults:
        _Judge(branding, hosts, reader.faults).judge()
    if reader.faults:
        raise InvalidBranding(reader.faults)
    return branding


class _Judge:
    """Judges each field of a branding by itself."""

    def __init__(self, branding: Branding, hosts: Set[str] | None, faults: list[Fault]) -> None:
        self._branding = branding
        self._hosts = hosts
        self._faults = faults

    def judge(self) -> None:
        branding = self._branding
        self._name()
        self._colours()
        if len(branding.wording) > _MOST_LANGUAGES:
            self._fault("/wording", "too_many", f"Use at most {_MOST_LANGUAGES} languages.")
        elif len(branding.purposes) > _MOST_PURPOSES:
            self._fault(
                "/wording", "too_many", f"Use words of their own for at most {_MOST_PURPOSES} purposes."
            )
        else:
            for language, words in branding.wording.items():
                self._words(language, words)
        for language, templates in branding.templates.items():
            self._templates(language, templates)

    def _fault(self, pointer: str, code: str, detail: str) -> None:
        self._faults.append(Fault(pointer, code, detail))

    def _name(self) -> None:
        name = self._branding.name
        fault = text_fault("/name", name, LONGEST_NAME, lines=False)
        if fault:
            self._faults.append(fault)
        elif set(name) & set("<>@{}\\") or not any(char.isalnum() for char in name):
            self._fault(
                "/name", "invalid_format", "Use a name with letters or digits and without < > @ { } \\."
            )
        else:
            self._no_link_elsewhere("/name", name)

    def _colours(self) -> None:
        colours = self._branding.colours
        if not colours:
            return
        for key in ("button", "button_text"):
            if not _COLOUR.fullmatch(colours.get(key, "")):
                self._fault(f"/colours/{key}", "invalid_format", "Use #rrggbb; the two colours go together.")
                return
        ratio = contrast(colours["button"], colours["button_text"])
        if ratio < _LEAST_CONTRAST:
            self._fault(
                "/colours/button_text",
                "low_contrast",
                f"Its contrast to the button is {ratio:.1f}:1; use at least {_LEAST_CONTRAST}:1.",
            )

    def _words(self, language: str, words: Mapping[str, str]) -> None:
        pointer = f"/wording/{step(language)}"
        if not _LANGUAGE.fullmatch(language):
            self._fault(pointer, "unknown_field", "Name languages by two or three small letters, e.g. `fr`.")
            return
        for key, text in words.items():
            self._word(f"{pointer}/{step(key)}", language, key, text)
        missing = sorted(WORDS.keys() - words.keys()) if language not in _OURS else []
        for key in missing:
            self._fault(
                f"{pointer}/{key}", "required", "A language that we have no words for needs them all."
            )

    def _word(self, pointer: str, language: str, key: str, text: str) -> None:
        name = WORD_KEY.fullmatch(key)
        word = WORDS.get(name["word"]) if name else None
        if name is None or word is None or (name["purpose"] and not word.by_purpose):
            self._fault(pointer, "unknown_field", "There is no such word.")
        elif language in _OURS and name["word"] in FIXED:
            self._fault(pointer, "fixed_words", "In this language these words stay as they are.")
        elif fault := text_fault(pointer, text, word.longest, lines=word.lines) or empty_lines_fault(
            pointer, text
        ):
            self._faults.append(fault)
        elif self._placeholders(pointer, text, word.placeholders, word.needs):
            self._no_link_elsewhere(pointer, with_any_values(text, self._branding.name))

    def _templates(self, language: str, templates: Templates) -> None:
        pointer = f"/templates/{step(language)}"
        if language not in self._branding.languages:
            self._fault(pointer, "unknown_field", "Give this language its words in `wording` first.")
            return
        if templates.text is not None:
            self._text_template(f"{pointer}/text", templates.text)
        if templates.html is not None:
            at = f"{pointer}/html"
            if self._template(at, templates.html):
                self._faults += check_html(at, templates.html, self._hosts, NEEDED_IN_TEMPLATES)

    def _text_template(self, pointer: str, text: str) -> None:
        if not self._template(pointer, text):
            return
        if "{link}" not in text.split("\n"):
            self._fault(
                pointer,
                "missing_placeholder",
                "Give {link} a line of its own, so that every program finds it.",
            )
        elif fault := empty_lines_fault(pointer, text) or template_text_fault(pointer, text, self._hosts):
            self._faults.append(fault)

    def _template(self, pointer: str, text: str) -> bool:
        """What holds for both kinds. False: there is a fault."""
        fault = text_fault(pointer, text, LARGEST, lines=True)
        if fault:
            self._faults.append(fault)
            return False
        found = placeholders_of(text) or ()
        if len(found) > _MOST_PLACEHOLDERS:
            self._fault(pointer, "too_many", f"Use at most {_MOST_PLACEHOLDERS} placeholders.")
            return False
        return self._placeholders(pointer, text, TEMPLATE_PLACEHOLDERS, NEEDED_IN_TEMPLATES)

    def _placeholders(self, pointer: str, text: str, allowed: Set[str], needed: Set[str]) -> bool:
        found = placeholders_of(text)
        if found is None or set(found) - allowed:
            listed = " ".join(f"{{{name}}}" for name in sorted(allowed))
            self._fault(
                pointer, "unknown_placeholder", f"Braces stand around placeholders only; there are {listed}."
            )
            return False
        for name in sorted(needed - set(found)):
            self._fault(pointer, "missing_placeholder", f"Use {{{name}}}.")
        return not needed - set(found)

    def _no_link_elsewhere(self, pointer: str, text: str) -> None:
        if fault := link_elsewhere(pointer, text, self._hosts):
            self._faults.append(fault)
