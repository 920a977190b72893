"""Disposable domains: mailboxes that anybody gets for minutes, by a list that others keep."""

from __future__ import annotations

from enum import StrEnum


class DisposablePolicy(StrEnum):
    """What becomes of addresses at disposable domains; `FLAG` takes them and says so."""

    ALLOW = "allow"
    FLAG = "flag"
    REJECT = "reject"


def is_listed(domain: str) -> bool:
    """Whether a domain, in its ASCII form and lower case, is on the list or below one that is."""
    # Ten thousand names: loaded by those who ask, which with the default policy is nobody.
    from disposable_email_domains import blocklist  # noqa: PLC0415

    labels = domain.split(".")
    return any(".".join(labels[start:]) in blocklist for start in range(len(labels) - 1))
