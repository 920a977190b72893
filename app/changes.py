"""`GET /v1/changes`: the feed of state changes of a client's verifications."""

from __future__ import annotations

from typing import Any

from app import description, presentation
from app.api import Blueprint
from app.auth import current_client, require_client
from app.errors import FieldError, InvalidRequest
from app.feed_schemas import ChangesSchema, FeedQuerySchema
from app.services import services
from db import changes
from db.changes import AheadOfFeed

blueprint = Blueprint("changes", __name__, url_prefix="/v1/changes", description="What happened, in order.")
blueprint.before_request(require_client)

# How soon another look is worth it, in seconds. A look that finds nothing reads a few rows.
_AT_ONCE, _LATER = "0", "5"


@blueprint.route("")
@blueprint.doc(operationId="changes_list", security=[{"apiKey": []}])
@blueprint.arguments(FeedQuerySchema, location="query")
@blueprint.response(200, ChangesSchema, headers=description.headers("Retry-After"))
@blueprint.problems(InvalidRequest)
def show(query: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the changes feed

    Every change of every verification and delivery, each once, in an order that never changes. Store `next_cursor` in the
    transaction in which you act on the items, then ask again with it: nothing is missed. Retry-After is 0 while there is
    more.
    """
    try:
        page = changes.read(
            services().database, current_client().id, after=query["after"], limit=query["limit"]
        )
    except AheadOfFeed:
        # Answering nothing would lose what happens until the feed has caught up.
        raise InvalidRequest(
            [FieldError("?after", "invalid_cursor", "This is ahead of the feed; read it from the beginning.")]
        ) from None
    body = {"items": [presentation.change(item) for item in page.items], "next_cursor": str(page.end)}
    return body, {"Retry-After": _AT_ONCE if page.has_more else _LATER}
