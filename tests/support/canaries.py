"""Values that must never be seen where they do not belong, and a search that knows how they may be written.

Whatever separates, capitalises, escapes or encodes a value: percent signs (however often), JSON's and Python's escapes,
HTML's numbers, UTF-16, hex, base64 at any offset. A value written backwards or encrypted is not found.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

_ESCAPES = re.compile(rb"(?i)(?:\\+u00|\\+x|&#x)([0-9a-f]{2});?")
_SHORTEST = 10  # of what is compared: a shorter one would be found by chance
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Canary:
    """A value and what it is. Its repr keeps it to itself, so that a failing test does not print it."""

    what: str
    value: str = field(repr=False)

    def __post_init__(self) -> None:
        assert len(_squashed(self.value.encode())) >= _SHORTEST, f"{self.what} is too short to be recognised"

    def is_in(self, haystack: Haystack) -> bool:
        """Whether `haystack` has this value in any spelling."""
        return _squashed(self.value.encode()) in haystack.squashed or any(
            encoded in haystack.raw for encoded in self._encoded()
        )

    def _encoded(self) -> set[bytes]:
        return {
            encoded
            for text in (self.value, self.value.replace("-", ""))
            for written in (text, text.lower(), text.upper())
            for encoded in _base64_at_any_offset(written.encode())
        }


class Haystack:
    """What a source wrote: as it is, and without everything that spelling can change."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw.replace(b"\0", b"")  # UTF-16
        self.squashed = b"\n".join(map(_squashed, (self.raw, _unescaped(self.raw), *_unhexed(self.raw))))

    def __len__(self) -> int:
        return len(self.raw)


def word(prefix: str = "canary") -> str:
    """A new word: letters and digits that no mask takes for anything special, as a person's name could be."""
    return prefix + "".join(secrets.choice("bcdfghjkmnpqrstvwxz") for _ in range(12))


def found(canaries: Iterable[Canary], sources: Mapping[str, Haystack]) -> list[str]:
    """`"the first token in web's log"` for each canary where it must not be."""
    known = list(canaries)
    return [
        f"{canary.what} in {name}"
        for name, source in sources.items()
        for canary in known
        if canary.is_in(source)
    ]


def around(canary: Canary, source: Haystack) -> str:
    """The line that has it, for whoever has to mend that; only where it stands there letter by letter."""
    for line in source.raw.splitlines():
        at = _squashed(line).find(_squashed(canary.value.encode()))
        if at >= 0:
            return line.decode(errors="replace")[: 10 * _SHOWN]
    return "(encoded)"


def _squashed(raw: bytes) -> bytes:
    """Letters and digits alone, in lower case."""
    return re.sub(rb"[^a-z0-9]+", b"", raw.lower())


def _unescaped(raw: bytes) -> bytes:
    while b"%" in raw and (decoded := unquote_to_bytes(raw)) != raw:
        raw = decoded
    return _ESCAPES.sub(lambda escape: bytes.fromhex(escape[1].decode()), raw)


def _unhexed(raw: bytes) -> tuple[bytes, bytes]:
    """What longer runs of hex digits stand for, whichever digit comes first."""
    runs = [run.decode() for run in re.findall(rb"[0-9A-Fa-f]{20,}", raw)]
    shifted = (runs, [run[1:] for run in runs])
    even, odd = (b"\n".join(bytes.fromhex(run[: len(run) // 2 * 2]) for run in some) for some in shifted)
    return even, odd


def _base64_at_any_offset(value: bytes) -> set[bytes]:
    """The characters that `value` alone decides, wherever in a longer text it was encoded."""
    pieces = set()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + value)
        known = encoded[-(-before * 8 // 6) : len(encoded.rstrip(b"=")) - 1]
        pieces |= {known, known.replace(b"+", b"-").replace(b"/", b"_")}
    return pieces
