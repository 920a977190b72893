"""A client's own branding: what is refused, and what mail the rest makes."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from email import message_from_bytes, policy
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.field_codes import FIELD_CODES
from tasks import branding_html
from tasks.branding import InvalidBranding, UnknownBrandingShape, from_stored
from tasks.branding_rules import WORDS
from tasks.branding_text import Fault, contrast, link_elsewhere
from tasks.branding_trial import LARGEST_PART, accept
from tasks.message import Sender, TemplateError, render
from tests.unit.test_message import VALUES

DOCS = (Path(__file__).parents[2] / "docs/branding.md").read_text(encoding="utf-8")
(EXAMPLE,) = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", DOCS, re.S))
HOSTS = frozenset({"shop.example"})
TEXT = "{lead}\n{link}\n{token}\n{not_you}\n{reference_line}\n"
HTML = '<p>{lead} <a href="{link}">{button}</a></p><p>{token}</p><p>{not_you}</p><p>{reference_line}</p>'
LINK = "https://verify.example.com/verify#0123-4567-89AB-CDEF"


def mail(document: dict[str, Any], **changes: Any) -> Any:
    return render(**(VALUES | {"branding": accept(document, HOSTS)} | changes))


def faults(document: Any, hosts: frozenset[str] | None = HOSTS) -> list[tuple[str, str]]:
    with pytest.raises(InvalidBranding) as refused:
        accept(document, hosts)
    assert all(isinstance(fault, Fault) and fault.detail.endswith(".") for fault in refused.value.faults)
    found = [(fault.pointer, fault.code) for fault in refused.value.faults]
    assert {code for _, code in found} <= set(FIELD_CODES), "every code is documented"
    return found


def with_html(more: str) -> dict[str, Any]:
    return {"name": "Shop", "templates": {"en": {"html": HTML + more}}}


def with_text(more: str) -> dict[str, Any]:
    return {"name": "Shop", "templates": {"en": {"text": TEXT + more}}}


@pytest.mark.parametrize("locale", ["en", "de", "fr", "it"])
@pytest.mark.parametrize("purpose", ["signup", "email_change", "newsletter", "other-thing"])
def test_the_documented_example_makes_proper_mail(locale: str, purpose: str) -> None:
    sent = mail(EXAMPLE, locale=locale, purpose=purpose)
    assert LINK in sent.text.split("\n")
    assert f'href="{LINK}"' in sent.html
    for part in (sent.text, sent.html):
        assert "0123-4567-89AB-CDEF" in part
        assert VALUES["verification_id"] in part
        assert "I did not ask for this" in part or "Ich habe das nicht angefordert" in part
        assert not re.search(r"\{[a-z_]+\}", part)
    parsed = message_from_bytes(sent.mime, policy=policy.default)
    assert parsed.defects == []
    assert parsed["Subject"] == sent.subject


def test_words_are_taken_for_the_purpose_then_the_language_then_ours() -> None:
    assert "Welcome to Example Shop!" in mail(EXAMPLE).text
    assert "the newsletter of Example Shop" in mail(EXAMPLE, purpose="newsletter").text
    assert "this is your new email address for Example Shop" in mail(EXAMPLE, purpose="email_change").text
    assert mail(EXAMPLE, purpose="email_change").subject == "Confirm your address for Example Shop"
    assert mail(EXAMPLE, locale="de").subject == "Bitte bestätigen Sie Ihre E-Mail-Adresse"
    both = {"name": "Shop", "wording": {"en": {"lead.signup": "To sign up", "lead": "For all else"}}}
    assert "To sign up" in mail(both).text
    assert "For all else" in mail(both, purpose="newsletter").text
    assert "Veuillez confirmer" in mail(EXAMPLE, locale="fr-CA").text
    assert "jusqu'au 2026-02-04, 14:05 UTC" in mail(EXAMPLE, locale="fr").text
    assert '<html lang="fr" dir="ltr">' in mail(EXAMPLE, locale="fr").html


def test_a_language_written_from_the_right_says_so() -> None:
    document = {"name": "Shop", "wording": {"he": EXAMPLE["wording"]["fr"]}}
    assert '<div lang="he" dir="rtl"' in mail(document, locale="he").html


@pytest.mark.parametrize(
    ("mail_from", "shown"),
    [
        ("Countersign", "Example Shop via Countersign"),
        ("", "Example Shop"),
        ("Example Shop", "Example Shop"),
        ("x" * 190, "Example Shop"),
    ],
)
def test_the_sender_keeps_its_address_and_the_operators_name_stays_visible(
    mail_from: str, shown: str
) -> None:
    sent = mail(EXAMPLE, mail_from=Sender(mail_from, "no-reply@mail.example.com"))
    (address,) = message_from_bytes(sent.mime, policy=policy.default)["From"].addresses
    assert (address.display_name, address.addr_spec) == (shown, "no-reply@mail.example.com")
    assert sent.headers["From"] == f"{shown} <no-reply@mail.example.com>"
    assert sent.envelope_from == "no-reply@mail.example.com"


def test_colours_are_the_buttons_and_need_no_template() -> None:
    document = {"name": "Shop", "colours": {"button": "#ffdd00", "button_text": "#000000"}}
    assert "background-color:#ffdd00;color:#000000" in mail(document).html
    assert "#1a56db" not in mail(document).html


def test_a_name_is_escaped_and_filled_in_once() -> None:
    sent = mail({"name": 'Tom & "Söhne"', "wording": {"en": {"lead": "<b>{name}</b>"}}})
    assert '<b>Tom & "Söhne"</b>' in sent.text
    assert "&lt;b&gt;Tom &amp; &quot;Söhne&quot;&lt;/b&gt;" in sent.html


def test_mail_with_a_branding_is_the_same_bytes_however_often_it_was_read() -> None:
    stored = accept(EXAMPLE, HOSTS).stored()
    one, other = (from_stored(json.loads(json.dumps(stored))) for _ in range(2))
    assert mail(EXAMPLE, branding=one).mime == mail(EXAMPLE, branding=other).mime
    assert mail(EXAMPLE, branding=one).mime != mail(EXAMPLE, branding=None).mime


def test_what_was_accepted_is_kept_as_it_came() -> None:
    assert accept(EXAMPLE, HOSTS).document() == EXAMPLE
    crlf = with_text("one\r\ntwo")
    assert accept(crlf, HOSTS).document()["templates"]["en"]["text"] == TEXT + "one\ntwo"


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ([], "", "invalid_type"),
        ({}, "/name", "required"),
        ({"name": 1}, "/name", "invalid_type"),
        ({"name": "Shop", "logo": "x"}, "/logo", "unknown_field"),
        ({"name": "Shop", "shape": 1}, "/shape", "unknown_field"),
        ({"name": "Shop", "templates": None}, "/templates", "invalid_type"),
        ({"name": "Shop", "colours": []}, "/colours", "invalid_type"),
        ({"name": "Shop", "wording": {"en": {"lead": 1}}}, "/wording/en/lead", "invalid_type"),
        ({"name": "Shop", "wording": {"en-GB": {}}}, "/wording/en-GB", "unknown_field"),
        ({"name": "Shop", "wording": {"en": {"greeting": "x"}}}, "/wording/en/greeting", "unknown_field"),
        (
            {"name": "Shop", "wording": {"en": {"button.signup": "x"}}},
            "/wording/en/button.signup",
            "unknown_field",
        ),
        ({"name": "Shop", "wording": {"en": {"not_you": "x"}}}, "/wording/en/not_you", "fixed_words"),
        (
            {"name": "Shop", "wording": {"de": {"reference_line": "{reference}"}}},
            "/wording/de/reference_line",
            "fixed_words",
        ),
        ({"name": "Shop", "wording": {"en": {"until": "soon"}}}, "/wording/en/until", "missing_placeholder"),
        ({"name": "Shop", "wording": {"en": {"lead": "{token}"}}}, "/wording/en/lead", "unknown_placeholder"),
        (
            {"name": "Shop", "wording": {"en": {"lead": "{name.__class__}"}}},
            "/wording/en/lead",
            "unknown_placeholder",
        ),
        (
            {"name": "Shop", "wording": {"en": {"lead": "{{name}}"}}},
            "/wording/en/lead",
            "unknown_placeholder",
        ),
        ({"name": "Shop", "wording": {"en": {"lead": " \n "}}}, "/wording/en/lead", "invalid_length"),
        (
            {"name": "Shop", "wording": {"en": {"lead": "a" + "\n" * 5 + "b"}}},
            "/wording/en/lead",
            "invalid_format",
        ),
        (
            {"name": "Shop", "wording": {"en": {"until": "{expires}.example"}}},
            "/wording/en/until",
            "link_elsewhere",
        ),
        (with_text("." + "\n \n \n \n\n."), "/templates/en/text", "invalid_format"),
        (with_text(".\n" * 196), "/templates/en/text", "too_large"),
        ({"name": "Shop", "wording": {"en": {"lead": "x" * 501}}}, "/wording/en/lead", "invalid_length"),
        (
            {"name": "Shop", "wording": {"en": {"subject": "a\nBcc: x"}}},
            "/wording/en/subject",
            "invalid_characters",
        ),
        (
            {"name": "x" * 64, "wording": {"en": {"subject": "{name} " * 5 + "!"}}},
            "/wording/en/subject",
            "invalid_length",
        ),
        ({"name": "Shop", "wording": {"en": {"lead": "a\u200bb"}}}, "/wording/en/lead", "invalid_characters"),
        ({"name": "Shop", "wording": {"en": {"lead": "\u202eb"}}}, "/wording/en/lead", "invalid_characters"),
        ({"name": "Shop", "wording": {f"x{c}": {} for c in "abcdefghijk"}}, "/wording", "too_many"),
        ({"name": "Shop", "wording": {"en": {f"lead.p{n}": "x" for n in range(11)}}}, "/wording", "too_many"),
        ({"name": "Shop", "templates": {"fr": {"text": TEXT}}}, "/templates/fr", "unknown_field"),
        ({"name": "Shop", "templates": {"en": {"css": "x"}}}, "/templates/en/css", "unknown_field"),
        (
            {"name": "Shop", "templates": {"en": {"text": TEXT.replace("{link}", "-> {link}")}}},
            "/templates/en/text",
            "missing_placeholder",
        ),
        (with_text("{lead} " * 37), "/templates/en/text", "too_many"),
        (with_text("\tx"), "/templates/en/text", "invalid_characters"),
        (with_text("{ x }"), "/templates/en/text", "unknown_placeholder"),
    ],
)
def test_what_is_no_branding_is_refused_where_it_is_wrong(document: Any, pointer: str, code: str) -> None:
    assert (pointer, code) in faults(document)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " Shop",
        "x" * 65,
        "a\r\nBcc: mallory@example.com",
        "a\x00",
        "a\u202eb",
        "a\u200bb",
        "\u3164",
        "!!",
        "Shop <x>",
        "help@shop",
        "{token}",
        "\ue000",
        "a\u2028b",
        "\ud800",
        "evil.example",
        "evil\uff0eexample",
        "EVIL\u3002EXAMPLE",
        "www.evil.example",
        "https://evil.example",
        "a\tb",
        "x\u034fy",
    ],
)
def test_a_name_cannot_pretend_to_be_something_else(name: str) -> None:
    assert {pointer for pointer, _ in faults({"name": name})} == {"/name"}


@pytest.mark.parametrize(
    "name", ["Müller & Söhne", "寿司屋", "L\u2019été", "A", "shop.example", "z.B. 2.0", "R2-D2 \U0001f600"]
)
def test_names_of_people_and_shops_are_fine(name: str) -> None:
    assert accept({"name": name}, HOSTS).name == name


@pytest.mark.parametrize(
    ("colours", "pointer", "code"),
    [
        ({"button": "red", "button_text": "#ffffff"}, "/colours/button", "invalid_format"),
        ({"button": "#000000"}, "/colours/button_text", "invalid_format"),
        ({"button": "#fff;x:y", "button_text": "#ffffff"}, "/colours/button", "invalid_format"),
        ({"button": "#777777", "button_text": "#ffffff"}, "/colours/button_text", "low_contrast"),
        (
            {"button": "#000000", "button_text": "#ffffff", "link": "#000000"},
            "/colours/link",
            "unknown_field",
        ),
    ],
)
def test_colours_are_two_and_readable(colours: Any, pointer: str, code: str) -> None:
    assert faults({"name": "Shop", "colours": colours}) == [(pointer, code)]


def test_contrast_is_measured_as_wcag_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#1a56db", "#1a56db") == 1.0


ELSEWHERE = [
    "https://evil.example/",
    "http://shop.example/",
    "HTTPS://EVIL.EXAMPLE",
    "evil.example",
    "www.evil.example/x",
    "help@evil.example",
    "mailto:x@evil.example",
    "tel:+491234",
    "javascript:alert(1)",
    "ftp://shop.example",
    "https://shop.example@evil.example/",
    "https://shop.example.evil.example",
    "evil.example-x",
    "192.0.2.1",
    "https://[2001:db8::1]/",
    "evil\u2024example",
    "evil\uff61example",
    "xn--evil-9ua.xn--p1ai",
    "bücher.example",
    "हिन्दी.com",
    "evil.भारत",
    "shop.exampleी",
    "shopी.example",
    "xा.de",
    "shop.example\\evil.example",
    "https://shop.example\\@evil.example",
    "https://shop.example\\evil.example",
    "\\\\evil\\share",
    "\\\\2130706433\\x",
    "shop.example\u0338",
    "shop.example.evil.example.3",
    "evil.example\u00b2",
    "evil.example\u0663",
    "evil.example\ufe0f",
    "\U0001f4a9.example",
    "i\u2764.example",
    ".evil.example",
    "...evil.example",
    "www.x1",
    "help@intranet",
    "skype:mallory",
    "whatsapp:x",
    "shop.example/\u8bf7evil.example",
    "https://shop.example/\u8bf7evil.example",
    "https://shop.example\uff0fevil.example",
    "shop.xn--p1ai-x",
    "app:https://evil.example",
    "https://shop.example https://evil.example",
]


@pytest.mark.parametrize("text", ELSEWHERE)
def test_no_words_lead_elsewhere(text: str) -> None:
    assert link_elsewhere("/x", text, HOSTS) is not None
    assert ("/wording/en/lead", "link_elsewhere") in faults(
        {"name": "Shop", "wording": {"en": {"lead": f"See {text} now"}}}
    )
    assert faults(with_text(f"See {text} now")) == [("/templates/en/text", "link_elsewhere")]
    assert faults(with_html(f"<p>See {text} now</p>")) == [("/templates/en/html", "link_elsewhere")]


@pytest.mark.parametrize(
    "text",
    [
        "z.B. hier",
        "i.e. this",
        "3.5 % on 4.2.2026",
        "12.50\u20ac",
        "\u0661\u0662.\u0665",
        "Version 2.3",
        "\u0928\u092e\u0938\u094d\u0924\u0947\u0964 \u092f\u0939",
        "help@shop.example",
        "@shop",
        "(https://shop.example/)",
        "https://shop.example/a.html?b=c",
        "shop.example/imprint.html",
        "Note: it works.",
        "and/or",
        "e.g...",
        "12:30",
    ],
)
def test_ordinary_words_and_the_clients_own_host_are_fine(text: str) -> None:
    assert link_elsewhere("/x", text, HOSTS) is None
    accept(with_html(f"<p>See {text} now</p>"), HOSTS)


def test_an_operator_may_link_anywhere_but_not_without_tls() -> None:
    accept(with_html('<p><a href="https://elsewhere.example/x">x</a> elsewhere.example</p>'), None)
    assert faults(with_html('<p><a href="http://elsewhere.example/x">x</a></p>'), None)


@pytest.mark.parametrize(
    ("html", "code"),
    [
        ("<script>x</script>", "forbidden_html"),
        ("<style>x</style>", "forbidden_html"),
        ("<form></form>", "forbidden_html"),
        ("<iframe></iframe>", "forbidden_html"),
        ("<svg></svg>", "forbidden_html"),
        ("<base/>", "forbidden_html"),
        ("<meta/>", "forbidden_html"),
        ('<p onclick="x">x</p>', "forbidden_html"),
        ('<p class="x">x</p>', "forbidden_html"),
        ('<p id="x">x</p>', "forbidden_html"),
        ('<a href="javascript:x">x</a>', "forbidden_html"),
        ('<a href="java&#115;cript:x">x</a>', "forbidden_html"),
        ('<a href="//evil.example">x</a>', "forbidden_html"),
        ('<a href="http://shop.example/">x</a>', "forbidden_html"),
        ('<a href="https://evil.example/">x</a>', "link_elsewhere"),
        ('<a href="https://shop.example/?{token}">x</a>', "forbidden_html"),
        ('<a href="https://shop.example/{link}">x</a>', "forbidden_html"),
        ('<a href="{link}{token}">x</a>', "forbidden_html"),
        ('<a href="https://shop.example@evil.example/">x</a>', "forbidden_html"),
        ("<a>x</a>", "forbidden_html"),
        ('<img src="https://shop.example/{token}" alt="">', "forbidden_html"),
        ('<img src="https://shop.example/x.png?t={reference}" alt="">', "forbidden_html"),
        ('<img src="data:image/png;base64,x" alt="">', "forbidden_html"),
        ('<img src="https://evil.example/x.png" alt="">', "link_elsewhere"),
        ('<img src="https://shop.example/x.png">', "needs_alt"),
        ('<img src="https://shop.example/x.png" alt="{token}">', "needs_alt"),
        ('<p style="{token}">x</p>', "forbidden_html"),
        ('<p lang="{token}">x</p>', "forbidden_html"),
        ('<p style="display:none">x</p>', "forbidden_html"),
        ('<p style="font-size:1px">x</p>', "forbidden_html"),
        ('<p style="position:absolute">x</p>', "forbidden_html"),
        ('<p style="margin:-99px">x</p>', "forbidden_html"),
        ('<p style="background-color:url(https://shop.example)">x</p>', "forbidden_html"),
        ('<p style="background:#ffffff">x</p>', "forbidden_html"),
        ('<p style="color:#ffffff">x</p>', "lone_colour"),
        ('<p style="background-color:#ffffff">x</p>', "lone_colour"),
        ('<p style="color:#ffffff;background-color:#eeeeee">x</p>', "low_contrast"),
        ('<div style="color:#ffffff;background-color:#000000"><a href="{page}">x</a></div>', "lone_colour"),
        ("<p>x", "invalid_html"),
        ("</p>", "invalid_html"),
        ("<p><b>x</p></b>", "invalid_html"),
        ("<p/>", "invalid_html"),
        ("<P>x</P>", "invalid_html"),
        ("<p style='x'>x</p>", "invalid_html"),
        ('<p lang="en" lang="de">x</p>', "invalid_html"),
        ("<!-- x -->", "invalid_html"),
        ("<![CDATA[x]]>", "invalid_html"),
        ("<?php x ?>", "invalid_html"),
        ("a < b", "invalid_html"),
        ("a > b", "invalid_html"),
        ("a & b", "invalid_html"),
        ("&nosuch;", "invalid_html"),
        ('<a href="{page}">x<a href="{page}">y</a></a>', "invalid_html"),
        ("&#8238;x", "invalid_characters"),
        ("&ZeroWidthSpace;", "invalid_characters"),
        ("&#123;token&#125;", "invalid_characters"),
        ("<small>x<small>y</small></small>", "forbidden_html"),
        ("<sub>x<sup>y</sup></sub>", "forbidden_html"),
        ("<small>x<p><sub>y</sub></p></small>", "forbidden_html"),
        ("x<br><br><br><br>y", "forbidden_html"),
        ("x<br><hr><br> <br>y", "forbidden_html"),
        ("<p></p>", "forbidden_html"),
        ("<div><p> </p></div>", "forbidden_html"),
        ("<div>" * 21 + "x" + "</div>" * 21, "forbidden_html"),
        ("<h1>x<h2>y</h2></h1>", "forbidden_html"),
        ("<p>.</p>" * 300, "too_many"),
        ('<img src="https://shop.example/x.png" alt="">' * 300, "too_many"),
        ('<p style="font-family:Wingdings">x</p>', "forbidden_html"),
        ("<p style=\"font-family:Arial, 'Webdings'\">x</p>", "forbidden_html"),
        ('<p style="margin:99px 0;padding:99px 0">x</p>' * 6, "too_large"),
        ('<img src="https://shop.example/x.png" alt="" height="700">' * 3, "too_large"),
        ('<div style="padding-left:99px">' * 7 + "x" + "</div>" * 7, "too_large"),
        ('<p style="width:650px">x</p>', "too_large"),
        ('<img src="https://shop.example/x.png" alt="" width="641">', "too_large"),
        ("<p>" + "x" * 81 + "</p>", "too_large"),
        ("<p>" + ("x" * 20 + "<b>" + "x" * 20 + "</b>") * 3 + "</p>", "too_large"),
        ("<p>" + "x\u00a0" * 41 + "</p>", "too_large"),
        ('<p style="font-size:40px">' + "x" * 33 + "</p>", "too_large"),
        ("<table><tr>" + '<td style="padding:0 99px">x</td>' * 4 + "</tr></table>", "too_large"),
        ("<p>{name}.example</p>", "link_elsewhere"),
        ("<p>{open_link}.{button}</p>", "placeholder_in_word"),
        ("<p>evil<b>.</b>example</p>", "link_elsewhere"),
        ("<p>ev&#105;l&period;example</p>", "link_elsewhere"),
        ("<p>https://shop.example/?{token}</p>", "placeholder_in_word"),
        ("<p>https://shop.example/?<b>{token}</b></p>", "placeholder_in_word"),
        ("<p>{lead}{button}</p>", "placeholder_in_word"),
        ("<p>https://shop.example/?t=({token})</p>", "placeholder_in_word"),
        ("<p>https://shop.example/?t='{token}'</p>", "placeholder_in_word"),
        ("<p>shop.example/('{token}')</p>", "placeholder_in_word"),
    ],
)
def test_html_that_could_harm_or_hide_is_refused(html: str, code: str) -> None:
    assert faults(with_html(html)) == [("/templates/en/html", code)]


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("{not_you}", ""),
        ("{reference_line}", ""),
        ("{token}", ""),
        ('href="{link}"', 'href="{page}"'),
        ("{button}", ""),
        (
            '<a href="{link}">{button}</a>',
            '<a href="{link}"><img src="https://shop.example/b.png" alt=""></a>',
        ),
    ],
)
def test_what_must_be_seen_cannot_be_left_out(part: str, instead: str) -> None:
    document = {"name": "Shop", "templates": {"en": {"html": HTML.replace(part, instead)}}}
    assert ("/templates/en/html", "missing_placeholder") in faults(document)


LAYOUTS = [
    '<table role="presentation" style="width:600px"><tr><td style="padding:20px">'
    + "<p>x y</p>" * 30
    + "</td></tr></table>",
    "<table><tr>" + '<td style="padding:0 20px;width:200px">'
    "x</td>" * 2 + "</tr></table>" + "<p>x y z</p>" * 100,
    '<img src="https://shop.example/x.png" alt="" width="600" height="300">' * 4,
    "<p>" + "x" * 79 + " " + "x" * 79 + "<br>" + "x" * 79 + "</p>",
    "<p>" + "確認" * 200 + "</p>",
    "<h1>x <small>y</small></h1><p>H<sub>2</sub>O, m<sup>2</sup></p>",
    "<p style=\"font-family:'Helvetica Neue', Arial, sans-serif\">x</p>",
    '<p style="padding:99px;margin:99px 0 auto">x</p>' * 5,
]


@pytest.mark.parametrize("html", LAYOUTS)
def test_mail_that_is_laid_out_as_mail_is_has_room(html: str) -> None:
    accept(with_html(html), HOSTS)


def test_a_fault_in_html_names_its_line() -> None:
    with pytest.raises(InvalidBranding) as refused:
        accept(with_html("\n\n<p>\n<u>x</u></p>"), HOSTS)
    assert refused.value.faults[0].detail.startswith("Line 4: <u>")


def test_a_mail_that_grows_too_large_is_refused() -> None:
    document = with_text("{lead}\n" * 35)
    document["wording"] = {"en": {"lead": "x" * 500}}
    accept(document, HOSTS)
    document["templates"]["en"]["text"] += "y" * (LARGEST_PART // 2 - 2000)
    assert faults(document) == [("/templates/en/text", "too_large")]


def test_a_line_full_of_placeholders_stays_within_what_mail_allows() -> None:
    sent = mail(with_text("x" * 500 + " {expires}" * 20 + " {reference}" * 10))
    assert max(map(len, sent.mime.split(b"\r\n"))) <= 998
    body = message_from_bytes(sent.mime, policy=policy.default).get_body(("plain",))
    assert body.get_content().split() == sent.text.split()


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.targets |= {value or "" for name, value in attrs if name in {"href", "src"}}

    def handle_comment(self, data: str) -> None:
        self.tags.add("!")

    handle_decl = handle_pi = unknown_decl = handle_comment


PIECES = st.sampled_from(
    [
        "<",
        ">",
        "</",
        "/>",
        '"',
        "'",
        "=",
        " ",
        "\n",
        "&",
        ";",
        "#",
        "!",
        "--",
        "p",
        "a",
        "b",
        "script",
        "img",
        "style",
        "href",
        "src",
        "alt",
        "onerror",
        "<p>",
        "</p>",
        "<b>",
        "</b>",
        "<br>",
        '<a href="{page}">',
        "</a>",
        "javascript:",
        "{token}",
        "{link}",
        "&lt;",
        "&#60;",
        "&amp;",
        '<a href="https://shop.example/',
        '">',
        "x",
        "\x00",
        "`",
        "\\",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_passes_reads_the_same_to_another_parser(more: str) -> None:
    try:
        accept(with_html(more), HOSTS)
    except InvalidBranding:
        return
    seen = _Seen()
    seen.feed(HTML + more)
    seen.close()
    assert seen.tags <= branding_html.TAGS
    assert seen.attributes <= {"href", "src", "alt"}
    assert all(
        target in {"{link}", "{page}"} or target.startswith("https://shop.example/")
        for target in seen.targets
    )


def test_the_documentation_lists_the_tags_and_words_there_are() -> None:
    (listed,) = re.findall(r"- tags `([^`]+)`", DOCS)
    assert set(listed.split()) == branding_html.TAGS
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", DOCS, re.M))
    assert rows == {name: str(word.longest) for name, word in WORDS.items()}


@pytest.mark.parametrize("change", [{"shape": 2}, {"shape": None}, {"pictures": {}}])
def test_what_a_later_release_stored_is_told_apart_from_what_is_damaged(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownBrandingShape):
        from_stored(accept(EXAMPLE, HOSTS).stored() | change)


@pytest.mark.parametrize(
    "change", [{"name": None}, {"colours": 1}, {"wording": {"en": 1}}, {"templates": {"en": {"text": []}}}]
)
def test_a_damaged_row_is_no_branding(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        from_stored(accept(EXAMPLE, HOSTS).stored() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a\r\nBcc: mallory@example.com"},
        {"templates": {"en": {"text": "{nonsense}"}}},
        {"colours": {"button": "#000000"}},
        {"name": "x" * 300},
    ],
)
def test_a_branding_that_makes_no_mail_is_its_own_error(change: dict[str, Any]) -> None:
    branding = from_stored(deepcopy(accept(EXAMPLE, HOSTS).stored()) | change)
    with pytest.raises(TemplateError) as refused:
        mail(EXAMPLE, branding=branding)
    assert "mallory" not in str(refused.value)
