"""The mails the dev inbox keeps: bounded, read with suspicion."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from typing import TypedDict

DELIVERY_HEADER = "X-Countersign-Delivery"
HEADER_BYTES = 64 * 1024  # what is looked at for headers; a longer block is cut there
HEADER_CHARS = 1000  # what is shown of one header
PARTS = 100  # MIME parts looked at


class Mail(TypedDict, total=False):
    """One received mail as JSON. `text`, `html` and `raw` are missing in the brief form."""

    id: str
    delivery_id: str
    message_id: str
    to: str
    subject: str
    received_at: str
    text: str
    html: str
    raw: str


@dataclass(frozen=True)
class Stored:
    """What is kept: the bytes as they came, and what is asked for often."""

    id: str
    to: str
    received_at: str
    delivery_id: str
    message_id: str
    subject: str
    raw: bytes

    def brief(self) -> Mail:
        return Mail(
            id=self.id,
            delivery_id=self.delivery_id,
            message_id=self.message_id,
            to=self.to,
            subject=self.subject,
            received_at=self.received_at,
        )

    def full(self) -> Mail:
        text, html = bodies(self.raw)
        return Mail(**self.brief(), text=text, html=html, raw=clean(self.raw))


class Store:
    """The newest mails, at most `max_messages` and `max_bytes`; the oldest go first. Safe between threads."""

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._mails: deque[Stored] = deque()
        self._bytes = 0
        self._count = 0
        self._changed = threading.Condition()

    def add(self, recipients: Sequence[str], raw: bytes) -> None:
        """Keep one entry for each recipient of the envelope."""
        head = _head(raw)
        seen = {
            name: _header(head, header)
            for name, header in (
                ("delivery_id", DELIVERY_HEADER),
                ("message_id", "Message-ID"),
                ("subject", "Subject"),
            )
        }
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._changed:
            for recipient in recipients:
                self._count += 1
                self._mails.append(
                    Stored(id=str(self._count), to=clean(recipient), received_at=now, raw=raw, **seen)
                )
                self._bytes += len(raw)
            while self._mails and (len(self._mails) > self._max_messages or self._bytes > self._max_bytes):
                self._bytes -= len(self._mails.popleft().raw)
            self._changed.notify_all()

    def find(self, to: str | None = None, delivery_id: str | None = None) -> list[Stored]:
        """Oldest first. Addresses compare without case; absent filters match all."""
        with self._changed:
            mails = list(self._mails)
        return [mail for mail in mails if _matches(mail, to, delivery_id)]

    def get(self, identifier: str) -> Stored | None:
        with self._changed:
            return next((mail for mail in self._mails if mail.id == identifier), None)

    def wait(self, count: int, to: str | None, delivery_id: str | None, seconds: float) -> list[Stored]:
        """Wait until `count` mails match or the time is up; returns what matches then."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                found = [mail for mail in self._mails if _matches(mail, to, delivery_id)]
                left = deadline - time.monotonic()
                if len(found) >= count or left <= 0:
                    return found
                self._changed.wait(left)

    def delete(self, to: str | None = None) -> int:
        """Forget the mails to `to` (all without it); returns how many."""
        with self._changed:
            kept = [mail for mail in self._mails if not _matches(mail, to, None)]
            gone = len(self._mails) - len(kept)
            self._mails, self._bytes = deque(kept), sum(len(mail.raw) for mail in kept)
            return gone


def _matches(mail: Stored, to: str | None, delivery_id: str | None) -> bool:
    return (not to or mail.to.casefold() == to.casefold()) and (
        not delivery_id or mail.delivery_id == delivery_id
    )


def clean(value: bytes | str) -> str:
    """Text that any JSON reader takes: undecodable bytes and lone surrogates become U+FFFD or `?`."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.encode("utf-8", "replace").decode("utf-8")


def _head(raw: bytes) -> Message:
    block = re.split(rb"\r?\n\r?\n", raw[:HEADER_BYTES], maxsplit=1)[0]
    try:
        return message_from_bytes(block + b"\r\n\r\n")
    except Exception:  # hostile input meets a parser with known holes; the mail is kept all the same
        return Message()


def _header(message: Message, name: str) -> str:
    value = str(message.get(name, ""))[:HEADER_CHARS]
    try:
        value = str(make_header(decode_header(value)))
    except Exception:  # unknown charset, broken encoded word: show it as it came
        value = str(value)
    return clean(re.sub(r"[\r\n]+\s*", " ", value)).strip()


def bodies(raw: bytes) -> tuple[str, str]:
    """The first text/plain and the first text/html part, each empty when there is none."""
    found = {"text/plain": "", "text/html": ""}
    try:
        for part in _leaves(message_from_bytes(raw)):
            kind = part.get_content_type()
            if kind in found and not found[kind] and not part.get_filename():
                found[kind] = _content(part)
    except Exception:  # nesting too deep, broken boundaries: the raw text still shows everything
        found["text/plain"] = found["text/plain"] or clean(raw)
    return found["text/plain"], found["text/html"]


def _leaves(message: Message) -> Iterator[Message]:
    for number, part in enumerate(message.walk()):
        if number >= PARTS:
            return
        if not part.is_multipart():
            yield part


def _content(part: Message) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return clean(str(part.get_payload()))
    try:
        return clean(payload.decode(part.get_content_charset() or "utf-8", "replace"))
    except (LookupError, ValueError):  # a charset Python does not know
        return clean(payload)
