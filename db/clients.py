"""Clients and their API keys: made, listed, switched off, recognised.

A key is `cs_live_<prefix>_<secret>`, or `cs_test_…` for a client whose mail never leaves the machine. The prefix finds
its row, the SHA-256 of the whole is compared in constant time.
The secret is random (160 bits), so a plain digest is enough; it is shown once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg import errors as pg

from db.errors import ClientDisabled, InvalidKey, NameTaken, NotFound
from db.ids import new_id
from db.queries import load
from db.session import Database, Row, Tx

_SQL = load("clients.sql")
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 characters, nothing to confuse when read aloud
_PREFIX_LENGTH = 10
_SECRET_LENGTH = 32  # 5 bits a character
_KEY = re.compile(
    rf"cs_(?:live|test)_(?P<prefix>[{_ALPHABET}]{{{_PREFIX_LENGTH}}})_[{_ALPHABET}]{{{_SECRET_LENGTH}}}"
)
_ABSENT = bytes(32)  # compared with when no such key exists, so that both answers take the same steps


@dataclass(frozen=True, slots=True)
class Client:
    """A program that calls the API. `return_urls` are the addresses that the page may send people back to.

    `branding_id` names what its new verifications are rendered with; None: our own words.
    """

    id: UUID
    name: str
    return_urls: tuple[str, ...]
    is_test: bool
    branding_id: UUID | None
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made: `key` is its whole text, which nobody will see again; `prefix` names it."""

    client: Client
    prefix: str
    key: str


def create(
    database: Database, name: str, return_urls: Sequence[str] = (), *, is_test: bool = False
) -> NewKey:
    """A new client with its first key. Raises NameTaken."""
    try:
        with database.transaction() as tx:
            values = {"id": new_id(), "name": name, "return_urls": list(return_urls), "is_test": is_test}
            row = tx.execute(_SQL["insert_client"], values).fetchone()
            assert row is not None, "INSERT … RETURNING"
            return _add_key(tx, _client(row))
    except pg.UniqueViolation as error:
        if error.diag.constraint_name != "uq_clients_name":
            raise
        raise NameTaken(name) from None


def list_all(database: Database) -> list[tuple[Client, int]]:
    """Every client, oldest first, each with the number of its keys that work."""
    with database.transaction() as tx:
        return [(_client(row), row["keys"]) for row in tx.execute(_SQL["list_clients"])]


def disable(database: Database, name: str) -> Client:
    """Switch a client off: its keys stop at once. Doing it twice is fine. Raises NotFound."""
    with database.transaction() as tx:
        return _found(tx.execute(_SQL["disable_client"], {"name": name}).fetchone())


def create_key(database: Database, name: str) -> NewKey:
    """Another key for the client of that name; the old ones go on working. Raises NotFound."""
    with database.transaction() as tx:
        return _add_key(tx, _found(tx.execute(_SQL["find_client"], {"name": name}).fetchone()))


def revoke_key(database: Database, prefix: str) -> datetime:
    """Stop a key; answers since when. `prefix` may be the whole key or `cs_live_<prefix>`. Raises NotFound."""
    bare = prefix.removeprefix("cs_live_").removeprefix("cs_test_").partition("_")[0]
    with database.transaction() as tx:
        row = tx.execute(_SQL["revoke_key"], {"prefix": bare}).fetchone()
    if row is None:
        raise NotFound("no such key")
    revoked_at: datetime = row["revoked_at"]
    return revoked_at


def is_key(presented: str) -> bool:
    """Whether it has the form of a key; whether it is one, only the database knows."""
    return _KEY.fullmatch(presented) is not None


def is_test_key(presented: str) -> bool:
    """Whether it would be a test client's."""
    return presented.startswith("cs_test_")


def authenticate(tx: Tx, presented_key: str) -> Client:
    """Whose key this is. Raises InvalidKey, and ClientDisabled for a good key of a client that was switched off."""
    shape = _KEY.fullmatch(presented_key)
    if shape is None:
        raise InvalidKey
    row = tx.execute(_SQL["find_key"], {"prefix": shape["prefix"]}).fetchone()
    known = bytes(row["key_hash"]) if row else _ABSENT
    if not hmac.compare_digest(_hash(presented_key), known) or row is None:
        raise InvalidKey
    client = _client(row)
    if client.disabled_at is not None:
        raise ClientDisabled(client.name)
    return client


def _add_key(tx: Tx, client: Client) -> NewKey:
    prefix = _random(_PREFIX_LENGTH)
    key = f"cs_{'test' if client.is_test else 'live'}_{prefix}_{_random(_SECRET_LENGTH)}"
    tx.execute(
        _SQL["insert_key"],
        {"id": new_id(), "client_id": client.id, "prefix": prefix, "key_hash": _hash(key)},
    )
    return NewKey(client, prefix, key)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _found(row: Row | None) -> Client:
    if row is None:
        raise NotFound("no such client")
    return _client(row)


def _client(row: Row) -> Client:
    return Client(
        id=row["id"],
        name=row["name"],
        return_urls=tuple(row["return_urls"]),
        is_test=row["is_test"],
        branding_id=row["branding_id"],
        created_at=row["created_at"],
        disabled_at=row["disabled_at"],
    )
