"""How addresses, header values and bodies are written so that they mean the same to every mail system.

By hand rather than through `email`: what that package writes differs between Python releases, and a replay
must be the same bytes after an upgrade. Whatever is refused is a ValueError that does not quote the value:
it may be logged.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import idna

# An open slot in a laid-out mail. What gets this far holds no control characters, so nobody can forge one.
SLOT: Final = re.compile("\x01([a-z]+)\x02")

_ATEXT = r"[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~\u0080-\U0010ffff]+"
_DOT_ATOM = re.compile(rf"{_ATEXT}(?:\.{_ATEXT})*")
_QUOTED = re.compile(r'"(?:[ !#-\[\]-~]|\\[ -~])*"')
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_ADDRESS_LITERAL = re.compile(r"\[(?:IPv6:)?[0-9A-Fa-f:.]+\]")
_PHRASE = re.compile(r"[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~ ]*")

_MAX_LOCAL = 64  # RFC 5321 4.5.3.1, in octets
_MAX_DOMAIN = 255
_MAX_HEADER = 200  # characters; a sender's name or a subject that is longer is a mistake
_MAX_7BIT_LINE = 900  # RFC 5322 allows 998
_MAX_QP_LINE = 75  # RFC 2045 allows 76 with the soft break's equals sign
_WORD_BYTES = 33  # of text in an encoded word, which comes to 56 characters of the 75 allowed


def slot(name: str) -> str:
    """The mark of an open slot."""
    return f"\x01{name}\x02"


def printable(text: str) -> bool:
    """Whether the text may stand in a header: no control character, line separator or lone surrogate."""
    return not any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in text)


def addr_spec(address: str) -> str:
    """The address as it travels: local part untouched, domain in its ASCII (IDNA 2008) form."""
    local, at, domain = address.rpartition("@")
    if not at or not (_DOT_ATOM.fullmatch(local) or _QUOTED.fullmatch(local)):
        raise ValueError("the address has no valid local part")
    if not printable(local) or any(char.isspace() for char in local if not char.isascii()):
        raise ValueError("the address's local part holds characters that cannot be sent")
    if len(local.encode()) > _MAX_LOCAL:
        raise ValueError("the address's local part is too long")
    return f"{local}@{_ascii_domain(domain)}"


def _ascii_domain(domain: str) -> str:
    if not domain.isascii():
        try:
            domain = idna.encode(domain, uts46=True).decode()
        except UnicodeError:  # its text quotes the domain
            raise ValueError("the address's domain has no ASCII form") from None
    if len(domain) > _MAX_DOMAIN or not (_HOST.fullmatch(domain) or _ADDRESS_LITERAL.fullmatch(domain)):
        raise ValueError("the address has no valid domain")
    return domain


def header_text(text: str) -> str:
    """A header's free text: as it is, or as encoded words, folded (RFC 2047)."""
    if not printable(text):
        raise ValueError("a header must not hold line ends or other control characters")
    if len(text) > _MAX_HEADER:
        raise ValueError("a header is too long")
    if text.isascii() and "=?" not in text:
        return text
    words = (f"=?utf-8?b?{base64.b64encode(chunk).decode()}?=" for chunk in _chunks(text))
    return "\r\n ".join(words)  # white space between encoded words does not count


def _chunks(text: str) -> Iterator[bytes]:
    """The text's UTF-8 in pieces for encoded words, none of which splits a character."""
    chunk = b""
    for char in text:
        encoded = char.encode()
        if len(chunk) + len(encoded) > _WORD_BYTES:
            yield chunk
            chunk = b""
        chunk += encoded
    yield chunk


def mailbox(name: str, address: str) -> str:
    """`name <address>` for a From header, folded where it would be long."""
    phrase = header_text(name)
    if not phrase:
        return address
    if phrase == name and not _PHRASE.fullmatch(name):
        phrase = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    fold = "\r\n " if len(phrase) + len(address) > 65 else " "
    return f"{phrase}{fold}<{address}>"


def encoded_body(body: str) -> tuple[str, list[str]]:
    """A text's transfer encoding and lines. Never 8bit, which servers may mangle or refuse.

    ASCII stays as it is, so that the link can be read in the raw mail; other text is quoted-printable.
    """
    lines = body.removesuffix("\n").split("\n")
    if body.isascii() and max(map(_filled_length, lines)) <= _MAX_7BIT_LINE:
        return "7bit", lines
    return "quoted-printable", [piece for line in lines for piece in _quoted_printable(line)]


# The longest value that goes into each slot: lines stay within the limit once it is filled in.
SLOT_LENGTHS: Final = {"token": 19, "expires": 32, "reference": 36}


def _filled_length(line: str) -> int:
    """A line's length once its slots are filled in."""
    return len(SLOT.sub("", line)) + sum(SLOT_LENGTHS[name] for name in SLOT.findall(line))


def _quoted_printable(line: str) -> Iterator[str]:
    """One line of text as one or more lines, broken neither inside an escape nor inside a slot."""
    out, length = "", 0
    for unit in re.findall(f"{SLOT.pattern.replace('(', '(?:')}|.", line):
        filled = SLOT.fullmatch(unit)
        piece = unit if filled else _qp_char(unit)
        size = SLOT_LENGTHS[filled[1]] if filled else len(piece)
        if length + size > _MAX_QP_LINE:
            yield out + "="
            out, length = "", 0
        out, length = out + piece, length + size
    # White space at a line's end would be lost on the way.
    yield out[:-1] + "=20" if out.endswith(" ") else out


@lru_cache(maxsize=1024)
def _qp_char(char: str) -> str:
    if char == " " or ("!" <= char <= "~" and char != "="):
        return char
    return "".join(f"={byte:02X}" for byte in char.encode())
