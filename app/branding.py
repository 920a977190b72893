"""`/v1/branding`: how a client's mail looks and reads. It counts for verifications that are requested afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from app.api import Blueprint
from app.auth import current_client, require_client
from app.branding_schemas import (
    BrandingSchema,
    PreviewedSchema,
    PreviewSchema,
    StoredBrandingSchema,
)
from app.errors import FieldError, InvalidRequest
from app.services import services
from db import brandings, ids, limits
from db.brandings import StoredBranding
from db.clients import Client
from db.errors import NotFound, RateLimited
from db.limits import Bucket
from db.logs import get_logger
from tasks import branding_trial, message
from tasks.branding import Branding, InvalidBranding, from_stored
from tasks.message import Sender

log = get_logger(__name__)

blueprint = Blueprint(
    "branding", __name__, url_prefix="/v1/branding", description="How the mail looks and reads."
)
blueprint.before_request(require_client)

_SECURED: dict[str, Any] = {"security": [{"apiKey": []}]}
_SENDER = Sender("", "no-reply@sender.invalid")
_NOBODY = "person@example.com"
_OPENS_NOTHING = "0" * 16
JUDGED_HOURLY = 300  # a client: to judge the worst document takes half a second of a processor


@blueprint.route("")
@blueprint.doc(**_SECURED)
@blueprint.response(200, StoredBrandingSchema)
def show() -> dict[str, Any]:
    """Show the branding

    All null: the mail is in the service's own words.
    """
    return _shown(brandings.current(services().database, current_client().id))


@blueprint.route("", methods=["PUT"])
@blueprint.doc(**_SECURED)
@blueprint.arguments(BrandingSchema)
@blueprint.response(200, StoredBrandingSchema)
@blueprint.problems(RateLimited)
def replace(document: dict[str, Any]) -> dict[str, Any]:
    """Set the branding

    The whole of it. Every language and purpose is rendered before it is kept; what would spoil a mail is refused. The same
    document again changes nothing.
    """
    client = current_client()
    accepted = _accept(document, client)
    stored = brandings.set_current(services().database, client.id, accepted.stored())
    log.info("branding_set", client_id=ids.public("cli", client.id))
    return _shown(stored)


@blueprint.route("", methods=["DELETE"])
@blueprint.doc(**_SECURED)
@blueprint.response(200, StoredBrandingSchema)
def reset() -> dict[str, Any]:
    """Go back to the service's own words

    Doing it twice is fine.
    """
    client = current_client()
    brandings.reset(services().database, client.id)
    log.info("branding_reset", client_id=ids.public("cli", client.id))
    return _shown(None)


@blueprint.route("/preview", methods=["POST"])
@blueprint.doc(**_SECURED)
@blueprint.arguments(PreviewSchema)
@blueprint.response(200, PreviewedSchema)
@blueprint.problems(NotFound, RateLimited)
def preview(body: dict[str, Any]) -> dict[str, Any]:
    """Show a mail without sending one

    Rendered as workers do it, for a token that opens nothing. Without `branding` it is the one that is set, 404 if none is.
    """
    client = current_client()
    if "branding" in body:
        try:
            branding = _accept(body["branding"], client)
        except InvalidRequest as invalid:
            raise InvalidRequest(
                [FieldError(f"/branding{e.pointer}", e.code, e.detail) for e in invalid.errors]
            ) from None
    else:
        stored = brandings.current(services().database, client.id)
        if stored is None:
            raise NotFound("no branding is set")
        branding = from_stored(dict(stored.body))
    return _rendered(branding, body["purpose"], body["locale"])


def link_hosts(client: Client) -> frozenset[str]:
    """Where a client's mail may lead besides us: the operator vouches for the hosts of its return URLs."""
    return frozenset(host for url in client.return_urls if (host := urlsplit(url).hostname))


def _accept(document: Any, client: Client) -> Branding:
    limits.record(services().database, Bucket("branding_judged_by_client", client.id.bytes, JUDGED_HOURLY))
    try:
        return branding_trial.accept(document, link_hosts(client))
    except InvalidBranding as invalid:
        raise InvalidRequest([FieldError(f.pointer, f.code, f.detail) for f in invalid.faults]) from None


def _rendered(branding: Branding, purpose: str, locale: str) -> dict[str, Any]:
    now = datetime.now(UTC)
    mail = message.render(
        delivery_key=f"dlv_{'0' * 32}",
        verification_id=f"ver_{'0' * 32}",
        recipient=_NOBODY,
        token=_OPENS_NOTHING,
        purpose=purpose,
        locale=locale,
        created_at=now,
        expires_at=now + timedelta(days=1),
        public_url=services().settings.public_url,
        mail_from=_SENDER,
        branding=branding,
    )
    return {"subject": mail.subject, "text": mail.text, "html": mail.html}


def _shown(stored: StoredBranding | None) -> dict[str, Any]:
    if stored is None:
        return {"branding_id": None, "set_at": None, "branding": None}
    document = {key: value for key, value in stored.body.items() if key != "shape"}
    return {"branding_id": ids.public("brd", stored.id), "set_at": stored.created_at, "branding": document}
