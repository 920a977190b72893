"""The Idempotency-Key header: read as the IETF draft writes it (a quoted string) and as everybody does (bare)."""

from __future__ import annotations

import re

from werkzeug.datastructures import EnvironHeaders, Headers

from app.errors import InvalidIdempotencyKey
from db.ids import new_id

HEADER = "Idempotency-Key"
_LONGEST = 255
# Servers join a repeated header with commas, so a bare comma may be two headers; a key that has one comes quoted.
# Ours marks such a header (app.server), because two halves of a quoted string would pass for one.
_BARE = re.compile(r"[!#-+\--~]+")
_QUOTED = re.compile(r'"((?:[!#-\[\]-~]|\\["\\])*)"')
# The same as one pattern, for the description.
PARAMETER = {
    "in": "header",
    "name": HEADER,
    "description": "Names this request: repeat it with the same key as often as needed. Made by the service when absent.",
    "schema": {
        "type": "string",
        "pattern": rf'^(?:[!#-+\--~]{{1,{_LONGEST}}}|"(?:[!#-\[\]-~]|\\["\\]){{1,{_LONGEST}}}")$',
    },
    "example": "welcome-42",
}


def key_of(headers: Headers | EnvironHeaders) -> tuple[str, bool]:
    """The request's key, and whether it is ours because the caller sent none. Raises InvalidIdempotencyKey."""
    given = headers.getlist(HEADER)
    if not given:
        return f"srv_{new_id().hex}", True
    if len(given) > 1:
        raise InvalidIdempotencyKey
    return parse(given[0]), False


def written(key: str) -> str:
    """The key as a header value that `parse` takes again: bare where that is possible."""
    if _BARE.fullmatch(key):
        return key
    escaped = re.sub(r'(["\\])', r"\\\1", key)
    return f'"{escaped}"'


def parse(text: str) -> str:
    """`abc` and `"abc"` are the same key. Raises InvalidIdempotencyKey."""
    text = text.strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    if not 1 <= len(key) <= _LONGEST or not (quoted or _BARE.fullmatch(key)):
        raise InvalidIdempotencyKey
    return key
