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


@dataclass(frozen=True, slots=True)
class Changed:
    """A client after a change; `changed` is False where it was so before."""

    client: Client
    changed: bool


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key as operators see it: `name` is its beginning, `cs_live_<prefix>`."""

    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Revoked:
    """A key that works no more; `working` is how many of its client's still do, `changed` False if it was revoked before."""

    client: Client
    key: KnownKey
    revoked_at: datetime
    working: int
    changed: bool


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


def named(database: Database, name: str) -> Client:
    """The client of that name. Raises NotFound."""
    with database.transaction() as tx:
        return _found(tx.execute(_SQL["find_client"], {"name": name}).fetchone())


def disable(database: Database, name: str) -> Changed:
    """Switch a client off: its keys stop at once. Doing it twice is fine. Raises NotFound."""
    with database.transaction() as tx:
        before = _locked(tx, name)
        after = _found(tx.execute(_SQL["disable_client"], {"id": before.id}).fetchone())
    return Changed(after, before.disabled_at is None)


def enable(database: Database, name: str) -> Changed:
    """Switch a client on again, with the keys it had. Doing it twice is fine. Raises NotFound."""
    with database.transaction() as tx:
        before = _locked(tx, name)
        after = _found(tx.execute(_SQL["enable_client"], {"id": before.id}).fetchone())
    return Changed(after, before.disabled_at is not None)


def change_return_urls(
    database: Database, name: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> Changed:
    """Take addresses off a client's list and put others at its end, unless they are there. Raises NotFound."""
    with database.transaction() as tx:
        before = _locked(tx, name)
        kept = [url for url in before.return_urls if url not in remove]
        wanted = list(dict.fromkeys([*kept, *add]))
        values = {"id": before.id, "return_urls": wanted}
        after = _found(tx.execute(_SQL["set_return_urls"], values).fetchone())
    return Changed(after, after.return_urls != before.return_urls)


def create_key(database: Database, name: str) -> NewKey:
    """Another key for the client of that name; the old ones go on working. Raises NotFound."""
    with database.transaction() as tx:
        return _add_key(tx, _found(tx.execute(_SQL["find_client"], {"name": name}).fetchone()))


def list_keys(database: Database, name: str) -> list[KnownKey]:
    """All keys that the client of that name ever had, oldest first. Raises NotFound."""
    with database.transaction() as tx:
        return _keys(tx, _found(tx.execute(_SQL["find_client"], {"name": name}).fetchone()))


def revoke_key(database: Database, prefix: str) -> Revoked:
    """Stop a key. `prefix` may be the whole key or `cs_live_<prefix>`. Doing it twice is fine. Raises NotFound."""
    bare = prefix.removeprefix("cs_live_").removeprefix("cs_test_").partition("_")[0]
    with database.transaction() as tx:
        whose = tx.execute(_SQL["find_key_of_any_state"], {"prefix": bare}).fetchone()
        if whose is None:
            raise NotFound("no such key")
        client = _locked(tx, whose["name"])  # so that two revocations at once know which was the last
        changed = tx.execute(_SQL["revoke_key"], {"prefix": bare}).fetchone() is not None
        keys = _keys(tx, client)
    key = next(key for key in keys if key.name == _key_name(client, bare))
    assert key.revoked_at is not None, "now or before"
    return Revoked(client, key, key.revoked_at, sum(key.revoked_at is None for key in keys), changed)


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
    key = f"{_key_name(client, prefix)}_{_random(_SECRET_LENGTH)}"
    tx.execute(
        _SQL["insert_key"],
        {"id": new_id(), "client_id": client.id, "prefix": prefix, "key_hash": _hash(key)},
    )
    return NewKey(client, prefix, key)


def _keys(tx: Tx, client: Client) -> list[KnownKey]:
    rows = tx.execute(_SQL["list_keys"], {"client_id": client.id})
    return [KnownKey(_key_name(client, row["prefix"]), row["created_at"], row["revoked_at"]) for row in rows]


def _key_name(client: Client, prefix: str) -> str:
    return f"cs_{'test' if client.is_test else 'live'}_{prefix}"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _locked(tx: Tx, name: str) -> Client:
    return _found(tx.execute(_SQL["lock_client"], {"name": name}).fetchone())


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
