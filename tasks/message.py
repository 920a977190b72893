"""The verification mail: link, words and MIME bytes. Pure: the same inputs give the same bytes, everywhere.

Building an `EmailMessage` costs a millisecond of CPU, so everything that does not change from mail to mail
(words, headers, encodings) is laid out once a configuration, with a few slots left open.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parseaddr
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from db import tokens
from tasks.providers.base import OutgoingMail
from tasks.providers.mail_syntax import SLOT, addr_spec, encoded_body, header_text, mailbox, printable, slot
from tasks.templates import v1

CURRENT_TEMPLATE_VERSION: Final = 1
_TEMPLATES: Final = MappingProxyType({1: v1})
_DEFAULT_LOCALE: Final = "en"

_DELIVERY_KEY = re.compile(r"dlv_[0-9a-f]{32}")
_VERIFICATION_ID = re.compile(r"ver_[0-9a-f]{32}")
_TOKEN = re.compile(r"[0-9A-HJKMNP-TV-Z]{16}")  # Crockford's alphabet: no I, L, O, U
# Printable ASCII without what would end an attribute or begin the fragment and query that we append.
_PUBLIC_URL = re.compile(r"https?://[!$%&'()*+,\-./0-9:;=@A-Z\[\]_a-z~]+")


class UnknownTemplateVersion(LookupError):
    """Another release wrote the row, as in a rolling deploy: another worker can render it, or a later one."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who the mail comes from: `MAIL_FROM`."""

    name: str
    address: str

    @classmethod
    def parse(cls, text: str) -> Sender:
        """Read `Name <address>` or a bare address; ValueError if it is neither."""
        if not printable(text):
            raise ValueError("the sender holds line ends or other control characters")
        name, address = parseaddr(text)
        sender = cls(name, addr_spec(address))
        if not sender.address.isascii():
            raise ValueError("the sender's local part must be ASCII")
        header_text(name)
        return sender

    @property
    def domain(self) -> str:
        """What follows the at sign."""
        return self.address.rpartition("@")[2]


# Text with open slots, cut at them: literal, name of a slot, literal, …
_Cut = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """A mail of one configuration, with what changes from mail to mail left open."""

    subject: str
    from_: str
    text: _Cut
    html: _Cut
    mime: _Cut


