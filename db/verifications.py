"""Requesting a verification: one transaction that knows the caller, locks account and address, and inserts both rows.

Locks go in one order: account, address, verification, outbox, limits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from db import admission, clients, endings, limits, receipts, tokens
from db.admission import Asked
from db.clients import Client
from db.config import DatabaseSettings
from db.errors import (
    AlreadyVerified,
    CommitUnknown,
    IdempotencyKeyConflict,
    UnknownTokenKey,
)
from db.ids import new_id
from db.queries import load
from db.session import Database, Row, Tx
from db.views import Verification

_SQL = load("verifications.sql")
_NONCE_BYTES = 16
_Inserted = tuple[psycopg.Cursor[DictRow], psycopg.Cursor[DictRow]]

# The names PostgreSQL knows these constraints by.
_KEY_IS_UNIQUE = "uq_verifications_client_id_idempotency_key"


@dataclass(frozen=True, slots=True)
class NewVerification:
    """A validated request. `lifetime` in seconds, None for the default; `email_canonical` is for comparison only.

    `key_is_ours` says that the server made the idempotency key, so that the caller does not know it yet. `caller` is a digest
    of where the request comes from.
    """

    idempotency_key: str
    key_is_ours: bool
    account_id: str
    email: str
    email_canonical: str
    purpose: str
    lifetime: float | None
    locale: str | None
    return_url: str | None
    metadata: Mapping[str, Any] | None
    correlation_id: str
    template_version: int
    caller: bytes

    def canonical_body(self) -> bytes:
        """What makes two requests the same: the body's meaning in one spelling.

        Without a lifetime it stands for "whatever is usual", which a deployment may change between a request and its repeat.
        """
        body = {
            "account_id": self.account_id,
            "email": self.email,
            "purpose": self.purpose,
            "expires_in": self.lifetime,
            "locale": self.locale,
            "return_url": self.return_url,
            "metadata": _by_meaning(self.metadata),
        }
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _by_meaning(value: Any) -> Any:
    """JSON has one kind of number: 1 and 1.0 are the same."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _by_meaning(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_by_meaning(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Created:
    """The verification as it stands; `replayed` when an earlier request with the same key made it."""

    verification: Verification
    replayed: bool


def create(
    database: Database,
    api_key: str,
    request: NewVerification,
    settings: DatabaseSettings,
    permit: Callable[[Client], None] = lambda _: None,
) -> Created:
    """Record the intent to verify an address, and its delivery, once for each idempotency key.

    `permit` may object once the API key's client is known; what it raises passes through. Raises InvalidKey,
    ClientDisabled, IdempotencyKeyConflict, AlreadyVerified, ResendCooldown, ClientBacklog, RateLimited,
    DatabaseUnavailable. After CommitUnknown the caller may repeat the same request with the same key; for a key that the
    caller does not know, that was done here already.
    """
    try:
        return _create(database, api_key, request, settings, permit)
    except CommitUnknown:
        if not request.key_is_ours:
            raise
        # Whatever the first try came to, it holds the account no longer once this one has it.
        again = _create(database, api_key, request, settings, permit)
        return Created(again.verification, replayed=False)


def _create(
    database: Database,
    api_key: str,
    request: NewVerification,
    settings: DatabaseSettings,
    permit: Callable[[Client], None],
) -> Created:
    for _ in range(2):
        client = None
        try:
            with database.transaction() as tx:
                client = clients.authenticate(tx, api_key)
                permit(client)
                found = _find_or_insert(tx, client, request, settings)
            # Read after the commit: INSERTs and COMMIT travelled together.
            return found if isinstance(found, Created) else Created(_created(found, request), replayed=False)
        except pg.UniqueViolation as error:
            if error.diag.constraint_name != _KEY_IS_UNIQUE:
                raise
            # Another account's request took the key in the same instant; it is there to be found now.
        except pg.CheckViolation as error:
            if client is None or error.diag.constraint_name != limits.LEVEL_CONSTRAINT:
                raise
            buckets = admission.buckets(settings.limits, client.id, request.caller)
            raise limits.refusal(database, buckets) from None
    raise AssertionError("a key that is taken can be found")


