"""`POST /v1/verifications/{id}/cancel`: the client does not want a verification any more."""

from __future__ import annotations

from typing import Any

from app import presentation
from app.api import Blueprint
from app.auth import current_client, require_client
from app.feed_schemas import NothingSchema
from app.public_ids import verification_id_of
from app.schemas import VerificationSchema
from app.services import services
from db import endings
from db.errors import NotCancellable, NotFound
from db.phases import CancelledBy

blueprint = Blueprint(
    "cancellations", __name__, url_prefix="/v1/verifications", description="What is not wanted any more."
)
blueprint.before_request(require_client)


@blueprint.route("/<verification_id>/cancel", methods=["POST"])
@blueprint.doc(operationId="verifications_cancel", security=[{"apiKey": []}])
@blueprint.arguments(NothingSchema, required=False)
@blueprint.response(200, VerificationSchema)
@blueprint.problems(NotFound, NotCancellable)
def cancel(_nothing: dict[str, Any], verification_id: str) -> dict[str, Any]:
    """Cancel a verification

    Its link stops working, also when the mail was delivered already; a mail that has not left stays here. One that is over is
    answered as it is. Repeating it is safe: after a 503 it may have happened.
    """
    cancelled = endings.cancel(
        services().database, current_client().id, verification_id_of(verification_id), by=CancelledBy.CLIENT
    )
    return presentation.verification(cancelled)
