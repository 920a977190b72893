"""`POST /v1/tokens/consume`: the token is the credential."""

from __future__ import annotations

from typing import Any

from app import presentation, token_tries
from app.api import Blueprint
from app.schemas import ConsumedSchema, ConsumeSchema
from app.services import services
from db import consumption, tokens
from db.errors import RateLimited, TokenAlreadyUsed, TokenExpired, TokenInvalid

blueprint = Blueprint("tokens", __name__, url_prefix="/v1/tokens", description="Tokens.")


@blueprint.route("/consume", methods=["POST"])
@blueprint.arguments(ConsumeSchema)
@blueprint.response(200, ConsumedSchema)
@blueprint.problems(TokenAlreadyUsed, TokenExpired, TokenInvalid, RateLimited)
def consume(body: dict[str, Any]) -> dict[str, Any]:
    """Use a token

    Confirms the address and activates the account, once. A try that fails changes nothing.
    """
    token = tokens.normalise(body["token"])
    if token is None:
        raise TokenInvalid
    with token_tries.limited():
        return presentation.consumed(consumption.consume(services().database, token))
