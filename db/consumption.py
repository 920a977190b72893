"""Using a token: the verification is confirmed and its account activated, once, or it is revoked.

Each is one transaction; locks go in one order: account, verification, outbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from db import deliveries, endings, tokens
from db.errors import CommitUnknown, TokenAlreadyUsed, TokenExpired, TokenInvalid
from db.ids import public
from db.logs import get_logger
from db.phases import CancelledBy, Status
from db.queries import load
from db.session import Database, Row, Tx
from db.views import mask

_log = get_logger(__name__)
_SQL = load("consumption.sql")


@dataclass(frozen=True, slots=True)
class Purpose:
    """What confirming an address for this purpose does to the account."""

    activates: bool = False
    sets_address: bool = False


PURPOSES: Mapping[str, Purpose] = MappingProxyType(
    {
        "signup": Purpose(activates=True, sets_address=True),
        "email_change": Purpose(sets_address=True),
    }
)
_CONSUMPTION_ONLY = Purpose()


@dataclass(frozen=True, slots=True)
class Consumed:
    """A confirmation, made once. `leaked`: no mail with the token had left, so somebody else knew it."""

    verification_id: UUID
    purpose: str
    email_masked: str
    consumed_at: datetime
    return_url: str | None
    locale: str | None
    leaked: bool


@dataclass(frozen=True, slots=True)
class Revoked:
    """A verification that its recipient did not ask for, now cancelled."""

    verification_id: UUID
    locale: str | None


def consume(database: Database, token: str) -> Consumed:
    """Use a token (as `tokens.normalise` gives it): confirm the verification and activate its account, once.

    A try that fails changes no row. Raises TokenInvalid, TokenAlreadyUsed, TokenExpired, DatabaseUnavailable.
    """
    token_hash = tokens.digest(token)
    consumed = None
    try:
        with database.transaction() as tx:
            consumed = _consume(tx, token_hash)
    except CommitUnknown:
        if consumed is None or not _was_committed(database, token_hash, consumed):
            raise
    if consumed.leaked:
        _log.error("token_leaked", alert=True, verification_id=public("ver", consumed.verification_id))
    return consumed


def revoke(database: Database, token: str) -> Revoked:
    """The recipient did not ask for this: cancel the token's verification. Revoking twice is fine.

    Raises TokenInvalid, TokenAlreadyUsed, TokenExpired, DatabaseUnavailable.
    """
    token_hash = {"token_hash": tokens.digest(token)}
    with database.transaction() as tx:
        tx.execute(_SQL["lock_account_of_token"], token_hash)
        found = tx.execute(_SQL["read_by_token"], token_hash).fetchone()
        if found is None:
            raise TokenInvalid
        revoked = Revoked(found["id"], found["locale"])
        if found["status"] == Status.CANCELLED:
            return revoked
        if found["status"] != Status.REQUESTED or found["is_overdue"]:
            raise _refusal(found)
        endings.cancel_requested(tx, revoked.verification_id, by=CancelledBy.RECIPIENT)
    return revoked


def _consume(tx: Tx, token_hash: bytes) -> Consumed:
    by_token = {"token_hash": token_hash}
    tx.execute(_SQL["lock_account_of_token"], by_token)
    consume_cursor = tx.execute(_SQL["consume"], by_token)
    found_cursor = tx.execute(_SQL["read_by_token"], by_token)
    row = consume_cursor.fetchone()
    if row is None:
        raise _refusal(found_cursor.fetchone())
    was_mailed = deliveries.consume(tx, deliveries.lock_of_verification(tx, row["id"]))
    purpose = PURPOSES.get(row["purpose"], _CONSUMPTION_ONLY)
    if purpose != _CONSUMPTION_ONLY:
        confirm_account(tx, row, purpose)
    return Consumed(
        verification_id=row["id"],
        purpose=row["purpose"],
        email_masked=mask(row["email"]),
        consumed_at=row["consumed_at"],
        return_url=row["return_url"],
        locale=row["locale"],
        leaked=not was_mailed,
    )


def confirm_account(tx: Tx, row: Row, purpose: Purpose) -> None:
    """The account takes what a consumed verification says. The caller holds the account."""
    tx.execute(
        _SQL["confirm_account"],
        {
            "account_id": row["account_id"],
            "email": row["email"],
            "at": row["consumed_at"],
            "activates": purpose.activates,
            "sets_address": purpose.sets_address,
        },
    )


def _refusal(found: Row | None) -> TokenInvalid | TokenAlreadyUsed | TokenExpired:
    """Why a token cannot be used (any more)."""
    if found is None:
        return TokenInvalid()
    if found["status"] == Status.CONSUMED:
        return TokenAlreadyUsed(found["id"], return_url=found["return_url"], locale=found["locale"])
    # Requested and refused: overdue, only not swept yet.
    reason = Status.EXPIRED if found["status"] == Status.REQUESTED else found["status"]
    return TokenExpired(reason, newer_exists=found["newer_exists"], locale=found["locale"])


def _was_committed(database: Database, token_hash: bytes, consumed: Consumed) -> bool:
    """Whether a consumption whose COMMIT was not answered is there: ours, not another's, by its instant."""
    by_token = {"token_hash": token_hash}
    with database.transaction() as tx:
        tx.execute(_SQL["lock_account_of_token"], by_token)
        found = tx.execute(_SQL["read_by_token"], by_token).fetchone()
    return found is not None and found["consumed_at"] == consumed.consumed_at
