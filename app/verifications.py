"""`/v1/verifications`: request one, look at it, read its receipt."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from flask import Response, g, request

from app import addresses, idempotency, presentation, receipt_text, return_urls
from app.api import Blueprint
from app.auth import current_client, require_client
from app.errors import FieldError, InvalidRequest, NotAcceptable
from app.schemas import NewVerificationSchema, ReceiptSchema, VerificationSchema
from app.services import services
from db import ids, receipts, verifications
from db.errors import NotFound
from db.phases import MOVING, Phase
from db.verifications import NewVerification
from tasks.message import CURRENT_TEMPLATE_VERSION

blueprint = Blueprint(
    "verifications", __name__, url_prefix="/v1/verifications", description="Verifications and receipts."
)
blueprint.before_request(require_client)

# How soon another look is worth it, in seconds.
_POLL = {Phase.QUEUED: 1, Phase.LEASED: 1, Phase.DELIVERED: 5, Phase.AWAITING_RECONCILIATION: 15}
_SECURED: dict[str, Any] = {"security": [{"apiKey": []}]}


@blueprint.route("", methods=["POST"])
@blueprint.doc(
    **_SECURED,
    parameters=[
        {
            "in": "header",
            "name": idempotency.HEADER,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
    ],
)
@blueprint.arguments(NewVerificationSchema)
@blueprint.response(202, VerificationSchema)
@blueprint.problems(
    HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE
)
def create(body: dict[str, Any]) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Request a verification

    The mail is sent by workers. Repeating a request with its Idempotency-Key is always safe.
    """
    with_services = services()
    key, key_is_ours = idempotency.key_of(request.headers)
    wanted = _new_verification(body, key, key_is_ours)
    created = verifications.create(with_services.database, wanted, with_services.database_settings)
    if created.verification.phase is Phase.QUEUED:
        # A replay as well: the first try may have lost its answer, and with it its kick.
        with_services.kick()
    shown = presentation.verification(created.verification)
    headers = {
        # Not url_for: nothing that the caller sends decides where this points.
        "Location": f"/v1/verifications/{shown['verification_id']}",
        idempotency.HEADER: idempotency.written(key),
        **({"Idempotent-Replayed": "true"} if created.replayed else {}),
        **_polling(created.verification.phase),
    }
    return shown, 202, headers


@blueprint.route("/<verification_id>")
@blueprint.doc(**_SECURED)
@blueprint.response(200, VerificationSchema)
@blueprint.problems(HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
def show(verification_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Show a verification

    Answers that can still change carry Retry-After.
    """
    found = receipts.read(services().database, current_client().id, _parse(verification_id))
    return presentation.verification(found), _polling(found.phase)


@blueprint.route("/<verification_id>/receipt")
@blueprint.doc(**_SECURED)
@blueprint.response(200, ReceiptSchema)
@blueprint.problems(
    HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.SERVICE_UNAVAILABLE
)
def receipt(verification_id: str) -> dict[str, Any] | Response:
    """Read the receipt

    Everything that is known of a verification: its delivery, attempts, events and what happens next. As text/plain it is fit
    for a support ticket.
    """
    form = _form()
    found = receipts.read_receipt(services().database, current_client().id, _parse(verification_id))
    if form == "text/plain":
        return Response(receipt_text.render(found), mimetype="text/plain")
    return presentation.receipt(found)


def _new_verification(body: dict[str, Any], key: str, key_is_ours: bool) -> NewVerification:
    """The request with everything checked that shapes cannot say. Raises InvalidRequest."""
    with_services, client = services(), current_client()
    address = addresses.check(body["email"], allow_reserved=with_services.settings.allow_reserved_domains)
    shortest = with_services.database_settings.min_token_life
    if body["expires_in"] is not None and body["expires_in"] <= shortest:
        raise _invalid("/expires_in", "out_of_range", f"Use more than {shortest:g} seconds.")
    if body["return_url"] is not None and not return_urls.is_allowed(body["return_url"], client.return_urls):
        raise _invalid("/return_url", "not_allowed", "Have the operator add it to this client's return URLs.")
    return NewVerification(
        client_id=client.id,
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
    )


def _invalid(pointer: str, code: str, detail: str) -> InvalidRequest:
    return InvalidRequest([FieldError(pointer, code, detail)])


def _form() -> str:
    """JSON unless the caller asks for text. Raises NotAcceptable."""
    if not request.accept_mimetypes:
        return "application/json"
    form = request.accept_mimetypes.best_match(["application/json", "text/plain"])
    if form is None:
        raise NotAcceptable
    return form


def _parse(verification_id: str) -> UUID:
    parsed = ids.parse("ver", verification_id)
    if parsed is None:
        raise NotFound("no verification has such an id")
    return parsed


def _polling(phase: Phase) -> dict[str, str]:
    return {"Retry-After": str(_POLL[phase])} if phase in MOVING else {}
