"""Cursors of lists: a place in an order, opaque to callers. They hold nothing secret and open nothing.

24 bytes in base64url, which is 32 characters without padding: a byte for version and order, the microseconds since 1970
in seven, the id in sixteen. Every text that looks like one is one, so the description can say which those are.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from uuid import UUID

from db.listing import Order, Position

PATTERN = "[BC][A-P][A-Za-z0-9_-]{30}"
_SHAPE = re.compile(PATTERN)
# The first version. Another order or another content takes other numbers.
_MARKS = MappingProxyType({Order.CREATED: 0x04, Order.CONSUMED: 0x08})
_ORDERS = MappingProxyType({mark: order for order, mark in _MARKS.items()})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def encode(position: Position) -> str:
    """A position as text, fit for a URL."""
    micros = (position.at - _EPOCH) // _MICROSECOND
    parts = (bytes([_MARKS[position.order]]), micros.to_bytes(7), position.id.bytes)
    return urlsafe_b64encode(b"".join(parts)).decode()


def decode(text: str) -> Position:
    """The position behind `text`. Raises ValueError."""
    if not _SHAPE.fullmatch(text):
        raise ValueError("no cursor")
    raw = urlsafe_b64decode(text)
    at = _EPOCH + int.from_bytes(raw[1:8]) * _MICROSECOND
    return Position(_ORDERS[raw[0]], at, UUID(bytes=raw[8:]))
