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

from tasks.branding_text import Fault, contrast, is_seen, placeholders_of, template_text_fault

_LEAST_CONTRAST = 4.5
_TAG = re.compile(r"<(/?)([a-z][a-z0-9]*)((?:\s+[a-z]+=\"[^\"<>]*\")*)\s*(/?)>")
_ATTRIBUTE = re.compile(r"([a-z]+)=\"([^\"]*)\"")
_REFERENCE = re.compile(r"&(#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")

_INLINE = frozenset({"a", "span", "strong", "b", "em", "i", "small", "code", "sub", "sup"})
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
_SMALLER = frozenset({"small", "sub", "sup"})  # one within another would shrink text until nobody can read it
_MAY_BE_EMPTY = frozenset({"td", "th", "tr", "thead", "tbody", "table", *_INLINE})
_DEEPEST = 20
_MOST_BREAKS = 3  # in a row: people stop reading there
TAGS = _INLINE | _BLOCKS | _VOID
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

_COLOUR = r"#[0-9a-fA-F]{6}"
_PX = r"(?:0|\d{1,2}px)"
_SIDES = r"(?:-top|-right|-bottom|-left)?"
# Nothing that hides text, lifts it out of its place or loads something.
_STYLES = (
    (re.compile(r"color|background-color"), re.compile(_COLOUR)),
    (re.compile(r"font-size"), re.compile(r"(?:1[2-9]|[2-4]\d)px")),
    (re.compile(r"font-weight"), re.compile(r"normal|bold|[1-9]00")),
    (re.compile(r"font-style"), re.compile(r"normal|italic")),
    (re.compile(r"font-family"), re.compile(r"[A-Za-z][A-Za-z ,'-]{0,199}")),
    (re.compile(r"line-height"), re.compile(r"1(?:\.\d{1,2})?|2(?:\.0)?")),
    (re.compile(r"letter-spacing"), re.compile(r"0|[1-4]px")),
    (re.compile(r"text-align"), re.compile(r"left|right|center|start|end")),
    (re.compile(r"text-decoration"), re.compile(r"none|underline")),
    (re.compile(r"vertical-align"), re.compile(r"top|middle|bottom|baseline")),
    (re.compile(r"word-break"), re.compile(r"normal|break-all|break-word")),
    (re.compile(r"display"), re.compile(r"block|inline-block")),
    (re.compile(rf"padding{_SIDES}"), re.compile(rf"{_PX}(?: {_PX}){{0,3}}")),
    (re.compile(rf"margin{_SIDES}"), re.compile(rf"(?:{_PX}|auto)(?: (?:{_PX}|auto)){{0,3}}")),
    (re.compile(rf"border{_SIDES}"), re.compile(rf"0|none|\dpx (?:solid|dashed|dotted) {_COLOUR}")),
    (re.compile(r"border-radius"), re.compile(r"0|\d{1,2}px")),
    (re.compile(r"border-collapse"), re.compile(r"collapse|separate")),
    (re.compile(r"width|max-width"), re.compile(r"[1-9]\d{2}px|[1-9]\dem|100%")),
)


