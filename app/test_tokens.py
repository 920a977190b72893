"""`GET /v1/verifications/{id}/token`: what a person would read in the mail, for test clients only."""

from __future__ import annotations

from marshmallow import Schema, fields

from app.api import Blueprint
from app.auth import current_client, require_client
from app.errors import NeedsTestKey
from app.public_ids import verification_id_of
from app.services import services
from db import ids, rehearsal, tokens
from db.errors import NotFound, NotHandedOver

blueprint = Blueprint(
    "test_tokens", __name__, url_prefix="/v1/verifications", description="Rehearsing with test keys."
)


def _require_test_client() -> None:
    """Before anything is looked up: to a live client every id is the same. Raises NeedsTestKey and as `require_client`."""
    require_client()
    if not current_client().is_test:
        raise NeedsTestKey


blueprint.before_request(_require_test_client)


class ReadTokenSchema(Schema):
    """The token of a mail that went to the simulator."""

    verification_id = fields.String(
        required=True, metadata={"pattern": "^ver_[0-9a-f]{32}$", "description": "Whose it is."}
    )
    token = fields.String(required=True, metadata={"description": "As in the mail, in groups of four."})
    link = fields.String(required=True, metadata={"format": "uri", "description": "As in the mail."})


@blueprint.route("/<verification_id>/token")
@blueprint.doc(operationId="verifications_token", security=[{"apiKey": []}])
@blueprint.response(200, ReadTokenSchema)
@blueprint.problems(NeedsTestKey, NotFound, NotHandedOver)
def show(verification_id: str) -> dict[str, str]:
    """Read a token back, with a test key

    There once the simulator was handed the mail, and until the address is forgotten; also when it cannot be used any more, so
    that old links can be tried.
    """
    wanted, ours = verification_id_of(verification_id), services()
    token = rehearsal.read_token(
        ours.database, current_client().id, wanted, ours.database_settings.token_keys
    )
    written = tokens.grouped(token)
    page = f"{ours.settings.public_url.rstrip('/')}/verify"
    return {"verification_id": ids.public("ver", wanted), "token": written, "link": f"{page}#{written}"}
