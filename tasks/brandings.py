"""Brandings as a worker needs them: each is read from the database once, because its row never changes."""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from db import brandings
from db.errors import NotFound
from db.session import Database
from tasks.branding import Branding, from_stored
from tasks.message import TemplateError

_KEPT = 256  # brandings; some KB each


class Brandings:
    """Reads by id, from any thread, and keeps what was used last. What cannot be read is asked for again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept = lru_cache(maxsize=_KEPT)(self._read)

    def get(self, branding_id: UUID) -> Branding:
        """Raises TemplateError for what is no branding, UnknownBrandingShape for a later release's, DatabaseUnavailable."""
        return self._kept(branding_id)

    def _read(self, branding_id: UUID) -> Branding:
        try:
            return from_stored(brandings.read(self._database, branding_id))
        except (ValueError, NotFound) as error:
            raise TemplateError(type(error).__name__) from None
