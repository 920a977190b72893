"""What a client's own words may hold: characters that are seen as they are, and no way to anywhere else. Pure.

Mail programs make links of whatever looks like an address, so text is searched for what they find, look-alike full stops
included.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one field. `pointer` is a JSON Pointer into the document."""

    pointer: str
    code: str
    detail: str


_SPACES = frozenset(" \u00a0\u202f\u3000")
# Format characters turn text around or hide in it; what is unassigned or private looks like anything. Letters and marks
# that show nothing are named.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")

_BRACES = re.compile(r"\{([a-z_]+)\}")
_URL = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]*+):/*([^\s/?#\\<>\"']++)[^\s<>\"']*+")
_SCHEMES = frozenset(
    {"http", "https", "ftp", "mailto", "tel", "sms", "javascript", "data", "file", "vbscript"}
)
_DOTTED = re.compile(r"(?<![\w.-])[\w-]++(?:\.+[\w-]++)+")  # possessive: no text makes them look twice
_LAST_LABEL = re.compile(r"[^\W\d_]{2,}(?=[-_]|$)|\d+$")
_TAIL = re.compile(r"(?::\d++)?(?:[/?#][^\s<>\"']*+)?")
# Around a placeholder: white space, quotes, brackets, or the end of a clause. Nothing that could make one link of what it
# stands for and what stands beside it.
_BEFORE = r"(?<![^\s(\u00ab\u201c\u201e\"'])"
_AFTER = r"(?![^\s.,;:!?)\u00bb\u201c\u201d\"'])"
_STANDS_ALONE = re.compile(rf"{_BEFORE}\{{[a-z_]+\}}{_AFTER}|{_BEFORE}\{{name\}}(?=-)")
_ANY_WORD = "aa"
_ANY_MARK = "\u02b0"  # a letter in no host's name
_MOST_EMPTY_LINES = 3
_EMPTY_LINES = re.compile(rf"(?:\n[^\S\n]*){{{_MOST_EMPTY_LINES + 2},}}")


def text_fault(pointer: str, text: str, longest: int, *, lines: bool) -> Fault | None:
    """What is wrong with the characters of a text, or with how many there are."""
    if not text.strip() or len(text) > longest:
        return Fault(pointer, "invalid_length", f"Use 1 to {longest} characters.")
    if not lines and text != text.strip():
        return Fault(pointer, "invalid_format", "Leave no white space at either end.")
    if not all(is_seen(char) or (lines and char == "\n") for char in text):
        return Fault(pointer, "invalid_characters", _NOT_SEEN if lines else f"{_NOT_SEEN} Use one line.")
    return None


_NOT_SEEN = "Control characters, tabs, and characters that are invisible or turn text around are not allowed."


def is_seen(char: str) -> bool:
    """Whether the character shows itself, or is a common space."""
    category = unicodedata.category(char)
    if category == "Zs":
        return char in _SPACES
    return category not in _UNSEEN_CATEGORIES and char not in _UNSEEN


def placeholders_of(text: str) -> list[str] | None:
    """The names within braces, in order; None when there are braces around anything else."""
    if set("{}") & set(_BRACES.sub("", text)):
        return None
    return _BRACES.findall(text)


def link_elsewhere(pointer: str, text: str, hosts: Set[str] | None) -> Fault | None:
    """Something that mail programs make a link of and that leads to none of `hosts` (None: anywhere is fine)."""
    text = unicodedata.normalize("NFKC", text).replace("\u3002", ".").casefold()
    # Marks are part of names in many scripts, and of no word as expressions see it.
    text = "".join(_ANY_MARK if unicodedata.category(char).startswith("M") else char for char in text)
    rest, end = [], 0
    for url in _URL.finditer(text):
        if url[1] in _SCHEMES or "://" in url[0]:
            if url[1] != "https" or not _is_of(url[2], hosts):
                return _elsewhere(pointer)
            rest.append(text[end : url.start()])
            end = url.end()
    if all(_is_of(host, hosts) for host in _hosts_in(" ".join([*rest, text[end:]]))):
        return None
    return _elsewhere(pointer)


def _hosts_in(text: str) -> Iterator[str]:
    """What reads as a host's name or number; a path behind it is its own."""
    at = 0
    while found := _DOTTED.search(text, at):
        labels = [label for label in found[0].split(".") if label]
        ends = [index for index, label in enumerate(labels) if index and _LAST_LABEL.match(label)]
        at = found.end()
        if ends and (not labels[ends[-1]].isdecimal() or len(labels) == 4):
            last = _LAST_LABEL.match(labels[ends[-1]])
            yield ".".join([*labels[: ends[-1]], last[0] if last else ""])
            tail = _TAIL.match(text, at)
            at = tail.end() if tail else at


def template_text_fault(pointer: str, text: str, hosts: Set[str] | None) -> Fault | None:
    """What is wrong with the text of a template whose words are in order each: a link to elsewhere, or the makings of one.

    A placeholder that touches other characters could become part of somebody's link, and the token with it.
    """
    if len(_BRACES.findall(text)) != len(_STANDS_ALONE.findall(text)):
        return Fault(
            pointer, "placeholder_in_word", "Put white space or punctuation around each placeholder."
        )
    return link_elsewhere(pointer, _BRACES.sub(_ANY_WORD, text), hosts)


def empty_lines_fault(pointer: str, text: str) -> Fault | None:
    """Emptiness that pushes what follows out of sight."""
    if not _EMPTY_LINES.search(text):
        return None
    return Fault(
        pointer,
        "invalid_format",
        f"Leave at most {_MOST_EMPTY_LINES} lines in a row empty: people stop reading there.",
    )


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours `#rrggbb` (WCAG 2.2), from 1.0 to 21.0."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _is_of(host: str, hosts: Set[str] | None) -> bool:
    return hosts is None or host.rstrip(".") in hosts


def _elsewhere(pointer: str) -> Fault:
    return Fault(
        pointer,
        "link_elsewhere",
        "This reads as a web or mail address. Only https addresses at the hosts of this client's return URLs may stand here; "
        "the operator adds those. The mail's own link is {link}.",
    )
