"""Which adapter serves which scheme of MAIL_URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tasks.providers import smtp_url
from tasks.providers.base import Provider
from tasks.providers.mail_url import AccountUrl, accounts

FACTORIES: Final[Mapping[str, Callable[[AccountUrl], Provider]]] = MappingProxyType(
    {
        "smtp": smtp_url.from_url,
        "smtps": smtp_url.from_url,
    }
)


def providers_from_url(mail_url: str) -> tuple[Provider, ...]:
    """The providers of MAIL_URL, in order of preference. Connects to nothing."""
    providers: dict[str, Provider] = {}
    for account in accounts(mail_url):
        if account.scheme not in FACTORIES:
            raise account.problem(f"no such provider; there are {', '.join(FACTORIES)}")
        provider = FACTORIES[account.scheme](account)
        if account.options:
            raise account.problem("it has an option that this provider does not know")
        if provider.name in providers:
            raise account.problem("another entry has the same name; tell them apart with ?label=")
        providers[provider.name] = provider
    return tuple(providers.values())
