"""Where a request comes from, for limits: a keyed digest, so that nobody's address is kept."""

from __future__ import annotations

import hashlib
import hmac
import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from flask import request

from app.services import services

_WITH_PORT = re.compile(r"\[([^\[\]]+)\](?::\d+)?|([0-9.]+):\d+")
# Where translators put an IPv4 address into an IPv6 one (RFC 6052): its callers share a /64, and little else.
_TRANSLATED = ip_network("64:ff9b::/96")
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
        within = _ipv4_within(address)
        return str(within or ip_network((address, _SITE_BITS), strict=False))
    return str(address)


def _ipv4_within(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address of a caller whose packets took a detour. 6to4 gives each of them 65,536 networks."""
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
