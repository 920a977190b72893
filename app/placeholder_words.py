"""Words that say "this is no address of mine": `tempail`, `dummy e-mail`, `fake_mail1`, and their look-alikes.

They come from samples that were left in, and from people who want to get past a form. An adjective and a noun must stand
together: `temperature.com`, `attempt@`, `fakenham.gov.uk` and `tempe.mail@` belong to somebody.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ADJECTIVE = "(?:te?m+p+(?:orary)?|dum+(?:y|ie)|fake|bogus)"
_NOUN = "(?:e?m+ai[li]s?|mailbox|inbox|add?ress|mailadd?ress)"
_GAP = r"[\s._\-]"
_WORDS: Final = (
    # In one piece, wherever it stands. `tempail` is the one typing error that has become a word.
    re.compile(f"{_ADJECTIVE}{_NOUN}|te?m+p+ai[li]"),
    # In pieces, only between ends of words: `contemp.mail` and `fake.mailand` are none. The e of e-mail needs a gap
    # before it, or else `tempe.mail` were one.
    re.compile(f"(?<![a-z]){_ADJECTIVE}{_GAP}+(?:{_NOUN}|e{_GAP}+mails?)(?![a-z])"),
)
# What people type for letters, to get past a list like this one.
_DIGITS: Final = str.maketrans("013457", "oieast")
# On both sides of the @.
_TWICE: Final = frozenset(("test", "testing", "tester", "dummy", "fake", "temp", "asdf", "qwerty"))


def found(text: str) -> bool:
    """Whether an address, or what somebody typed for one, holds such a word; `text` may be malformed."""
    local, _, domain = _folded(text).rpartition("@")
    name = local.partition("+")[0]  # what follows is a person's own note
    labels = domain.split(".")
    return _is_twice(name, labels) or any(_matches(part) for part in (name, *labels))


def _is_twice(name: str, labels: list[str]) -> bool:
    return name.rstrip("0123456789") == labels[0] and labels[0] in _TWICE and len(labels) <= 2


def _matches(part: str) -> bool:
    return any(word.search(spelling) for word in _WORDS for spelling in (part, part.translate(_DIGITS)))


def _folded(text: str) -> str:
    """Without case, width and accents."""
    letters = unicodedata.normalize("NFKD", text)
    return "".join(char for char in letters if not unicodedata.combining(char)).casefold()
