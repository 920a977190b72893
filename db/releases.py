"""The release phase: migrate, and leave a receipt of it in `releases`."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from sqlalchemy.exc import DBAPIError, OperationalError

from db import schema
from db.errors import CountersignError, DatabaseUnavailable
from db.ids import new_id
from db.queries import load
from db.session import Database

_SQL = load("releases.sql")


class MigrationFailed(CountersignError):
    """The schema is as it was before; the message says what failed, without values."""


@dataclass(frozen=True, slots=True)
class Release:
    """What a release phase came to. Schemas are revisions, None for an empty database; `seconds` it took."""

    commit: str
    schema_before: str | None
    schema_after: str | None
    outcome: str
    seconds: float


def migrate(database: Database, url: str, commit: str) -> Release:
    """Bring the schema to what this release needs; one that a newer release made is left alone (expand/contract).

    Raises MigrationFailed, DatabaseUnavailable.
    """
    began = time.monotonic()
    before = schema.current(database)
    try:
        if before is None or not schema.is_usable(database):
            schema.upgrade(url)
    except DBAPIError as error:
        kind = type(error.orig or error).__name__
        failed = Release(commit, before, before, "failed", time.monotonic() - began)
        with suppress(CountersignError, psycopg.Error):  # there may be no such table yet
            _record(database, failed)
        if isinstance(error, OperationalError) and error.connection_invalidated:
            raise DatabaseUnavailable(kind) from error
        raise MigrationFailed(kind) from error
    done = Release(commit, before, schema.current(database), "done", time.monotonic() - began)
    _record(database, done)
    return done


def _record(database: Database, release: Release) -> None:
    with database.transaction() as tx:
        tx.execute(
            _SQL["insert_release"],
            {
                "id": new_id(),
                "commit": release.commit,
                "schema_before": release.schema_before,
                "schema_after": release.schema_after,
                "outcome": release.outcome,
                "seconds": release.seconds,
            },
        )