def _find_or_insert(
    tx: Tx, client: Client, request: NewVerification, settings: DatabaseSettings
) -> Created | _Inserted:
    names = {
        "new_account_id": new_id(),
        "client_id": client.id,
        "external_id": request.account_id,
        "idempotency_key": request.idempotency_key,
        "purpose": request.purpose,
    }
    # Sent together, each with a snapshot of its own: one round trip.
    tx.execute(_SQL["ensure_account"], names)
    account_cursor = tx.execute(_SQL["lock_account"], names)
    key_cursor = tx.execute(_SQL["find_by_key"], names)
    requested_cursor = tx.execute(_SQL["lock_requested"], names)
    asked = Asked(client.id, request.account_id, request.purpose, request.email_canonical)
    admit = admission.ask(tx, asked, settings.limits)
    account = account_cursor.fetchone()
    assert account is not None, "the account was made sure of"
    before = key_cursor.fetchone()
    if before is not None:
        return _replay(tx, client, request, before, settings)
    _refuse_verified(account, request)
    admit()
    verification_id = new_id()
    _retire(tx, requested_cursor.fetchone(), verification_id)
    inserted = _insert(
        tx, client, request, settings, account_id=account["id"], verification_id=verification_id
    )
    # Last, so that others of the same client wait for nothing but the commit.
    limits.take(tx, admission.buckets(settings.limits, client.id, request.caller))
    return inserted


def _replay(
    tx: Tx, client: Client, request: NewVerification, before: Row, settings: DatabaseSettings
) -> Created:
    """The same key again: the same body gets what there is; any other, or one that cannot be compared, is refused."""
    try:
        now = tokens.fingerprint(settings.token_keys, before["token_key_id"], request.canonical_body())
    except UnknownTokenKey:
        raise IdempotencyKeyConflict from None
    if now != bytes(before["fingerprint"]):
        raise IdempotencyKeyConflict
    return Created(receipts.read_in(tx, client.id, before["id"]), replayed=True)


def _refuse_verified(account: Row, request: NewVerification) -> None:
    is_same = account["email"] is not None and account["email"].casefold() == request.email.casefold()
    if request.purpose == "signup" and account["activated_at"] is not None and is_same:
        raise AlreadyVerified


def _retire(tx: Tx, requested: Row | None, successor: UUID) -> None:
    """Make room for `successor`: what is still requested has run out or is superseded."""
    if requested is None:
        return
    if requested["is_overdue"]:
        endings.expire(tx, requested["id"])
    else:
        endings.supersede(tx, requested["id"], successor)


def _insert(
    tx: Tx,
    client: Client,
    request: NewVerification,
    settings: DatabaseSettings,
    *,
    account_id: UUID,
    verification_id: UUID,
) -> _Inserted:
    """Insert verification and delivery; their rows can be fetched once the transaction is over."""
    key_id, nonce = settings.active_token_key, os.urandom(_NONCE_BYTES)
    token = tokens.derive(settings.token_keys, key_id, verification_id, request.email, nonce)
    values = {
        "id": verification_id,
        "client_id": client.id,
        "account_id": account_id,
        "purpose": request.purpose,
        "email": request.email,
        "email_canonical": request.email_canonical,
        "token_key_id": key_id,
        "token_nonce": nonce,
        "token_hash": tokens.digest(token),
        "template_version": request.template_version,
        "locale": request.locale,
        "return_url": request.return_url,
        "metadata": None if request.metadata is None else Jsonb(request.metadata),
        "idempotency_key": request.idempotency_key,
        "fingerprint": tokens.fingerprint(settings.token_keys, key_id, request.canonical_body()),
        "correlation_id": request.correlation_id,
        "lifetime": settings.token_ttl if request.lifetime is None else request.lifetime,
        "delivery_id": new_id(),
        "delivery_deadline": settings.delivery_deadline,
        "min_token_life": settings.min_token_life,
    }
    return (
        tx.execute(_SQL["insert_verification"], values),
        tx.execute(_SQL["insert_delivery"], values),
    )


def _created(inserted: _Inserted, request: NewVerification) -> Verification:
    verification, delivery = (cursor.fetchone() for cursor in inserted)
    assert verification is not None and delivery is not None, "both rows were committed"
    said = {"external_id": request.account_id, "mail_event": None, "mail_event_at": None}
    return receipts.verification_of({**verification, **delivery, **said})
