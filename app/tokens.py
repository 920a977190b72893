"""`POST /v1/tokens/consume`: the token is the credential."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from app import presentation
from app.api import Blueprint
from app.schemas import ConsumedSchema, ConsumeSchema
from app.services import services
from db import consumption, tokens
from db.errors import TokenInvalid

blueprint = Blueprint("tokens", __name__, url_prefix="/v1/tokens", description="Tokens.")


@blueprint.route("/consume", methods=["POST"])
@blueprint.arguments(ConsumeSchema)
@blueprint.response(200, ConsumedSchema)
@blueprint.problems(HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.SERVICE_UNAVAILABLE)
def consume(body: dict[str, Any]) -> dict[str, Any]:
    """Use a token

    Confirms the address and activates the account, once. A try that fails changes nothing.
    """
    token = tokens.normalise(body["token"])
    if token is None:
        raise TokenInvalid
    return presentation.consumed(consumption.consume(services().database, token))
