"""Tokens: derived from a key and what the verification is about, never stored. Pure.

16 characters of Crockford's base32, 80 bits of an HMAC-SHA256, shown in groups of four.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Mapping
from uuid import UUID

from db.errors import UnknownTokenKey

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford: no I, L, O, U
_TOKEN = re.compile(f"[{_ALPHABET}]{{16}}")
_LOOK_ALIKES = str.maketrans({"O": "0", "I": "1", "L": "1"})
_CHARACTERS = 16
_LONGEST_TYPED = 64  # a token with generous spacing; what is longer is something else

# One key serves two purposes; the label keeps their inputs apart.
_TOKEN_LABEL = b"countersign token 1"
_FINGERPRINT_LABEL = b"countersign fingerprint 1"


def derive(keys: Mapping[str, bytes], key_id: str, verification_id: UUID, email: str, nonce: bytes) -> str:
    """The token of a verification, bound to its exact address. Raises UnknownTokenKey."""
    mac = _mac(keys, key_id, _TOKEN_LABEL, key_id.encode(), verification_id.bytes, email.encode(), nonce)
    number = int.from_bytes(mac[:10])  # 80 bits
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (_CHARACTERS - 1), -1, -5))


def grouped(token: str) -> str:
    """`XXXX-XXXX-XXXX-XXXX`, as people read and type it."""
    return "-".join(token[i : i + 4] for i in range(0, _CHARACTERS, 4))


def normalise(text: str) -> str | None:
    """The token somebody typed or pasted: case, spaces, dashes and look-alikes forgiven. None: it is none."""
    if len(text) > _LONGEST_TYPED:
        return None
    kept = "".join(character for character in text if not _is_spacing(character))
    if not kept.isascii():
        return None
    token = kept.upper().translate(_LOOK_ALIKES)
    return token if _TOKEN.fullmatch(token) else None


def digest(token: str) -> bytes:
    """What the database knows of a token: its SHA-256. 80 random bits need no salt."""
    return hashlib.sha256(token.encode()).digest()


def fingerprint(keys: Mapping[str, bytes], key_id: str, canonical_body: bytes) -> bytes:
    """A keyed digest of a request's body: it outlives the address in it and must not let anybody guess that.

    Raises UnknownTokenKey.
    """
    return _mac(keys, key_id, _FINGERPRINT_LABEL, canonical_body)


def _mac(keys: Mapping[str, bytes], key_id: str, *parts: bytes) -> bytes:
    if key_id not in keys:
        raise UnknownTokenKey(key_id)
    # Lengths in front: no two lists of parts give the same input.
    framed = b"".join(len(part).to_bytes(4) + part for part in parts)
    return hmac.digest(keys[key_id], framed, "sha256")


def _is_spacing(character: str) -> bool:
    """White space, any dash, and the invisible characters that come along when a mail is copied."""
    return character.isspace() or unicodedata.category(character) in {"Pd", "Cf"}
