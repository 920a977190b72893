"""The styles that a client's HTML may have: type, colour, space and borders. Pure.

Nothing that hides text, lifts it out of its place, writes it in pictures or loads something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tasks.branding_text import contrast

_LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text
_SIDES = ("top", "right", "bottom", "left")
_COLOUR = r"#[0-9a-fA-F]{6}"
_PX = r"(?:0|\d{1,2}px)"
_SIDE = rf"(?:-(?:{'|'.join(_SIDES)}))?"
# A mail brings no fonts along, so others would only be seen by who has them; and in some, letters are pictures.
FONTS: Final = frozenset(
    {
        "arial",
        "calibri",
        "cambria",
        "candara",
        "consolas",
        "courier",
        "courier new",
        "cursive",
        "garamond",
        "geneva",
        "georgia",
        "helvetica",
        "helvetica neue",
        "inter",
        "lato",
        "lucida grande",
        "lucida sans unicode",
        "menlo",
        "monaco",
        "monospace",
        "montserrat",
        "noto sans",
        "noto serif",
        "open sans",
        "palatino",
        "roboto",
        "sans-serif",
        "segoe ui",
        "serif",
        "system-ui",
        "tahoma",
        "times",
        "times new roman",
        "trebuchet ms",
        "ubuntu",
        "verdana",
    }
)
_FAMILIES = "|".join(sorted(FONTS))
_FAMILY = rf"(?:'(?:{_FAMILIES})'|{_FAMILIES})"
_STYLES = (
    (re.compile(r"color|background-color"), re.compile(_COLOUR)),
    (re.compile(r"font-size"), re.compile(r"(?:1[2-9]|[2-4]\d)px")),
    (re.compile(r"font-weight"), re.compile(r"normal|bold|[1-9]00")),
    (re.compile(r"font-style"), re.compile(r"normal|italic")),
    (re.compile(r"font-family"), re.compile(rf"{_FAMILY}(?: ?, ?{_FAMILY})*", re.IGNORECASE)),
    (re.compile(r"line-height"), re.compile(r"1(?:\.\d{1,2})?|2(?:\.0)?")),
    (re.compile(r"letter-spacing"), re.compile(r"0|[1-4]px")),
    (re.compile(r"text-align"), re.compile(r"left|right|center|start|end")),
    (re.compile(r"text-decoration"), re.compile(r"none|underline")),
    (re.compile(r"vertical-align"), re.compile(r"top|middle|bottom|baseline")),
    (re.compile(r"word-break"), re.compile(r"normal|break-all|break-word")),
    (re.compile(r"display"), re.compile(r"block|inline-block")),
    (re.compile(rf"padding{_SIDE}"), re.compile(rf"{_PX}(?: {_PX}){{0,3}}")),
    (re.compile(rf"margin{_SIDE}"), re.compile(rf"(?:{_PX}|auto)(?: (?:{_PX}|auto)){{0,3}}")),
    (re.compile(rf"border{_SIDE}"), re.compile(rf"0|none|\dpx (?:solid|dashed|dotted) {_COLOUR}")),
    (re.compile(r"border-radius"), re.compile(r"0|\d{1,2}px")),
    (re.compile(r"border-collapse"), re.compile(r"collapse|separate")),
    (re.compile(r"width"), re.compile(r"[1-9]\d{2}px|100%")),
    (re.compile(r"max-width"), re.compile(r"[1-9]\d{2}px|[1-9]\dem|100%")),
)


class Refused(Exception):
    """Raised at the first fault: what follows would be read from a wrong start."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Look:
    """What a style comes to. Pixels; `down` and `across` are empty space around and within; `font` 0: as around it."""

    coloured: bool = False
    down: int = 0
    across: int = 0
    width: int = 0
    font: int = 0


def look_of(style: str) -> Look:
    """Raises Refused."""
    entries = [entry.partition(":") for entry in style.split(";") if entry.strip()]
    declared = [(key.strip(), " ".join(value.split())) for key, _, value in entries]
    for key, value in declared:
        if not _is_allowed(key, value):
            raise Refused("forbidden_html", f"the style {key[:40]} may not be used, or not with this value.")
    styles = dict(declared)
    if len(styles) != len(declared):
        raise Refused("invalid_html", "a style stands twice.")
    sides = [_sides(key, value) for key, value in declared if key.startswith(("padding", "margin"))]
    top, right, bottom, left = (sum(side) for side in zip(*sides, strict=True)) if sides else (0, 0, 0, 0)
    return Look(
        coloured=_has_colours(styles),
        down=top + bottom,
        across=right + left,
        width=_pixels(styles.get("width", "0")),
        font=_pixels(styles.get("font-size", "0")),
    )


def _is_allowed(key: str, value: str) -> bool:
    return any(keys.fullmatch(key) and values.fullmatch(value) for keys, values in _STYLES)


def _has_colours(styles: dict[str, str]) -> bool:
    colours = [styles[key] for key in ("color", "background-color") if key in styles]
    if len(colours) == 1:
        raise Refused(
            "lone_colour", "give color and background-color together: the reader's scheme may be dark."
        )
    if colours and contrast(*colours) < _LEAST_CONTRAST:
        raise Refused("low_contrast", f"use colours with a contrast of at least {_LEAST_CONTRAST}:1.")
    return bool(colours)


def _sides(key: str, value: str) -> list[int]:
    """Top, right, bottom, left of a padding or margin."""
    given = [_pixels(part) for part in value.split(" ")]
    if (side := key.partition("-")[2]) in _SIDES:
        return [given[0] if side == each else 0 for each in _SIDES]
    # As CSS has it: what is left out is as the side opposite, or as the first.
    for opposite in (0, 0, 1)[len(given) - 1 :]:
        given.append(given[opposite])
    return given


def _pixels(text: str) -> int:
    number = text.removesuffix("px")
    return int(number) if number.isdecimal() else 0