class _Refused(Exception):
    """Raised at the first fault: what follows would be read from a wrong start."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail


def check_html(pointer: str, source: str, hosts: Set[str] | None, needed: Set[str]) -> list[Fault]:
    """What is wrong with a template; nothing: []. `needed` placeholders must be seen as text, `{link}` be a link as well."""
    reader = _Reader(hosts)
    try:
        reader.read(source)
    except _Refused as refused:
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
        self._empty: list[bool] = []  # of the open ones: nothing seen in it yet
        self._breaks = 0  # since something was seen
        self._link_text_from: int | None = None  # within <a href="{link}">
        self.at = 0
        self.seen = ""
        self.has_link = False
        self.hrefs = 0  # that are placeholders

    def read(self, source: str) -> None:
        """Raises _Refused."""
        while self.at < len(source):
            if source[self.at] != "<":
                end = source.find("<", self.at)
                self._text(source[self.at : end if end >= 0 else len(source)])
                self.at = end if end >= 0 else len(source)
                continue
            tag = _TAG.match(source, self.at)
            if tag is None:
                raise _Refused(
                    "invalid_html",
                    'write tags as <p style="…">: small letters, values in double quotes, no comments; "<" as &lt;.',
                )
            self._tag(tag[2], tag[3], closes=bool(tag[1]), closed=bool(tag[4]))
            self.at = tag.end()
        if self._open:
            raise _Refused("invalid_html", f"<{self._open[-1][0]}> is not closed.")

    def _text(self, source: str) -> None:
        if ">" in source or "&" in _REFERENCE.sub("", source):
            raise _Refused("invalid_html", "write & as &amp; and > as &gt;.")
        for name in _REFERENCE.findall(source):
            if not name.startswith("#") and f"{name};" not in html5:
                raise _Refused("invalid_html", f"there is no &{name};.")
        text = html.unescape(source)
        if not all(is_seen(char) or char == "\n" for char in text):
            raise _Refused(
                "invalid_characters", "a character reference stands for something that cannot be seen."
            )
        if text.count("{") != source.count("{") or text.count("}") != source.count("}"):
            raise _Refused("invalid_characters", "braces stand around placeholders only.")
        self.seen += text
        if text.strip():
            self._something_seen()

    def _something_seen(self) -> None:
        self._breaks = 0
        self._empty = [False] * len(self._open)

    def _tag(self, name: str, attributes: str, *, closes: bool, closed: bool) -> None:
        if name not in TAGS:
            listed = " ".join(sorted(TAGS))
            raise _Refused("forbidden_html", f"<{name}> may not be used; there are: {listed}.")
        if name not in _INLINE:
            self.seen += "\n"
        if closes:
            self._close(name, attributes)
        elif closed and name not in _VOID:
            raise _Refused("invalid_html", f"<{name}/> closes nothing; write <{name}></{name}>.")
        else:
            self._start(name, dict(self._attributes(name, attributes)))

    def _close(self, name: str, attributes: str) -> None:
        if attributes or name in _VOID or not self._open or self._open[-1][0] != name:
            inner = f"; <{self._open[-1][0]}> is open" if self._open else ""
            raise _Refused("invalid_html", f"</{name}> closes nothing{inner}.")
        self._open.pop()
        if self._empty.pop() and name not in _MAY_BE_EMPTY:
            raise _Refused("forbidden_html", f"there is nothing in this <{name}>.")
        if name == "a" and self._link_text_from is not None:
            self.has_link |= bool(self.seen[self._link_text_from :].strip())
            self._link_text_from = None

    def _attributes(self, name: str, source: str) -> Iterator[tuple[str, str]]:
        found = _ATTRIBUTE.findall(source)
        for key, value in found:
            if key not in _EVERYWHERE | _OWN_ATTRIBUTES.get(name, frozenset()):
                raise _Refused("forbidden_html", f"<{name}> may not have {key}.")
            yield key, value
        if len({key for key, _ in found}) != len(found):
            raise _Refused("invalid_html", "an attribute stands twice.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        for key, value in attributes.items():
            if key in _VALUES and not _VALUES[key].fullmatch(value):
                raise _Refused("forbidden_html", f"{key} may not have this value.")
        coloured = self._style(attributes.get("style"))
        if name == "a":
            self._link(attributes, coloured)
        elif name == "img":
            self._image(attributes)
        if name in _VOID:
            self._breaks += name != "img"
            if self._breaks > _MOST_BREAKS:
                raise _Refused(
                    "forbidden_html", f"at most {_MOST_BREAKS} <br> or <hr> may follow each other."
                )
        else:
            self._nest(name)
            self._open.append((name, coloured))
            self._empty.append(True)

    def _nest(self, name: str) -> None:
        if len(self._open) >= _DEEPEST:
            raise _Refused("forbidden_html", f"elements stand within each other at most {_DEEPEST} deep.")
        if name in _SMALLER and any(outer in _SMALLER for outer, _ in self._open):
            raise _Refused("forbidden_html", f"<{name}> may not make small text smaller.")

    def _style(self, style: str | None) -> bool:
        """Whether it sets colours. Raises _Refused."""
        if style is None:
            return False
        entries = [entry.partition(":") for entry in style.split(";") if entry.strip()]
        declared = [(key.strip(), " ".join(value.split())) for key, _, value in entries]
        for key, value in declared:
            patterns = [values for keys, values in _STYLES if keys.fullmatch(key)]
            if not any(pattern.fullmatch(value) for pattern in patterns):
                raise _Refused(
                    "forbidden_html", f"the style {key[:40]} may not be used, or not with this value."
                )
        styles = dict(declared)
        if len(styles) != len(declared):
            raise _Refused("invalid_html", "a style stands twice.")
        colours = [styles[key] for key in ("color", "background-color") if key in styles]
        if len(colours) == 1:
            raise _Refused(
                "lone_colour", "give color and background-color together: the reader's scheme may be dark."
            )
        if colours and contrast(*colours) < _LEAST_CONTRAST:
            raise _Refused("low_contrast", f"use colours with a contrast of at least {_LEAST_CONTRAST}:1.")
        return bool(colours)

    def _link(self, attributes: dict[str, str], coloured: bool) -> None:
        if any(name == "a" for name, _ in self._open):
            raise _Refused("invalid_html", "a link stands within a link.")
        if not coloured and any(has_colours for _, has_colours in self._open):
            raise _Refused(
                "lone_colour", "a link on a coloured background needs color and background-color itself."
            )
        href = attributes.get("href", "")
        if href not in {"{link}", "{page}"}:
            self._address("href", href)
            return
        self.hrefs += 1
        if href == "{link}":
            self._link_text_from = len(self.seen)

    def _image(self, attributes: dict[str, str]) -> None:
        self._address("src", attributes.get("src", ""))
        alt = attributes.get("alt")
        if (
            alt is None
            or not alt.isprintable()
            or set(placeholders_of(alt) or [""] * ("{" in alt)) - {"name"}
        ):
            raise _Refused(
                "needs_alt", 'an image needs alt="…" (may be empty), with no placeholder but {name}.'
            )
        if "&" in _REFERENCE.sub("", alt):
            raise _Refused("invalid_html", "write & as &amp;.")
        self.seen += f" {html.unescape(alt)} "
        self._something_seen()

    def _address(self, key: str, value: str) -> None:
        """An address that does not change from mail to mail: no placeholder can be part of it."""
        found = _ADDRESS.fullmatch(value)
        if found is None or any(a == b == "." for a, b in pairwise(found[1])):
            raise _Refused(
                "forbidden_html", f"{key} must be {{link}}, {{page}} or a plain https address without braces."
            )
        if self._hosts is not None and found[1] not in self._hosts:
            raise _Refused(
                "link_elsewhere", f"{key} leads to none of the hosts of this client's return URLs."
            )
