"""What a client's mail looks like: stored whole, never changed, because a replay needs what the mail was first sent with.

What stands in a body is `tasks.branding`'s business. Rows are kept for good, also those that nothing refers to any more: one
could only go once no verification points at it, and to find that out would take an index of all of them for nothing else. The
limit by the hour bounds them: half a megabyte an hour at worst, from a client that tries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import errors as pg
from psycopg.types.json import Jsonb

from db.errors import NotFound
from db.ids import new_id
from db.limits import LEVEL_CONSTRAINT, Bucket, refusal, take
from db.queries import load
from db.session import Database, Row, Tx

_SQL = load("brandings.sql")
_HOURLY = 30  # new ones a client: a person tries a few


@dataclass(frozen=True, slots=True)
class StoredBranding:
    """A branding as it was stored."""

    id: UUID
    body: Mapping[str, Any]
    created_at: datetime


def client_named(database: Database, name: str) -> UUID:
    """The client of that name. Raises NotFound."""
    with database.transaction() as tx:
        row = tx.execute(_SQL["find_client"], {"name": name}).fetchone()
    if row is None:
        raise NotFound("no such client")
    client_id: UUID = row["id"]
    return client_id


def current(database: Database, client_id: UUID) -> StoredBranding | None:
    """What the client's new verifications are rendered with; None: our own words."""
    with database.transaction() as tx:
        row = tx.execute(_SQL["find_current"], {"client_id": client_id}).fetchone()
    return _stored(row) if row else None


def set_current(
    database: Database, client_id: UUID, body: Mapping[str, Any], *, hourly: int = _HOURLY
) -> StoredBranding:
    """Render the client's new verifications with `body`. The same again changes nothing.

    Raises NotFound, and RateLimited for more than `hourly` new ones (0: no limit).
    """
    bucket = Bucket("branding_by_client", client_id.bytes, hourly)
    try:
        with database.transaction() as tx:
            return _set(tx, client_id, body, bucket)
    except pg.CheckViolation as error:
        if error.diag.constraint_name != LEVEL_CONSTRAINT:
            raise
        raise refusal(database, [bucket]) from None


def _set(tx: Tx, client_id: UUID, body: Mapping[str, Any], bucket: Bucket) -> StoredBranding:
    locked = tx.execute(_SQL["lock_client"], {"client_id": client_id}).fetchone()
    if locked is None:
        raise NotFound("no such client")
    if locked["branding_id"] is not None and locked["body"] == body:
        return StoredBranding(locked["branding_id"], locked["body"], locked["created_at"])
    take(tx, [bucket])
    values = {"id": new_id(), "client_id": client_id, "body": Jsonb(body)}
    row = tx.execute(_SQL["insert_branding"], values).fetchone()
    assert row is not None, "INSERT … RETURNING"
    tx.execute(_SQL["point_client"], {"client_id": client_id, "branding_id": row["id"]})
    return _stored(row)


def reset(database: Database, client_id: UUID) -> None:
    """Render the client's new verifications in our own words. Doing it twice is fine."""
    with database.transaction() as tx:
        tx.execute(_SQL["point_client"], {"client_id": client_id, "branding_id": None})


def read(database: Database, branding_id: UUID) -> Any:
    """The body of one branding, as it lies there. Raises NotFound."""
    with database.transaction() as tx:
        row = tx.execute(_SQL["read_body"], {"id": branding_id}).fetchone()
    if row is None:
        raise NotFound("no such branding")
    return row["body"]


def _stored(row: Row) -> StoredBranding:
    return StoredBranding(row["id"], row["body"], row["created_at"])
