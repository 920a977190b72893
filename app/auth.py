"""Who calls: an API key in `Authorization: Bearer`."""

from __future__ import annotations

from typing import cast

from flask import g, request

from app.errors import Unauthorized
from app.services import services
from db import clients
from db.clients import Client
from db.ids import public


def require_client() -> None:
    """For `before_request`: whose request this is, before its body is read.

    Raises Unauthorized, InvalidKey, ClientDisabled.
    """
    key = presented_key()
    with services().database.transaction() as tx:
        remember_client(clients.authenticate(tx, key))


def require_key() -> None:
    """The same for calls that look the key up in their own transaction: whether there is one. Raises Unauthorized."""
    presented_key()


def presented_key() -> str:
    """What the request gives as its key, of the right form at least. Raises Unauthorized."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not clients.is_key(key):
        raise Unauthorized
    return key


def remember_client(client: Client) -> None:
    """For the rest of the request, and its line in the log."""
    g.client = client
    g.client_id = public("cli", client.id)


def current_client() -> Client:
    """The client of this request; only behind `require_client`."""
    return cast(Client, g.client)
