"""Who calls: an API key in `Authorization: Bearer`, looked up before anything of the request is read."""

from __future__ import annotations

from typing import cast

from flask import g, request

from app.errors import Unauthorized
from app.services import services
from db import clients
from db.clients import Client
from db.ids import public


def require_client() -> None:
    """For `before_request`: remember whose request this is. Raises Unauthorized, ClientDisabled."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized
    client = clients.authenticate(services().database, key.strip())
    if client is None:
        raise Unauthorized
    g.client = client
    g.client_id = public("cli", client.id)


def current_client() -> Client:
    """The client of this request; only behind `require_client`."""
    return cast(Client, g.client)
