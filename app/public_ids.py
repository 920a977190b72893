"""Ids of paths; one of another form is not found."""

from __future__ import annotations

from uuid import UUID

from db import ids
from db.errors import NotFound


def verification_id_of(text: str) -> UUID:
    """The UUID behind `ver_…`. Raises NotFound."""
    parsed = ids.parse("ver", text)
    if parsed is None:
        raise NotFound("no verification has such an id")
    return parsed
