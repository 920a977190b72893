"""E-mail addresses at intake: syntax and IDNA by a library, without DNS; reserved domains by policy."""

from __future__ import annotations

from dataclasses import dataclass

from email_validator import (
    SPECIAL_USE_DOMAIN_NAMES,
    EmailNotValidError,
    ValidatedEmail,
    validate_email,
)

from app.errors import FieldError, InvalidRequest
from tasks.providers.mail_syntax import addr_spec

# RFC 2606, 6761, 6762, 7686, 8375 and ICANN's `internal`: no mail ever arrives there.
_RESERVED = (
    *("example", "example.com", "example.net", "example.org"),
    *("test", "invalid", "localhost", "local", "onion", "arpa", "internal"),
)
# The library refuses some of these whatever it is told; its documented switch is this list. Ours takes its place.
SPECIAL_USE_DOMAIN_NAMES.clear()


@dataclass(frozen=True, slots=True)
class Address:
    """`exact` is what is mailed: the local part as given, the domain in ASCII. `canonical` is for comparison only."""

    exact: str
    canonical: str


def check(text: str, *, allow_reserved: bool) -> Address:
    """The address a person wrote. Raises InvalidRequest that points at `/email`, and never quotes it."""
    parsed = _parse(text, deliverable=False)
    if is_reserved(parsed.ascii_domain):
        if not allow_reserved:
            raise _invalid(
                "reserved_domain", "No mail arrives at this domain: it is reserved for examples and tests."
            )
    else:
        parsed = _parse(text, deliverable=True)
    exact = f"{parsed.local_part}@{parsed.ascii_domain}"
    try:
        addr_spec(exact)  # what the mail is made with: nothing is accepted here that fails there
    except ValueError:
        raise _invalid("invalid_address", "This address cannot be mailed to.") from None
    return Address(exact, exact.casefold())


def is_reserved(domain: str) -> bool:
    """Whether a domain, in lower case, is reserved or below one that is."""
    return any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED)


def _parse(text: str, *, deliverable: bool) -> ValidatedEmail:
    try:
        return validate_email(
            text,
            check_deliverability=False,
            globally_deliverable=deliverable,
            test_environment=True,
            allow_quoted_local=False,
            allow_domain_literal=False,
            allow_display_name=False,
        )
    except EmailNotValidError:
        # The library's sentence may quote parts of the address.
        raise _invalid("invalid_address", "This is no e-mail address that mail can be sent to.") from None


def _invalid(code: str, detail: str) -> InvalidRequest:
    return InvalidRequest([FieldError("/email", code, detail)])
