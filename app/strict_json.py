"""Reads JSON bodies that cannot surprise anything behind them.

Python's reader takes NaN, duplicate keys, lone surrogates and any depth; PostgreSQL takes no NUL. Here each of those is a
4xx that says where.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from werkzeug import Request

from app.errors import FieldError, InvalidRequest, MalformedJson, UnsupportedMediaType
from db.logs import mask

_DEEPEST = 8
LARGEST_INTEGER = 2**63 - 1  # what other languages and databases can hold
_INTEGRAL = (
    1e16  # from here on PostgreSQL's jsonb gives a number back without exponent or fraction: an integer
)
_LONGEST_STEP = 64


def read(request: Request) -> Any:
    """The request's JSON document.

    Raises UnsupportedMediaType, MalformedBody, MalformedJson, InvalidRequest, and werkzeug's 413.
    """
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if request.mimetype != "application/json" or charset not in {"utf-8", "utf8"}:
        raise UnsupportedMediaType
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType
    document = parse(request.get_data())
    _check(document)
    return document


def parse(body: bytes) -> Any:
    """Strict JSON. Raises MalformedJson, which never quotes the body."""
    try:
        return json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_number,
        )
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise MalformedJson from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("duplicate key")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _number(text: str) -> float | int:
    """As it will come back from the database, so that the limits count for that."""
    number = float(text)
    vanished = number == 0 and any(digit in "123456789" for digit in text.lower().partition("e")[0])
    if vanished or not math.isfinite(number):
        raise ValueError("out of range")
    return int(number) if abs(number) >= _INTEGRAL else number


def _check(document: Any) -> None:
    """What is valid JSON and still not fit for use. A loop, so that depth costs no stack."""
    waiting: list[tuple[str, int, Any]] = [("", 0, document)]
    while waiting:
        pointer, depth, value = waiting.pop()
        if depth > _DEEPEST:
            _refuse(pointer, "too_deep", f"Nest at most {_DEEPEST} levels.")
        if isinstance(value, str):
            _check_text(pointer, value)
        elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            _refuse(pointer, "number_too_large", "Use numbers of at most 64 bits.")
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{index}", depth + 1, item) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            for key, item in value.items():
                _check_text(pointer, key)
                waiting.append((f"{pointer}/{escape(key)}", depth + 1, item))


def _check_text(pointer: str, text: str) -> None:
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        _refuse(pointer, "invalid_characters", "NUL and lone surrogates are not text.")


def escape(key: str) -> str:
    """A key as one step of a JSON Pointer, fit to go back to the caller and into their logs: masked and short."""
    return mask(key)[:_LONGEST_STEP].replace("~", "~0").replace("/", "~1")


def _refuse(pointer: str, code: str, detail: str) -> NoReturn:
    raise InvalidRequest([FieldError(pointer, code, detail)])
