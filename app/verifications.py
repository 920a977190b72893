"""`/v1/verifications`: request one, look at it, read its receipt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from flask import Response, g, request
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from app import addresses, callers, config, examples, idempotency, presentation, receipt_text, return_urls
from app.api import Blueprint
from app.auth import current_client, presented_key, remember_client, require_client, require_key
from app.description import headers
from app.errors import FieldError, InvalidIdempotencyKey, InvalidRequest, NotAcceptable
from app.public_ids import verification_id_of
from app.schemas import NewVerificationSchema, ReceiptSchema, VerificationSchema
from app.services import services
from db import clients, receipts, verifications
from db.clients import Client
from db.errors import (
    AlreadyVerified,
    ClientBacklog,
    IdempotencyKeyConflict,
    NotFound,
    RateLimited,
    ResendCooldown,
)
from db.phases import MOVING, Phase
from db.verifications import NewVerification
from db.views import Verification
from tasks.message import CURRENT_TEMPLATE_VERSION

blueprint = Blueprint(
    "verifications", __name__, url_prefix="/v1/verifications", description="Verifications and receipts."
)


def _require() -> None:
    """Raises Unauthorized, InvalidKey, ClientDisabled."""
    # To request one costs one transaction; the key is looked up in it.
    (require_key if request.endpoint == "verifications.create" else require_client)()


blueprint.before_request(_require)

# How soon another look is worth it, in seconds.
_POLL = {Phase.QUEUED: 1, Phase.LEASED: 1, Phase.DELIVERED: 5, Phase.AWAITING_RECONCILIATION: 15}
_LONGEST_POLL = 60
# A caller may name the charset, which is UTF-8 either way.
_CHARSET = re.compile(r';[ \t]*charset="?utf-8"?', re.IGNORECASE)
_SECURED: dict[str, Any] = {"security": [{"apiKey": []}]}


@blueprint.route("", methods=["POST"])
@blueprint.doc(**_SECURED, parameters=[idempotency.PARAMETER])
@blueprint.arguments(NewVerificationSchema)
@blueprint.response(
    202,
    VerificationSchema,
    headers=headers("Location", "Idempotency-Key", "Idempotent-Replayed", "Retry-After"),
)
@blueprint.problems(
    InvalidIdempotencyKey, IdempotencyKeyConflict, AlreadyVerified, ResendCooldown, ClientBacklog, RateLimited
)
def create(body: dict[str, Any]) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Request a verification

    The mail is sent by workers. Repeating a request with its Idempotency-Key is always safe.
    """
    with_services = services()
    key, key_is_ours = idempotency.key_of(request.headers)
    created = verifications.create(
        with_services.database,
        presented_key(),
        _new_verification(body, key, key_is_ours),
        with_services.database_settings,
        partial(_permit, body["return_url"]),
    )
    if created.verification.phase is Phase.QUEUED:
        # A replay as well: the first try may have lost its answer, and with it its kick.
        with_services.kick()
    shown = presentation.verification(created.verification)
    answered = {
        # Not url_for: nothing that the caller sends decides where this points.
        "Location": f"/v1/verifications/{shown['verification_id']}",
        idempotency.HEADER: idempotency.written(key),
        **({"Idempotent-Replayed": "true"} if created.replayed else {}),
        **_polling(created.verification),
    }
    return shown, 202, answered


@blueprint.route("/<verification_id>")
@blueprint.doc(**_SECURED)
@blueprint.response(200, VerificationSchema, headers=headers("Retry-After"))
@blueprint.problems(NotFound)
def show(verification_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Show a verification

    Answers that can still change carry Retry-After.
    """
    found = receipts.read(services().database, current_client().id, verification_id_of(verification_id))
    return presentation.verification(found), _polling(found)


@blueprint.route("/<verification_id>/receipt")
@blueprint.doc(**_SECURED)
@blueprint.response(200, ReceiptSchema)
@blueprint.also_text(200, examples.RECEIPT_TEXT)
@blueprint.problems(NotFound, NotAcceptable)
def receipt(verification_id: str) -> dict[str, Any] | Response:
    """Read the receipt

    Everything that is known of a verification: its delivery, attempts, events and what happens next. As text/plain it is fit
    for a support ticket.
    """
    form = _form()
    found = receipts.read_receipt(
        services().database, current_client().id, verification_id_of(verification_id)
    )
    if form == "text/plain":
        return Response(receipt_text.render(found), mimetype="text/plain")
    return presentation.receipt(found)


def _new_verification(body: dict[str, Any], key: str, key_is_ours: bool) -> NewVerification:
    """The request with everything checked that shapes cannot say. Raises InvalidRequest."""
    with_services = services()
    settings = with_services.settings
    allow_reserved = settings.allow_reserved_domains or clients.is_test_key(presented_key())
    wrong = list(_too_short(body["expires_in"], with_services.database_settings.min_token_life))
    try:
        address = addresses.check(
            body["email"], allow_reserved=allow_reserved, disposable=config.disposable_policy()
        )
    except InvalidRequest as error:  # all that is wrong at once, as with shapes
        raise InvalidRequest([*error.errors, *wrong]) from None
    if wrong:
        raise InvalidRequest(wrong)
    return NewVerification(
        idempotency_key=key,
        key_is_ours=key_is_ours,
        account_id=body["account_id"],
        email=address.exact,
        email_canonical=address.canonical,
        purpose=body["purpose"],
        lifetime=body["expires_in"],
        locale=body["locale"],
        return_url=body["return_url"],
        metadata=body["metadata"],
        correlation_id=g.request_id,
        template_version=CURRENT_TEMPLATE_VERSION,
        caller=callers.digest(),
    )


def _too_short(life: float | None, shortest: float) -> Iterator[FieldError]:
    if life is not None and life <= shortest:
        yield FieldError("/expires_in", "out_of_range", f"Use more than {shortest:g} seconds.")


def _permit(return_url: str | None, client: Client) -> None:
    """What depends on whose request it is. Raises InvalidRequest."""
    remember_client(client)
    if return_url is not None and not return_urls.is_allowed(return_url, client.return_urls):
        raise _invalid("/return_url", "not_allowed", "Have the operator add it to this client's return URLs.")


def _invalid(pointer: str, code: str, detail: str) -> InvalidRequest:
    return InvalidRequest([FieldError(pointer, code, detail)])


def _form() -> str:
    """JSON unless the caller asks for text. Raises NotAcceptable."""
    accepted = parse_accept_header(_CHARSET.sub("", request.headers.get("Accept", "")), MIMEAccept)
    if not accepted:
        return "application/json"
    form = accepted.best_match(["application/json", "text/plain"])
    if form is None:
        raise NotAcceptable
    return form


def _polling(seen: Verification) -> dict[str, str]:
    """Of what waits for its next attempt: when that is, by our clock, which may be wrong, and so never far off."""
    if seen.phase not in MOVING:
        return {}
    seconds = _POLL[seen.phase]
    if seen.phase is Phase.QUEUED and seen.next_attempt_at is not None:
        until = math.ceil((seen.next_attempt_at - datetime.now(UTC)).total_seconds())
        seconds = max(seconds, min(until, _LONGEST_POLL))
    return {"Retry-After": str(seconds)}
