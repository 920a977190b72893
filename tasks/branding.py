"""A client's own branding of its mail: what it is, and how it is read from a document. Pure.

Whether a document may become one, `tasks.branding_rules` judges; how it looks, `tasks.branding_trial` finds out by rendering.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from db.logs import mask
from tasks.branding_text import Fault
from tasks.templates import v1

SHAPE: Final = 1  # of stored documents; a release that stores more than this one can read counts on
WORD_KEY = re.compile(r"(?P<word>[a-z_]+)(?:\.(?P<purpose>[a-z][a-z0-9_-]{0,63}))?")


class InvalidBranding(ValueError):
    """The document must not become a branding; `faults` say why, with JSON Pointers into it."""

    def __init__(self, faults: Collection[Fault]) -> None:
        super().__init__(", ".join(f"{fault.pointer} {fault.code}" for fault in faults))
        self.faults = tuple(sorted(faults, key=lambda fault: fault.pointer))


class UnknownBrandingShape(LookupError):
    """Another release stored the document, as in a rolling deploy: another worker can read it."""


@dataclass(frozen=True, slots=True)
class Templates:
    """One language's own templates; None: ours."""

    text: str | None
    html: str | None  # what stands within the body


@dataclass(frozen=True, slots=True, eq=False)  # itself alone, so that caches need not compare whole templates
class Branding:
    """What a client chose. Languages and words that it left out are ours."""

    name: str
    colours: Mapping[str, str]  # `button` and `button_text`; empty: ours
    wording: Mapping[str, Mapping[str, str]]  # by language, then `lead` or `lead.signup`
    templates: Mapping[str, Templates]  # by language

    @property
    def languages(self) -> tuple[str, ...]:
        """Those that its mail can be in, ours first."""
        return tuple(dict.fromkeys([*v1.WORDS, *self.wording]))

    @property
    def purposes(self) -> frozenset[str]:
        """Those that have words of their own."""
        keys = (WORD_KEY.fullmatch(key) for words in self.wording.values() for key in words)
        return frozenset(key["purpose"] for key in keys if key and key["purpose"])

    def document(self) -> dict[str, Any]:
        """The document that it was read from, without what was left out."""
        parts: dict[str, Any] = {"name": self.name}
        if self.colours:
            parts["colours"] = dict(self.colours)
        if self.wording:
            parts["wording"] = {language: dict(words) for language, words in self.wording.items()}
        if self.templates:
            parts["templates"] = {
                language: {
                    kind: own for kind in ("text", "html") if (own := getattr(templates, kind)) is not None
                }
                for language, templates in self.templates.items()
            }
        return parts

    def stored(self) -> dict[str, Any]:
        """What is kept in the database."""
        return {"shape": SHAPE, **self.document()}


def from_stored(body: Any) -> Branding:
    """A branding as it was stored. It was judged when it was set: rules that came later do not stop its mail.

    Raises UnknownBrandingShape for what a later release stored, ValueError for what no release did.
    """
    if not isinstance(body, dict):
        raise ValueError("a stored branding is an object")
    if body.get("shape") != SHAPE or body.keys() - {"shape", "name", "colours", "wording", "templates"}:
        raise UnknownBrandingShape("the branding has a shape that this release does not know")
    reader = Reader()
    branding = reader.shape(body)
    if reader.faults:
        raise InvalidBranding(reader.faults)
    return branding


class Reader:
    """Reads the shape: which field is where and of which type."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def shape(self, document: Mapping[str, Any], *, also_unknown: bool = False) -> Branding:
        if also_unknown:
            self._no_others("", document, {"name", "colours", "wording", "templates"})
        wording = self._object("/wording", document.get("wording", {}))
        templates = self._object("/templates", document.get("templates", {}))
        return Branding(
            name=self._text("/name", document.get("name")),
            colours=self._texts("/colours", document.get("colours", {}), {"button", "button_text"}),
            wording=MappingProxyType(
                {
                    language: self._texts(f"/wording/{step(language)}", words)
                    for language, words in wording.items()
                }
            ),
            templates=MappingProxyType(
                {
                    language: self._templates(f"/templates/{step(language)}", own)
                    for language, own in templates.items()
                }
            ),
        )

    def _templates(self, pointer: str, value: Any) -> Templates:
        texts = self._texts(pointer, value, {"text", "html"})
        return Templates(texts.get("text"), texts.get("html"))

    def _texts(self, pointer: str, value: Any, known: Set[str] | None = None) -> Mapping[str, str]:
        found = self._object(pointer, value)
        if known is not None:
            self._no_others(pointer, found, known)
        return MappingProxyType(
            {key: self._text(f"{pointer}/{step(key)}", text) for key, text in found.items()}
        )

    def _object(self, pointer: str, value: Any) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self.faults.append(Fault(pointer, "invalid_type", "This must be an object."))
        return {}

    def _text(self, pointer: str, value: Any) -> str:
        if isinstance(value, str):
            return value.replace("\r\n", "\n")
        code = (
            ("required", "This field is needed.")
            if value is None
            else ("invalid_type", "This must be a string.")
        )
        self.faults.append(Fault(pointer, *code))
        return ""

    def _no_others(self, pointer: str, found: Mapping[str, Any], known: Set[str]) -> None:
        self.faults += [
            Fault(f"{pointer}/{step(key)}", "unknown_field", "There is no such field.")
            for key in found
            if key not in known
        ]


def step(key: str) -> str:
    """A key as one step of a JSON Pointer, masked and short: it goes into answers and logs."""
    return mask(key)[:64].replace("~", "~0").replace("/", "~1")
