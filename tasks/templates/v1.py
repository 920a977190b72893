"""Version 1 of the verification mail.

Frozen once released: a delivery whose outcome is unknown is replayed byte for byte, so another wording is
another version (a test pins the bytes). Words, `{name}`, `{page}` and `{link}` are filled in once a
configuration; `{token}`, `{expires}` and `{reference}` once a mail. Those are ASCII in every language, so
dates are in digits where month names are not.

A client's branding may replace words and templates by name, so a later version keeps these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

# The link has a line of its own: mail programs that find links in plain text stop at the line end.
TEXT = """\
{lead}

{open_link}

{link}

{type_code}

{page}
{token}

{until}

{not_you}

{reference_line}
"""

# No style sheet, picture or font from anywhere. Colours come from the reader's own scheme, light or dark; the
# button carries both of its own. Language and direction stand twice: some mail programs drop what is around the body.
FRAME = """\
<!DOCTYPE html>
<html lang="{lang}" dir="{dir}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>{subject}</title>
</head>
<body style="margin:0;padding:24px;font-family:sans-serif;font-size:16px;line-height:1.5">
<div lang="{lang}" dir="{dir}" style="max-width:34em;margin:0 auto">
{content}
</div>
</body>
</html>
"""

HTML = """\
<p>{lead}</p>
<p><a href="{link}"
 style="display:inline-block;padding:12px 20px;border-radius:6px;background-color:{button_background};color:{button_text};
 text-decoration:none;font-weight:bold">{button}</a></p>
<p>{open_link}<br>
<a href="{link}" style="word-break:break-all">{link}</a></p>
<p>{type_code}<br>
<a href="{page}" style="word-break:break-all">{page}</a></p>
<p style="font-family:monospace;font-size:20px;letter-spacing:1px"><strong dir="ltr">{token}</strong></p>
<p>{until}</p>
<p>{not_you}</p>
<p style="font-size:13px">{reference_line}</p>"""

COLOURS: Mapping[str, str] = MappingProxyType({"button": "#1a56db", "button_text": "#ffffff"})

# Purposes without words of their own use "other".
PURPOSES = ("signup", "email_change", "other")

WORDS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "en": {
            "subject.signup": "Confirm your email address",
            "subject.email_change": "Confirm your new email address",
            "subject.other": "Confirm your email address",
            "lead.signup": "Please confirm this email address for {name}.",
            "lead.email_change": "Please confirm that this is your new email address for {name}.",
            "lead.other": "{name} asks you to confirm this email address.",
            "open_link": "Open this link and press the button there:",
            "button": "Confirm this address",
            "type_code": "Or type this code on the page:",
            "until": "Link and code work once, until {expires}.",
            "not_you": "If you did not ask for this, ignore this mail,\n"
            'or press "I did not ask for this" on the page.',
            "reference_line": "Reference: {reference}",
        },
        "de": {
            "subject.signup": "Bitte bestätigen Sie Ihre E-Mail-Adresse",
            "subject.email_change": "Bitte bestätigen Sie Ihre neue E-Mail-Adresse",
            "subject.other": "Bitte bestätigen Sie Ihre E-Mail-Adresse",
            "lead.signup": "Bitte bestätigen Sie diese E-Mail-Adresse für {name}.",
            "lead.email_change": "Bitte bestätigen Sie, dass dies Ihre neue E-Mail-Adresse bei {name} ist.",
            "lead.other": "{name} bittet Sie, diese E-Mail-Adresse zu bestätigen.",
            "open_link": "Öffnen Sie diesen Link und drücken Sie dort auf den Knopf:",
            "button": "Adresse bestätigen",
            "type_code": "Oder geben Sie diesen Code auf der Seite ein:",
            "until": "Link und Code gelten einmal, bis {expires}.",
            "not_you": "Wenn Sie das nicht angefordert haben, ignorieren Sie diese Mail\n"
            "oder drücken Sie auf der Seite auf \u201eIch habe das nicht angefordert\u201c.",
            "reference_line": "Vorgang: {reference}",
        },
    }
)

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


_RIGHT_TO_LEFT = frozenset({"ar", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})


def direction(language: str) -> str:
    """Which way a language is written, as HTML's `dir`."""
    return "rtl" if language in _RIGHT_TO_LEFT else "ltr"


def moment(when: datetime, language: str) -> str:
    """A UTC instant in at most 32 ASCII characters. No strftime: its names follow the process's locale."""
    clock = f"{when.hour:02}:{when.minute:02} UTC"
    if language == "en":
        return f"{when.day} {_MONTHS[when.month - 1]} {when.year}, {clock}"
    if language == "de":
        return f"{when.day:02}.{when.month:02}.{when.year}, {clock}"
    return f"{when.year}-{when.month:02}-{when.day:02}, {clock}"
