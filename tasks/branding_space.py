"""How much room a client's HTML takes: nothing may make what must be read tiny, or push it out of sight. Pure.

No text can be kept from being long, but emptiness can: everything is counted that moves text without being any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tasks.branding_styles import Look, Refused

INLINE: Final = frozenset({"a", "span", "strong", "b", "em", "i", "small", "code", "sub", "sup"})
# One within another makes text smaller and smaller, or larger.
_RESIZING = (frozenset({"small", "sub", "sup"}), frozenset({"h1", "h2", "h3"}))
_HEADINGS = {"h1": 2.0, "h2": 1.5, "h3": 1.2}  # times as large, by custom
_BREAKS = frozenset({"br", "hr"})
_MAY_BE_EMPTY = INLINE | {"td", "th", "tr", "thead", "tbody", "table"}
MOST_ELEMENTS: Final = 300
DEEPEST: Final = 20
MOST_BREAKS: Final = 3  # in a row: people stop reading there
FURTHEST_DOWN: Final = 2000  # pixels in all, some screens of a phone
WIDEST: Final = 640  # pixels, as wide as mail programs show
_FONT = 16  # pixels
_LETTER = 0.5  # of the font's size, about
# Words in scripts that break between words only; with the spaces that do not break.
_UNBROKEN = re.compile(r"[!-~\u00a0-\u0dff\u202f]+")


@dataclass(slots=True)
class _Box:
    """An open element: its own width or what it adds to that of what is in it, and whether anything was seen in it."""

    tag: str
    across: int
    width: int
    font: float
    inner: int = 0
    is_empty: bool = True


class Space:
    """Counts along while a template is read. Each method raises Refused for what is too much."""

    def __init__(self) -> None:
        self._open: list[_Box] = []
        self._elements = 0
        self._breaks = 0  # since something was seen
        self._down = 0
        self._word = 0  # how much of an unbroken word was read last

    def start(self, tag: str, look: Look) -> None:
        """An element begins; `br` and `hr` have no end."""
        self._count(tag)
        self._go_down(look.down)
        if tag in _BREAKS:
            self._breaks += 1
            if self._breaks > MOST_BREAKS:
                raise Refused("forbidden_html", f"at most {MOST_BREAKS} <br> or <hr> may follow each other.")
            return
        if len(self._open) >= DEEPEST:
            raise Refused("forbidden_html", f"elements stand within each other at most {DEEPEST} deep.")
        for alike in _RESIZING:
            if tag in alike and any(box.tag in alike for box in self._open):
                raise Refused("forbidden_html", f"<{tag}> may not stand within its like.")
        font = look.font or self._font() * _HEADINGS.get(tag, 1.0)
        self._open.append(_Box(tag, look.across, look.width, font))

    def end(self) -> None:
        """The last element that began ends."""
        box = self._open.pop()
        if box.tag not in INLINE:
            self._word = 0
        if box.is_empty and box.tag not in _MAY_BE_EMPTY:
            raise Refused("forbidden_html", f"there is nothing in this <{box.tag}>.")
        self._needs(max(box.width, box.inner) + box.across)

    def text(self, text: str) -> None:
        """Text as it is read."""
        if text.strip():
            self._something_seen()
        until = 0
        for part in _UNBROKEN.finditer(text):
            word = len(part[0]) + (self._word if part.start() == 0 else 0)
            self._needs(int(word * self._font() * _LETTER))
            self._word, until = word, part.end()
        if until < len(text):
            self._word = 0

    def picture(self, look: Look, width: int, height: int) -> None:
        """A picture, in pixels; 0: as large as it is."""
        self._count("img")
        self._go_down(height + look.down)
        self._something_seen()
        self._needs(width + look.across)

    def _count(self, tag: str) -> None:
        self._elements += 1
        if self._elements > MOST_ELEMENTS:
            raise Refused("too_many", f"use at most {MOST_ELEMENTS} elements.")
        if tag not in INLINE:
            self._word = 0

    def _font(self) -> float:
        return self._open[-1].font if self._open else _FONT

    def _something_seen(self) -> None:
        self._breaks = 0
        for box in self._open:
            box.is_empty = False

    def _go_down(self, pixels: int) -> None:
        self._down += pixels
        if self._down > FURTHEST_DOWN:
            raise Refused(
                "too_large", f"margins, paddings and pictures come to more than {FURTHEST_DOWN} px down."
            )

    def _needs(self, width: int) -> None:
        """What stands beside each other in a row adds up; below each other, the widest counts."""
        if width > WIDEST:
            raise Refused("too_large", f"this needs more than {WIDEST} px across.")
        if self._open:
            outer = self._open[-1]
            outer.inner = outer.inner + width if outer.tag == "tr" else max(outer.inner, width)
