"""Where a request comes from, for limits: a keyed digest, so that nobody's address is kept."""

from __future__ import annotations

import hashlib
import hmac
import re
from ipaddress import IPv6Address, ip_address, ip_network

from flask import request

from app.services import services

_WITH_PORT = re.compile(r"\[([^\[\]]+)\](?::\d+)?|([0-9.]+):\d+")
_SITE_BITS = 64  # what a provider hands out to one customer: whoever has one IPv6 address has all of these


def digest() -> bytes:
    """Of the caller's address: that of the connection, or what TRUSTED_PROXIES proxies say of it."""
    key = services().settings.secret_key.encode()
    return hmac.digest(key, _site(request.remote_addr or "").encode(), hashlib.sha256)


def _site(text: str) -> str:
    """The address, or the network that an IPv6 address stands for; of something else (a socket's path) the text.

    Some proxies write the port behind it, which changes with each connection.
    """
    found = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((found[1] or found[2] if found else text).partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((address, _SITE_BITS), strict=False))
    return str(address)
