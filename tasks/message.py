"""The verification mail: link, words and MIME bytes. Pure: the same inputs give the same bytes, everywhere.

Building an `EmailMessage` costs a millisecond of CPU, so everything that does not change from mail to mail
(words, headers, encodings) is laid out once a configuration and branding, with a few slots left open.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parseaddr
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Final

from db import tokens
from tasks.branding import Branding, Templates
from tasks.providers.base import OutgoingMail
from tasks.providers.mail_syntax import SLOT, addr_spec, encoded_body, header_text, mailbox, printable, slot
from tasks.templates import v1

CURRENT_TEMPLATE_VERSION: Final = 1
_TEMPLATES: Final = MappingProxyType({1: v1})
_DEFAULT_LOCALE: Final = "en"
_LONGEST_NAME: Final = 200  # of a sender, as a header takes it

_DELIVERY_KEY = re.compile(r"dlv_[0-9a-f]{32}")
_VERIFICATION_ID = re.compile(r"ver_[0-9a-f]{32}")
_TOKEN = re.compile(r"[0-9A-HJKMNP-TV-Z]{16}")  # Crockford's alphabet: no I, L, O, U
# Printable ASCII without what would end an attribute or begin the fragment and query that we append.
_PUBLIC_URL = re.compile(r"https?://[!$%&'()*+,\-./0-9:;=@A-Z\[\]_a-z~]+")


class UnknownTemplateVersion(LookupError):
    """Another release wrote the row, as in a rolling deploy: another worker can render it, or a later one."""


class TemplateError(Exception):
    """A client's branding makes no mail: its row was damaged, or is not what this release takes for one."""


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
class Configuration:
    """What many mails share. The branding counts by identity: whoever reads it keeps it."""

    template_version: int
    public_url: str
    mail_from: Sender
    branding: Branding | None

    @property
    def template(self) -> ModuleType:
        return _TEMPLATES[self.template_version]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a configuration's mails say, slots still open: one for each language, purpose and branding."""

    subject: str
    from_name: str
    text: str
    html: str


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
    branding: Branding | None = None,
) -> OutgoingMail:
    """Render one delivery's mail; `branding` None: in our own words.

    `created_at` becomes its Date, so that a retry renders the same bytes. ValueError (which never quotes
    the value) for whatever would not make a well-formed mail, TemplateError if that is the branding's fault,
    UnknownTemplateVersion for a version that this release does not have.
    """
    if template_version not in _TEMPLATES:
        raise UnknownTemplateVersion(f"template version {template_version} is unknown to this release")
    if not _DELIVERY_KEY.fullmatch(delivery_key):
        raise ValueError("a delivery key is dlv_ and 32 hex digits")
    if not _VERIFICATION_ID.fullmatch(verification_id):
        raise ValueError("a verification's id is ver_ and 32 hex digits")
    if created_at.tzinfo is None or expires_at.tzinfo is None:
        raise ValueError("created_at and expires_at need a time zone")
    configuration = Configuration(template_version, public_url, mail_from, branding)
    language = _language(configuration, locale)
    skeleton = _skeleton(configuration, language, _purpose(configuration, purpose))
    to = addr_spec(recipient)
    message_id = f"<{delivery_key}@{mail_from.domain}>"
    date = format_datetime(created_at.astimezone(UTC))
    slots = {
        "token": show_token(token),
        "expires": configuration.template.moment(expires_at.astimezone(UTC), language),
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


def _language(configuration: Configuration, locale: str) -> str:
    """`de_AT.UTF-8` reads German; a language that neither we nor the client have words for reads English."""
    language = re.split(r"[-_.]", locale, maxsplit=1)[0].lower()
    branding = configuration.branding
    known = language in configuration.template.WORDS or (branding and language in branding.wording)
    return language if known else _DEFAULT_LOCALE


def _purpose(configuration: Configuration, purpose: str) -> str:
    """The purpose if anybody has words of its own for it: what is laid out for it is kept."""
    branding = configuration.branding
    known = purpose in configuration.template.PURPOSES or (branding and purpose in branding.purposes)
    return purpose if known else "other"


@lru_cache(maxsize=128)
def _skeleton(configuration: Configuration, language: str, purpose: str) -> _Skeleton:
    """Lay out everything that a mail of this configuration shares with the next one."""
    try:
        layout = lay_out(configuration, language, purpose)
        mime = mime_of(layout, configuration.mail_from)
    except Exception as error:
        # With a branding, whatever is wrong is taken for its fault: without one, the same configuration sends.
        if configuration.branding is None:
            raise
        raise TemplateError(type(error).__name__) from None
    return _Skeleton(
        subject=layout.subject,
        from_=f"{layout.from_name} <{configuration.mail_from.address}>".lstrip(),
        text=_cut(layout.text),
        html=_cut(layout.html),
        mime=_cut(mime),
    )


def lay_out(configuration: Configuration, language: str, purpose: str) -> Layout:
    """What such mails say, their slots open. ValueError or KeyError for what makes no mail."""
    template, public_url = configuration.template, configuration.public_url
    mail_from, branding = configuration.mail_from, configuration.branding
    if not _PUBLIC_URL.fullmatch(public_url):
        raise ValueError("PUBLIC_URL must be an http or https address in ASCII, without query and fragment")
    own = (branding and branding.templates.get(language)) or Templates(None, None)
    page = public_url.rstrip("/") + "/verify"
    values = {
        "name": branding.name if branding else mail_from.name or mail_from.domain,
        "page": page,
        "link": f"{page}#{slot('token')}",
        "token": slot("token"),
        "expires": slot("expires"),
        "reference": slot("reference"),
    }
    words = _words(template, language, purpose, branding)
    filled = {key: _fill(text, values) for key, text in words.items()}
    return Layout(
        subject=filled["subject"],
        from_name=_from_name(branding, mail_from),
        text=_fill(_with_line_end(own.text or template.TEXT), values | filled),
        html=_html(configuration, language, own.html or template.HTML, values, words),
    )


def _html(
    configuration: Configuration,
    language: str,
    content: str,
    values: Mapping[str, str],
    words: Mapping[str, str],
) -> str:
    """The content in its frame. A slot's mark and the value that takes its place hold nothing that HTML reads as markup."""
    template, branding = configuration.template, configuration.branding
    values = {key: html.escape(value) for key, value in values.items()}
    filled = {key: _fill(html.escape(text, quote=False), values) for key, text in words.items()}
    colours = (branding and branding.colours) or template.COLOURS
    looks = {"button_background": colours["button"], "button_text": colours["button_text"]}
    around = {
        "lang": language,
        "dir": template.direction(language),
        "subject": filled["subject"],
        "content": _fill(content.strip("\n"), values | filled | looks),
    }
    return _fill(template.FRAME, around)


def _words(template: ModuleType, language: str, purpose: str, branding: Branding | None) -> dict[str, str]:
    """One language's words under plain names: ours, the client's over them, those for the purpose over both."""
    ours = template.WORDS.get(language, {})
    kind = purpose if purpose in template.PURPOSES else "other"
    own = branding.wording.get(language, {}) if branding else {}
    return _plain(ours) | _of_purpose(ours, kind) | _plain(own) | _of_purpose(own, purpose)


def _plain(words: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in words.items() if "." not in key}


def _of_purpose(words: Mapping[str, str], purpose: str) -> dict[str, str]:
    """`lead.signup` as `lead`."""
    suffix = f".{purpose}"
    return {key.removesuffix(suffix): text for key, text in words.items() if key.endswith(suffix)}


def _from_name(branding: Branding | None, mail_from: Sender) -> str:
    """The sender's name. With a client's the operator's stays visible: `Shop via Countersign`, if MAIL_FROM has one."""
    if branding is None or branding.name == mail_from.name:
        return mail_from.name
    both = f"{branding.name} via {mail_from.name}" if mail_from.name else branding.name
    return both if len(both) <= _LONGEST_NAME else branding.name


def _with_line_end(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def mime_of(layout: Layout, mail_from: Sender) -> str:
    """The whole message, its slots open. ValueError for a header that may not be."""
    key = slot("key")
    lines = [
        f"Date: {slot('date')}",
        f"From: {mailbox(layout.from_name, mail_from.address)}",
        f"To: {slot('recipient')}",
        f"Subject: {header_text(layout.subject)}",
        f"Message-ID: <{key}@{mail_from.domain}>",
        "Auto-Submitted: auto-generated",
        f"X-Countersign-Delivery: {key}",
        "MIME-Version: 1.0",
        # "=_" occurs in neither encoding of a part, so no line of a body looks like a boundary.
        f'Content-Type: multipart/alternative;\r\n boundary="=_{key}"',
        "",
    ]
    for subtype, body in (("plain", layout.text), ("html", layout.html)):
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
