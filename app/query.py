"""Reads query strings that cannot surprise anything behind them: each parameter once, as text.

werkzeug takes the first of two, and gives bytes that are no UTF-8 back as if they had been escaped twice.
"""

from __future__ import annotations

import re
from typing import NoReturn
from urllib.parse import parse_qsl

from flask import Request

from app.errors import FieldError, InvalidRequest
from app.strict_json import escape

_MOST_PARAMETERS = 20  # far more than any call knows
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def read(request: Request) -> dict[str, str]:
    """The parameters of a request's query string. Raises InvalidRequest."""
    parameters: dict[str, str] = {}
    for name, value in _pairs(request.query_string):
        pointer = pointer_to(name)
        if name in parameters:
            _refuse(pointer, "repeated", "Send this parameter once.")
        if "\x00" in name or "\x00" in value:
            _refuse(pointer, "invalid_characters", "NUL is not text.")
        parameters[name] = value
    return parameters


def pointer_to(name: str) -> str:
    """`errors[].pointer` of a query parameter: `?limit`."""
    return f"?{escape(name)}"


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        text = raw.decode("ascii")
        if _BROKEN_ESCAPE.search(text):
            raise ValueError("a percent sign without two digits")
        # errors="strict" refuses lone surrogates, too.
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:  # UnicodeError is one
        _refuse(
            "?", "invalid_encoding", f"Send at most {_MOST_PARAMETERS} parameters in UTF-8, percent-encoded."
        )


def _refuse(pointer: str, code: str, detail: str) -> NoReturn:
    raise InvalidRequest([FieldError(pointer, code, detail)])
