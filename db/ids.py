"""Identifiers: UUIDs ordered by time (RFC 9562, version 7), shown as `ver_…` and `dlv_…`."""

from __future__ import annotations

import os
import re
import time
from uuid import UUID

_PUBLIC = re.compile(r"(?P<kind>[a-z]{3})_(?P<hex>[0-9a-f]{32})\Z")


def new_id() -> UUID:
    """A version 7 UUID. Its time part serves locality in indexes; nothing is decided by it (G10)."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def public(kind: str, value: UUID) -> str:
    """`public("ver", id)` -> `ver_` and 32 hex digits."""
    return f"{kind}_{value.hex}"


def parse(kind: str, text: str) -> UUID | None:
    """The UUID behind a public id of this kind, or None when `text` is anything else."""
    found = _PUBLIC.match(text)
    return UUID(hex=found["hex"]) if found and found["kind"] == kind else None
