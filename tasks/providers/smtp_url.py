"""From an entry of MAIL_URL to an SMTP provider.

`smtp://user:password@host:port` (STARTTLS) or `smtps://` (TLS from the first byte). Options:
`?tls=none|starttls`, `?ca=FILE` (trust these certificates instead of the system's), `?helo=NAME`, `?label=NAME`.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from typing import Final

from tasks.providers.base import Provider
from tasks.providers.deadline_socket import tls_context
from tasks.providers.mail_url import AccountUrl
from tasks.providers.smtp import SmtpProvider
from tasks.providers.smtp_dialogue import Security, Server

_DEFAULT_PORTS: Final = {"implicit": 465, "starttls": 587, "none": 25}


def from_url(url: AccountUrl) -> Provider:
    """The provider of one `smtp://` or `smtps://` entry of MAIL_URL."""
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", url.host):
        raise url.problem("it needs a host name (in ASCII) or an address")
    if bool(url.user) != bool(url.password) or "\0" in url.user + url.password:
        raise url.problem("user and password go together: scheme://user:password@host")
    security = _security(url)
    helo = url.take("helo")
    if helo is not None and not re.fullmatch(r"[A-Za-z0-9.-]+|\[[A-Za-z0-9.:]+\]", helo):
        raise url.problem("?helo= should be a host name")
    server = Server(
        host=url.host,
        port=url.port or _DEFAULT_PORTS[security],
        security=security,
        tls=_tls(url, security),
        user=url.user,
        password=url.password,
    )
    label = re.sub(r"[^a-z0-9.-]", "-", url.host.lower())
    return SmtpProvider(url.account_name("smtp", label), server, helo)


def _security(url: AccountUrl) -> Security:
    """TLS always, except to this very machine or where somebody insists."""
    wanted = url.take("tls")
    if url.scheme == "smtps":
        if wanted is not None:
            raise url.problem("?tls= is for smtp://; smtps:// always is TLS")
        return "implicit"
    match wanted or ("none" if _is_loopback(url.host) else "starttls"):
        case "none":
            return "none"
        case "starttls":
            return "starttls"
    raise url.problem("?tls= is none or starttls")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _tls(url: AccountUrl, security: Security) -> ssl.SSLContext | None:
    ca_file = url.take("ca")
    if security == "none":
        if ca_file is not None:
            raise url.problem("?ca= does nothing without TLS")
        return None
    try:
        return tls_context(ca_file)
    except OSError:  # absent, unreadable, or no certificates (SSLError)
        raise url.problem("?ca= should name a readable file of certificates (PEM)") from None
