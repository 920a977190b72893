"""Whether anything that a process wrote names a token, a key or a person (G9)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from db import tokens
from tests.chaos.book import Book
from tests.chaos.facts import Breach
from tests.chaos.load import ADDRESSES
from tests.chaos.mailbox import Mail

# Anything that could be a token, grouped or not; whether it is one says the set of those that were mailed.
_CANDIDATE = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Za-z]{4}[- ]?){3}[0-9A-Za-z]{4}(?![0-9A-Za-z])")


def search(
    logs: Mapping[str, str], mails: Sequence[Mail], book: Book, others: Sequence[str]
) -> Iterator[Breach]:
    """`logs` by process. `others` are secrets that must not be there as they are written."""
    known = {tokens.normalise(mail.token) for mail in mails}
    for name, text in logs.items():
        if any(tokens.normalise(found) in known for found in _CANDIDATE.findall(text)):
            yield Breach("G9", f"{name} wrote a token")
        if ADDRESSES in text.lower():
            yield Breach("G9", f"{name} wrote an address")
        if any(secret in text for secret in others):
            yield Breach("G9", f"{name} wrote a key or a password")
        if any(key in text for key in list(book.asked)[:200]):
            yield Breach("G9", f"{name} wrote an idempotency key")