def show_token(token: str) -> str:
    """A token's 16 characters in groups of four, as people read and type them."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token is 16 characters of Crockford's base32")
    return tokens.grouped(token)


def render(
    *,
    delivery_key: str,
    verification_id: str,
    recipient: str,
    token: str,
    purpose: str,
    locale: str,
    created_at: datetime,
    expires_at: datetime,
    public_url: str,
    mail_from: Sender,
    template_version: int = CURRENT_TEMPLATE_VERSION,
) -> OutgoingMail:
    """Render one delivery's mail.

    `created_at` becomes its Date, so that a retry renders the same bytes. ValueError (which never quotes
    the value) for whatever would not make a well-formed mail, UnknownTemplateVersion for a version that
    this release does not have.
    """
    if template_version not in _TEMPLATES:
        raise UnknownTemplateVersion(f"template version {template_version} is unknown to this release")
    if not _DELIVERY_KEY.fullmatch(delivery_key):
        raise ValueError("a delivery key is dlv_ and 32 hex digits")
    if not _VERIFICATION_ID.fullmatch(verification_id):
        raise ValueError("a verification's id is ver_ and 32 hex digits")
    if created_at.tzinfo is None or expires_at.tzinfo is None:
        raise ValueError("created_at and expires_at need a time zone")
    language = _language(template_version, locale)
    skeleton = _skeleton(
        template_version, language, _wording(template_version, purpose), public_url, mail_from
    )
    to = addr_spec(recipient)
    message_id = f"<{delivery_key}@{mail_from.domain}>"
    date = format_datetime(created_at.astimezone(UTC))
    slots = {
        "token": show_token(token),
        "expires": _TEMPLATES[template_version].moment(expires_at.astimezone(UTC), language),
        "reference": verification_id,
        "recipient": to,
        "date": date,
        "key": delivery_key,
    }
    return OutgoingMail(
        delivery_key=delivery_key,
        envelope_from=mail_from.address,
        recipient=to,
        subject=skeleton.subject,
        text=_filled(skeleton.text, slots),
        html=_filled(skeleton.html, slots),
        message_id=message_id,
        mime=_filled(skeleton.mime, slots).encode(),
        headers=MappingProxyType(
            {
                "Date": date,
                "From": skeleton.from_,
                "To": to,
                "Subject": skeleton.subject,
                "Message-ID": message_id,
                "Auto-Submitted": "auto-generated",
                "X-Countersign-Delivery": delivery_key,
            }
        ),
    )


def _language(version: int, locale: str) -> str:
    """`de_AT.UTF-8` reads German; a language without words reads English."""
    language = re.split(r"[-_.]", locale, maxsplit=1)[0].lower()
    return language if language in _TEMPLATES[version].WORDS else _DEFAULT_LOCALE


def _wording(version: int, purpose: str) -> str:
    return purpose if purpose in _TEMPLATES[version].PURPOSES else "other"


@lru_cache(maxsize=64)
def _skeleton(version: int, language: str, wording: str, public_url: str, mail_from: Sender) -> _Skeleton:
    """Lay out everything that a mail of this configuration shares with the next one."""
    if not _PUBLIC_URL.fullmatch(public_url):
        raise ValueError("PUBLIC_URL must be an http or https address in ASCII, without query and fragment")
    template = _TEMPLATES[version]
    page = public_url.rstrip("/") + "/verify"
    values = {
        "name": mail_from.name or mail_from.domain,
        "page": page,
        "link": f"{page}#{slot('token')}",
        "token": slot("token"),
        "expires": slot("expires"),
        "reference": slot("reference"),
        "lang": language,
    }
    words = _words(template.WORDS[language], wording)
    text = _fill(template.TEXT, values | {key: _fill(value, values) for key, value in words.items()})
    # A slot's mark and the value that takes its place hold nothing that HTML would read as markup.
    values = {key: html.escape(value) for key, value in values.items()}
    words_html = {key: _fill(html.escape(value, quote=False), values) for key, value in words.items()}
    html_text = _fill(template.HTML, values | words_html)
    return _Skeleton(
        subject=words["subject"],
        from_=f"{mail_from.name} <{mail_from.address}>".lstrip(),
        text=_cut(text),
        html=_cut(html_text),
        mime=_cut(_mime(words["subject"], mail_from, text, html_text)),
    )


def _words(words: Mapping[str, str], wording: str) -> dict[str, str]:
    """One language's words; those that depend on the purpose under a plain name (`lead.signup` as `lead`)."""
    plain = {key: text for key, text in words.items() if "." not in key}
    return plain | {key: words[f"{key}.{wording}"] for key in ("subject", "lead")}


def _mime(subject: str, mail_from: Sender, text: str, html_text: str) -> str:
    """The whole message, its slots open."""
    key = slot("key")
    lines = [
        f"Date: {slot('date')}",
        f"From: {mailbox(mail_from.name, mail_from.address)}",
        f"To: {slot('recipient')}",
        f"Subject: {header_text(subject)}",
        f"Message-ID: <{key}@{mail_from.domain}>",
        "Auto-Submitted: auto-generated",
        f"X-Countersign-Delivery: {key}",
        "MIME-Version: 1.0",
        # "=_" occurs in neither encoding of a part, so no line of a body looks like a boundary.
        f'Content-Type: multipart/alternative;\r\n boundary="=_{key}"',
        "",
    ]
    for subtype, body in (("plain", text), ("html", html_text)):
        encoding, encoded = encoded_body(body)
        lines += [
            f"--=_{key}",
            f"Content-Type: text/{subtype}; charset=utf-8",
            f"Content-Transfer-Encoding: {encoding}",
            "",
            *encoded,
        ]
    return "\r\n".join([*lines, f"--=_{key}--", ""])


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Fill in `{name}`s, once: what a value brings along is not looked at."""
    return re.sub(r"\{([a-z_]+)\}", lambda name: values[name[1]], template)


def _cut(text: str) -> _Cut:
    return tuple(SLOT.split(text))


def _filled(cut: _Cut, slots: Mapping[str, str]) -> str:
    """The text with its slots filled in."""
    pieces = list(cut)
    pieces[1::2] = [slots[name] for name in cut[1::2]]
    return "".join(pieces)
