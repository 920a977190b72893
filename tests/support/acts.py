"""What clients and people do to one verification, through the product's own functions; a refusal is an answer here."""

from __future__ import annotations

from typing import Any

from db import consumption, endings, ids, receipts, verifications
from db.consumption import Consumed
from db.errors import NotCancellable, TokenAlreadyUsed, TokenExpired
from db.phases import CancelledBy, Status
from db.views import Verification
from tests.factories import Factory
from tests.support.api import token_of
from tests.support.courier import DATABASE_SETTINGS, request


def create(make: Factory, **changes: Any) -> tuple[Verification, str]:
    """A verification of account `a`, and its token."""
    wanted = request(**{"account_id": "a", **changes})
    made = verifications.create(make.database, make.key(), wanted, DATABASE_SETTINGS).verification
    return made, token_of(make.database, ids.public("ver", made.id))


def cancel(make: Factory, made: Verification) -> Verification | NotCancellable:
    """Its client does not want it any more."""
    try:
        return endings.cancel(make.database, make.client(), made.id, by=CancelledBy.CLIENT)
    except NotCancellable as error:
        return error


def consume(make: Factory, token: str) -> Consumed | TokenAlreadyUsed | TokenExpired:
    """The person presses the button."""
    try:
        return consumption.consume(make.database, token)
    except (TokenAlreadyUsed, TokenExpired) as error:
        return error


def status(make: Factory, made: Verification) -> Status:
    """Where the verification stands."""
    return receipts.read(make.database, None, made.id).status
