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
_URL = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]*+):/*([^\s/?#\\<>\"']++)[!#-&(-;=?-~]*+")
# What programs make a link of without `//` behind it.
_SCHEMES = frozenset(
    [
        "http",
        "https",
        "ftp",
        "ftps",
        "sftp",
        "mailto",
        "tel",
        "callto",
        "sms",
        "smsto",
        "mms",
        "sip",
        "sips",
        "skype",
        "facetime",
        "whatsapp",
        "tg",
        "xmpp",
        "im",
        "irc",
        "ircs",
        "news",
        "nntp",
        "geo",
        "maps",
        "market",
        "intent",
        "webcal",
        "bitcoin",
        "ethereum",
        "litecoin",
        "magnet",
        "urn",
        "javascript",
        "vbscript",
        "data",
        "file",
        "blob",
        "about",
        "view-source",
        "ssh",
        "telnet",
        "gopher",
        "ldap",
        "ldaps",
        "feed",
        "git",
        "svn",
    ]
)
# A mark belongs to the letter that it stands on, and a picture can be part of a name: both count as this letter, which no
# host of a return URL has.
_ODD_LETTER = "\u02b9"
_HOST_LIKE = re.compile(r"(?<![\w-])[\w-]++(?:\.+[\w-]++)++")  # possessive: no text makes them look twice
_OF_A_MAILBOX = re.compile(r"(?<=[\w.+-]@)[\w-]++(?:\.+[\w-]++)*+")
# Letters, and whatever may follow without being part of a name to somebody: not every program knows digits but our own.
_LAST_LABEL = re.compile(r"xn--[\w-]+|[^\W\d_]{2,}(?=[-_]|$|[^\x00-\x7f])|\d+$")
_LINKED_BY_ITSELF = frozenset({"www", "ftp"})  # whatever follows
# A path as far as everybody reads it: some programs stop at a letter that is not ASCII, and begin anew behind it.
_TAIL = re.compile(r"(?::\d++)?(?:[/?#][!#-&(-;=?-~]*+)?")
# Around a placeholder: white space, quotes, brackets, or the end of a clause. Nothing that could make one link of what it
# stands for and what stands beside it.
_BEFORE = r"(?:(?<!\S)|(?<=(?<!\S)[(\u00ab\u201c\u201e\"']))"
_AFTER = r"(?![^\s.,;:!?)\u00bb\u201c\u201d\"'])"
_STANDS_ALONE = re.compile(rf"{_BEFORE}\{{[a-z_]+\}}{_AFTER}|{_BEFORE}\{{name\}}(?=-)")
# In an address it is a slash to some readers and to others not; two of them are a server's name.
_BACKSLASH = re.compile(r"\\\S|\S\\")
_ANY_WORD = "aa"
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


def with_any_values(text: str, name: str) -> str:
    """The text as a mail might have it: what else is filled in is of letters and digits, and can be part of a link."""
    return _BRACES.sub(lambda brace: name if brace[1] == "name" else _ANY_WORD, text)


def link_elsewhere(pointer: str, text: str, hosts: Set[str] | None) -> Fault | None:
    """Something that mail programs make a link of and that leads to none of `hosts` (None: anywhere is fine).

    Some programs read characters as they stand, some as what they are compatible with; both readings count.
    """
    for read in {text, unicodedata.normalize("NFKC", text)}:
        if _leads_elsewhere(read.replace("\u3002", ".").casefold(), hosts):
            return _elsewhere(pointer)
    return None


def _leads_elsewhere(text: str, hosts: Set[str] | None) -> bool:
    if _BACKSLASH.search(text):
        return True
    rest, end = [], 0
    for url in _URL.finditer(text):
        if url[1] in _SCHEMES or "://" in url[0]:
            if url[1] != "https" or not _is_of(url[2], hosts):
                return True
            rest.append(text[end : url.start()])
            end = url.end()
    others = "".join(map(_as_letter, " ".join([*rest, text[end:]])))
    return not all(_is_of(host, hosts) for host in _hosts_in(others))


def _as_letter(char: str) -> str:
    return _ODD_LETTER if char > "\x7f" and unicodedata.category(char)[0] in "MS" else char


def _hosts_in(text: str) -> Iterator[str]:
    """What reads as a host's name or number, or stands behind the at sign of a mailbox; a path behind it is its own."""
    for mailbox in _OF_A_MAILBOX.finditer(text):
        yield mailbox[0]
    at = 0
    while found := _HOST_LIKE.search(text, at):
        at = found.end()
        if host := _host_of([label for label in found[0].split(".") if label]):
            yield host
            tail = _TAIL.match(text, at)
            at = tail.end() if tail else at


def _host_of(labels: list[str]) -> str | None:
    """The part of dotted words that somebody would take for a host, if any."""
    if labels[0] in _LINKED_BY_ITSELF:
        return ".".join(labels)
    for index in range(len(labels) - 1, 0, -1):
        last = _LAST_LABEL.match(labels[index])
        if last and (not last[0].isdecimal() or len(labels) == 4):
            return ".".join([*labels[:index], last[0]])
    return None


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
