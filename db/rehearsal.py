"""Reading a token back: for test clients, whose mail reaches no inbox that they could look into."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from db import tokens
from db.errors import NotFound, NotHandedOver, UnknownTokenKey
from db.queries import load
from db.session import Database

_SQL = load("rehearsal.sql")


def read_token(database: Database, client_id: UUID, verification_id: UUID, keys: Mapping[str, bytes]) -> str:
    """The token in the mail of a test client's verification, whether or not it can still be used.

    Raises NotHandedOver while no mail with it has left: nobody could know it, and whoever used it would raise the alarm of a
    leaked token. Raises NotFound, also once the address is forgotten or the key was rotated away; DatabaseUnavailable.
    """
    with database.transaction() as tx:
        row = tx.execute(_SQL["read_secrets"], {"id": verification_id, "client_id": client_id}).fetchone()
    if row is None or row["email"] is None:
        raise NotFound("no such verification")
    if not row["was_handed_over"]:
        raise NotHandedOver(row["retry_after"])
    try:
        return tokens.derive(keys, row["token_key_id"], row["id"], row["email"], row["token_nonce"])
    except UnknownTokenKey:
        raise NotFound("the key that made its token is gone") from None
