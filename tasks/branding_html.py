"""Judges the HTML that a client wrote for its mail. Pure.

It is not repaired but refused unless it keeps to a grammar so narrow that every reader reads it alike: small tags from a
list, attributes in double quotes, everything closed, no comments. What mail programs make of other HTML differs, and
the differences are where attacks live.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Set
from html.entities import html5
from itertools import pairwise

from tasks.branding_space import INLINE, Space
from tasks.branding_styles import Look, Refused, look_of
from tasks.branding_text import Fault, is_seen, placeholders_of, template_text_fault

_TAG = re.compile(r"<(/?)([a-z][a-z0-9]*)((?:\s+[a-z]+=\"[^\"<>]*\")*)\s*(/?)>")
_ATTRIBUTE = re.compile(r"([a-z]+)=\"([^\"]*)\"")
_REFERENCE = re.compile(r"&(#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")

_BLOCKS = frozenset(
    {
        "p",
        "div",
        "h1",
        "h2",
        "h3",
        "ul",
        "ol",
        "li",
        "blockquote",
        "table",
        "thead",
        "tbody",
        "tr",
        "td",
        "th",
    }
)
_VOID = frozenset({"br", "hr", "img"})
TAGS = INLINE | _BLOCKS | _VOID
_OWN_ATTRIBUTES = {
    "a": frozenset({"href"}),
    "img": frozenset({"src", "alt", "width", "height"}),
    "table": frozenset({"role"}),
    "td": frozenset({"colspan"}),
    "th": frozenset({"colspan"}),
}
_EVERYWHERE = frozenset({"style", "lang", "dir"})
_VALUES = {
    "lang": re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*"),
    "dir": re.compile(r"ltr|rtl|auto"),
    "role": re.compile(r"presentation"),
    "width": re.compile(r"[1-9]\d{0,2}"),
    "height": re.compile(r"[1-9]\d{0,2}"),
    "colspan": re.compile(r"[1-9]"),
}
_ADDRESS = re.compile(r"https://([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?:/(?:[!#-%(-;=?-Z_a-z~]|&amp;)*)?")


def check_html(pointer: str, source: str, hosts: Set[str] | None, needed: Set[str]) -> list[Fault]:
    """What is wrong with a template; nothing: []. `needed` placeholders must be seen as text, `{link}` be a link as well."""
    reader = _Reader(hosts)
    try:
        reader.read(source)
    except Refused as refused:
        line = source.count("\n", 0, reader.at) + 1
        return [Fault(pointer, refused.code, f"Line {line}: {refused.detail}")]
    shown = placeholders_of(reader.seen) or []
    if len(shown) + reader.hrefs != len(placeholders_of(source) or []):
        return [Fault(pointer, "forbidden_html", "A placeholder stands where it may not.")]
    missing = sorted(needed - {"link"} - set(shown))
    faults = [
        Fault(pointer, "missing_placeholder", f"Use {{{name}}} as text, where people see it.")
        for name in missing
    ]
    if not reader.has_link:
        faults.append(Fault(pointer, "missing_placeholder", 'Use <a href="{link}"> around some text.'))
    more = template_text_fault(pointer, reader.seen, hosts)
    return [*faults, more] if more else faults


class _Reader:
    """Reads a template from its beginning to its end; `at` is where it is, `seen` the text so far."""

    def __init__(self, hosts: Set[str] | None) -> None:
        self._hosts = hosts
        self._open: list[tuple[str, bool]] = []  # tag, and whether it has a background of its own
        self._space = Space()
        self._link_text_from: int | None = None  # within <a href="{link}">
        self.at = 0
        self.seen = ""
        self.has_link = False
        self.hrefs = 0  # that are placeholders

    def read(self, source: str) -> None:
        """Raises Refused."""
        while self.at < len(source):
            if source[self.at] != "<":
                end = source.find("<", self.at)
                self._text(source[self.at : end if end >= 0 else len(source)])
                self.at = end if end >= 0 else len(source)
                continue
            tag = _TAG.match(source, self.at)
            if tag is None:
                raise Refused(
                    "invalid_html",
                    'write tags as <p style="…">: small letters, values in double quotes, no comments; "<" as &lt;.',
                )
            self._tag(tag[2], tag[3], closes=bool(tag[1]), closed=bool(tag[4]))
            self.at = tag.end()
        if self._open:
            raise Refused("invalid_html", f"<{self._open[-1][0]}> is not closed.")

    def _text(self, source: str) -> None:
        if ">" in source or "&" in _REFERENCE.sub("", source):
            raise Refused("invalid_html", "write & as &amp; and > as &gt;.")
        for name in _REFERENCE.findall(source):
            if not name.startswith("#") and f"{name};" not in html5:
                raise Refused("invalid_html", f"there is no &{name};.")
        text = html.unescape(source)
        if not all(is_seen(char) or char == "\n" for char in text):
            raise Refused(
                "invalid_characters", "a character reference stands for something that cannot be seen."
            )
        if text.count("{") != source.count("{") or text.count("}") != source.count("}"):
            raise Refused("invalid_characters", "braces stand around placeholders only.")
        self.seen += text
        self._space.text(text)

    def _tag(self, name: str, attributes: str, *, closes: bool, closed: bool) -> None:
        if name not in TAGS:
            listed = " ".join(sorted(TAGS))
            raise Refused("forbidden_html", f"<{name}> may not be used; there are: {listed}.")
        if name not in INLINE:
            self.seen += "\n"
        if closes:
            self._close(name, attributes)
        elif closed and name not in _VOID:
            raise Refused("invalid_html", f"<{name}/> closes nothing; write <{name}></{name}>.")
        else:
            self._start(name, dict(self._attributes(name, attributes)))

    def _close(self, name: str, attributes: str) -> None:
        if attributes or name in _VOID or not self._open or self._open[-1][0] != name:
            inner = f"; <{self._open[-1][0]}> is open" if self._open else ""
            raise Refused("invalid_html", f"</{name}> closes nothing{inner}.")
        self._open.pop()
        self._space.end()
        if name == "a" and self._link_text_from is not None:
            self.has_link |= bool(self.seen[self._link_text_from :].strip())
            self._link_text_from = None

    def _attributes(self, name: str, source: str) -> Iterator[tuple[str, str]]:
        found = _ATTRIBUTE.findall(source)
        for key, value in found:
            if key not in _EVERYWHERE | _OWN_ATTRIBUTES.get(name, frozenset()):
                raise Refused("forbidden_html", f"<{name}> may not have {key}.")
            yield key, value
        if len({key for key, _ in found}) != len(found):
            raise Refused("invalid_html", "an attribute stands twice.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        for key, value in attributes.items():
            if key in _VALUES and not _VALUES[key].fullmatch(value):
                raise Refused("forbidden_html", f"{key} may not have this value.")
        look = look_of(attributes.get("style", ""))
        if name == "img":
            self._image(attributes, look)
            return
        if name == "a":
            self._link(attributes, look.coloured)
        self._space.start(name, look)
        if name not in _VOID:
            self._open.append((name, look.coloured))

    def _link(self, attributes: dict[str, str], coloured: bool) -> None:
        if any(name == "a" for name, _ in self._open):
            raise Refused("invalid_html", "a link stands within a link.")
        if not coloured and any(has_colours for _, has_colours in self._open):
            raise Refused(
                "lone_colour", "a link on a coloured background needs color and background-color itself."
            )
        href = attributes.get("href", "")
        if href not in {"{link}", "{page}"}:
            self._address("href", href)
            return
        self.hrefs += 1
        if href == "{link}":
            self._link_text_from = len(self.seen)

    def _image(self, attributes: dict[str, str], look: Look) -> None:
        self._address("src", attributes.get("src", ""))
        alt = attributes.get("alt")
        if (
            alt is None
            or not alt.isprintable()
            or set(placeholders_of(alt) or [""] * ("{" in alt)) - {"name"}
        ):
            raise Refused(
                "needs_alt", 'an image needs alt="…" (may be empty), with no placeholder but {name}.'
            )
        if "&" in _REFERENCE.sub("", alt):
            raise Refused("invalid_html", "write & as &amp;.")
        self.seen += f" {html.unescape(alt)} "
        self._space.picture(look, *(int(attributes.get(side, "0")) for side in ("width", "height")))
        self._space.text(html.unescape(alt))

    def _address(self, key: str, value: str) -> None:
        """An address that does not change from mail to mail: no placeholder can be part of it."""
        found = _ADDRESS.fullmatch(value)
        if found is None or any(a == b == "." for a, b in pairwise(found[1])):
            raise Refused(
                "forbidden_html", f"{key} must be {{link}}, {{page}} or a plain https address without braces."
            )
        if self._hosts is not None and found[1] not in self._hosts:
            raise Refused("link_elsewhere", f"{key} leads to none of the hosts of this client's return URLs.")
