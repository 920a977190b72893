"""E-mail addresses at intake: syntax and IDNA by a library, without DNS, and our own decisions on what is taken.

docs/addresses.md says what is decided and why. An address is mailed as it was written, or refused: never mended.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from email_validator import (
    SPECIAL_USE_DOMAIN_NAMES,
    EmailNotValidError,
    ValidatedEmail,
    validate_email,
)

from app import placeholder_words
from app.disposable import DisposablePolicy, is_listed
from app.errors import FieldError, InvalidRequest
from tasks.providers.mail_syntax import addr_spec

# RFC 2606, 6761, 6762, 7686, 8375, 9476 and ICANN's `internal`: no mail ever arrives there.
_RESERVED: Final = (
    *("example", "example.com", "example.net", "example.org"),
    *("test", "invalid", "localhost", "local", "onion", "arpa", "alt", "internal"),
)
# The library refuses some of these whatever it is told; its documented switch is this list. Ours takes its place.
SPECIAL_USE_DOMAIN_NAMES.clear()

# Other domains have a dot, and end in a letter as all top-level domains do.
_PUBLIC: Final = re.compile(r"\..*[a-z]\Z")

_MAX_LOCAL: Final = 64  # RFC 5321 4.5.3.1.1, in octets
_MAX_ADDRESS: Final = 254  # RFC 5321 4.5.3.1.3 less the angle brackets
_AT_LOOKALIKES: Final = "\uff20\ufe6b"
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_LOOKALIKE_SCRIPTS: Final = frozenset(("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"))
_GMAIL: Final = frozenset(("gmail.com", "googlemail.com"))

_DETAILS: Final = {
    "reserved_domain": "No mail arrives at this domain: it is reserved for examples and tests. Use a real address.",
    "disposable_domain": "This domain gives out mailboxes for minutes. Use an address that lasts.",
    "test_word": "This reads like a sample, not like somebody's address. Use a real one.",
}


@dataclass(frozen=True, slots=True)
class Address:
    """`exact` is what is mailed: the local part as given, the domain in ASCII. `canonical` is for comparison only."""

    exact: str
    canonical: str


def check(
    text: str, *, allow_reserved: bool, disposable: DisposablePolicy = DisposablePolicy.ALLOW
) -> Address:
    """The address a person wrote. Raises InvalidRequest that points at `/email`, and never quotes it."""
    if placeholder_words.found(text):
        raise _refused("test_word")
    parsed = _parse(text)
    local = text.rpartition("@")[0]
    _refuse_unsupported(local, parsed)
    if placeholder_words.found(parsed.domain):  # it may have come as Punycode
        raise _refused("test_word")
    if is_reserved(parsed.ascii_domain):
        if not allow_reserved:
            raise _refused("reserved_domain")
    elif not _PUBLIC.search(parsed.ascii_domain):
        raise _refused("invalid_address", _what_to_do(text))
    if disposable is DisposablePolicy.REJECT and is_listed(parsed.ascii_domain):
        raise _refused("disposable_domain")
    exact = f"{local}@{parsed.ascii_domain}"
    try:
        addr_spec(exact)  # what the mail is made with: nothing is accepted here that fails there
    except ValueError:
        raise _refused("invalid_address", _what_to_do(text)) from None
    return Address(exact, canonical(exact))


def is_reserved(domain: str) -> bool:
    """Whether a domain, in lower case, is reserved or below one that is."""
    return any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED)


def canonical(exact: str) -> str:
    """What two addresses of one mailbox have in common. Nothing is ever mailed to it.

    Who would bomb a mailbox past its limits writes it in as many ways as its server takes: in other case, with other
    plus tags, at Gmail with other dots.
    """
    local, _, domain = exact.rpartition("@")
    local = unicodedata.normalize("NFC", local.casefold())
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        local, domain = local.replace(".", ""), "gmail.com"
    return f"{local}@{domain}"


def _parse(text: str) -> ValidatedEmail:
    try:
        return validate_email(
            text,
            check_deliverability=False,
            globally_deliverable=False,  # reserved names may lack a dot; `check` looks at the others
            test_environment=True,
            # Understood, so that they can be told from what is no address at all; refused below.
            allow_quoted_local=True,
            allow_domain_literal=True,
            allow_display_name=False,
        )
    except EmailNotValidError:
        # The library's sentence may quote parts of the address.
        raise _refused("invalid_address", _what_to_do(text)) from None


def _refuse_unsupported(local: str, parsed: ValidatedEmail) -> None:
    """Addresses that the standards allow, and that we do not take."""
    if local.startswith('"'):
        raise _refused("unsupported_address", "Addresses in quotes are not supported. Use one without.")
    if parsed.ascii_domain.startswith("["):
        raise _refused("unsupported_address", "Use an address at a domain instead of an IP address.")
    if unicodedata.normalize("NFKC", local) != local:
        raise _refused(
            "unsupported_address", "Write what stands before the @ in Unicode's normal form (NFKC)."
        )
    if _mixes_alphabets(local) or _mixes_alphabets(parsed.domain):
        raise _refused(
            "unsupported_address", "A word mixes alphabets whose letters look alike. Type it in one."
        )


def _mixes_alphabets(text: str) -> bool:
    """Whether a word has letters of two alphabets that share shapes. Names of characters begin with their script's."""
    if text.isascii():
        return False
    scripts = ({unicodedata.name(char, "").partition(" ")[0] for char in word} for word in _words(text))
    return any(len(used & _LOOKALIKE_SCRIPTS) > 1 for used in scripts)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text)


def _what_to_do(text: str) -> str:
    """One sentence for somebody whose address is malformed; the first that fits."""
    if "@" not in text and any(at in text for at in _AT_LOOKALIKES):
        return "Type a plain @ instead of the wide one."
    if "@" not in text:
        return "Write it as name@domain."
    if text != text.strip():
        return "Remove the white space around the address."
    if any(unicodedata.category(char) in _UNSEEN for char in text):
        return "It holds characters that cannot be seen. Type it anew instead of pasting it."
    if len(text.rpartition("@")[0].encode()) > _MAX_LOCAL or len(text.encode()) > _MAX_ADDRESS:
        return f"Use at most {_MAX_ADDRESS} bytes, and {_MAX_LOCAL} before the @."
    return "This is no e-mail address that mail can be sent to. Check it for typing errors."


def _refused(code: str, detail: str | None = None) -> InvalidRequest:
    return InvalidRequest([FieldError("/email", code, detail or _DETAILS[code])])
