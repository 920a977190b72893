"""Loads SQL by name from the `.sql` files beside this module.

A query starts at a line `-- name: verb_noun` and carries a comment that says what it is for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import LiteralString, cast

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(filename: str) -> dict[str, LiteralString]:
    """The queries of one file by name; ValueError when a name stands twice."""
    _, *parts = _NAME.split((Path(__file__).parent / filename).read_text(encoding="utf-8"))
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{filename}: a query name stands twice")
    # The files are part of the program, hence literals.
    return {name: cast(LiteralString, body.strip()) for name, body in zip(names, bodies, strict=True)}
