"""`GET /v1/verifications`: pages of a client's verifications."""

from __future__ import annotations

from typing import Any

from app import cursors, presentation
from app.api import Blueprint
from app.auth import current_client, require_client
from app.errors import FieldError, InvalidRequest
from app.feed_schemas import ListQuerySchema, VerificationListSchema
from app.services import services
from db import listing
from db.listing import Filter

blueprint = Blueprint(
    "listing", __name__, url_prefix="/v1/verifications", description="Pages of verifications."
)
blueprint.before_request(require_client)


@blueprint.route("")
@blueprint.doc(operationId="verifications_list", security=[{"apiKey": []}])
@blueprint.arguments(ListQuerySchema, location="query")
@blueprint.response(200, VerificationListSchema)
@blueprint.problems(InvalidRequest)
def show(query: dict[str, Any]) -> dict[str, Any]:
    """List verifications

    The newest first. A page may hold fewer items than `limit`, even none, while `next_cursor` is not null: filters that no
    index serves together are tried on a bounded number of verifications a page.
    """
    limit, after = query.pop("limit"), query.pop("cursor")
    wanted = Filter(**query)
    if after is not None and after.order is not wanted.order:
        raise InvalidRequest(
            [FieldError("?cursor", "invalid_cursor", "Send it with the filters it came with.")]
        )
    page = listing.read_page(services().database, current_client().id, wanted, after=after, limit=limit)
    return {
        "items": [presentation.verification(item) for item in page.items],
        "next_cursor": page.end and cursors.encode(page.end),
    }
