"""Which addresses are taken, how they are mailed and compared, and what is suggested instead: tests/data/addresses.toml."""

from __future__ import annotations

import string
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import addresses, config
from app.disposable import DisposablePolicy, is_listed
from app.errors import InvalidRequest
from db import domain_typos
from dev.inbox import Inbox
from tasks.deadline import Deadline
from tasks.message import Sender, render
from tasks.providers.base import OutgoingMail
from tasks.providers.registry import providers_from_url
from tests.support.environment import MAIL_FROM
from tests.unit.test_config import ROOT

CODES = {"invalid_address", "unsupported_address", "reserved_domain", "disposable_domain", "test_word"}


@dataclass(frozen=True)
class Case:
    """One line of the file: `exact` is what is mailed to, None when it is refused with `code`."""

    rule: str
    text: str
    exact: str | None
    code: str
    allow_reserved: bool
    disposable: DisposablePolicy

    def check(self) -> addresses.Address:
        return addresses.check(self.text, allow_reserved=self.allow_reserved, disposable=self.disposable)


def _joined(parts: str | list[str | int]) -> str:
    joined: list[str] = []
    for part in [parts] if isinstance(parts, str) else parts:
        if isinstance(part, int):
            joined[-1] *= part
        else:
            joined.append(part)
    return "".join(joined)


def _case(line: dict[str, Any]) -> Case:
    local, domain = (_joined(line.get(side, "")) for side in ("local", "domain"))
    mailed = _joined(line.get("mailed", domain))
    code = line.get("code", "")
    return Case(
        rule=line["rule"],
        text=line.get("text", f"{local}@{domain}"),
        exact=None if code else f"{local}@{mailed}",
        code=code,
        allow_reserved=not line.get("strict", False),
        disposable=DisposablePolicy.REJECT if line.get("reject") else DisposablePolicy.ALLOW,
    )


CASES = [
    _case(line) for line in tomllib.loads((ROOT / "tests/data/addresses.toml").read_text("utf-8"))["cases"]
]
ACCEPTED = [case for case in CASES if case.exact]
REFUSED = [case for case in CASES if not case.exact]


def _name(case: Case) -> str:
    return f"{case.rule} {ascii(case.text)[1:41]}"


def test_the_file_has_cases_of_every_kind() -> None:
    assert len(ACCEPTED) >= 100
    assert len(REFUSED) >= 150
    assert {case.code for case in REFUSED} == CODES


@pytest.mark.parametrize("case", ACCEPTED, ids=_name)
def test_a_good_address_is_mailed_exactly_as_it_was_written(case: Case) -> None:
    assert case.check().exact == case.exact


@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_a_bad_address_is_refused_with_its_reason_and_without_being_quoted(case: Case) -> None:
    with pytest.raises(InvalidRequest) as refused:
        case.check()
    (error,) = refused.value.errors
    assert (error.pointer, error.code) == ("/email", case.code)
    assert error.detail.endswith(".")
    assert len(case.text) < 3 or case.text not in error.detail


@pytest.mark.parametrize("case", ACCEPTED, ids=_name)
def test_what_is_accepted_is_accepted_again_as_it_is_mailed(case: Case) -> None:
    first = case.check()
    again = addresses.check(first.exact, allow_reserved=case.allow_reserved, disposable=case.disposable)
    assert again == first


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ada", "name@domain"),
        ("ada\uff20example.com", "plain @"),
        (" ada@example.com", "white space"),
        ("a\u200bda@example.com", "cannot be seen"),
        ("a" * 65 + "@example.com", "64 before the @"),
        ("ada@example..com", "typing errors"),
    ],
)
def test_a_refusal_says_what_to_do(text: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        addresses.check(text, allow_reserved=True)
    assert sentence in refused.value.errors[0].detail


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=320))
def test_no_text_is_anything_but_taken_or_refused(text: str) -> None:
    try:
        taken = addresses.check(text, allow_reserved=True)
    except InvalidRequest as refused:
        assert refused.errors[0].code in CODES
    else:
        assert taken.exact.rpartition("@")[0] == text.rpartition("@")[0]


@given(st.text(string.printable + "\u00e9\u0430\u200b\u202e\uff20\u3002\u0000", max_size=80))
def test_no_short_text_of_awkward_characters_is_anything_but_taken_or_refused(name: str) -> None:
    for text in (name, f"{name}@example.com", f"ada@{name}.example", f"ada@{name}"):
        try:
            taken = addresses.check(text, allow_reserved=True)
        except InvalidRequest as refused:
            assert refused.errors[0].code in CODES
        else:
            assert not set("\r\n\0<> ,\u200b\u202e") & set(taken.exact)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Ada", "example.com"), ("ada", "example.com")),
        (("ada+tag", "example.com"), ("ada", "example.com")),
        (("ADA+a+b", "example.com"), ("ada+c", "example.com")),
        (("J\u00dcRGEN", "example.com"), ("j\u00fcrgen", "example.com")),
        (("a.d.a+x", "gmail.com"), ("ada", "googlemail.com")),
    ],
)
def test_addresses_of_one_mailbox_compare_equal(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert addresses.canonical("@".join(one)) == addresses.canonical("@".join(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a.da", "example.com"), ("ada", "example.com")),
        (("ada-tag", "example.com"), ("ada", "example.com")),
        (("+ada", "example.com"), ("+eve", "example.com")),
        (("ada", "example.com"), ("ada", "mail.example.com")),
        (("ada", "example.com"), ("ada", "example.org")),
    ],
)
def test_addresses_of_different_mailboxes_do_not(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert addresses.canonical("@".join(one)) != addresses.canonical("@".join(other))


def test_nobody_is_mailed_at_the_canonical_form() -> None:
    assert addresses.check("Ada.L+Tag@Example.COM", allow_reserved=True) == addresses.Address(
        exact="Ada.L+Tag@example.com", canonical="ada.l@example.com"
    )


@pytest.mark.parametrize("value", ["", "FLAG", "refuse"])
def test_a_policy_that_does_not_exist_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DISPOSABLE_POLICY", value)
    config.disposable_policy.cache_clear()
    with pytest.raises(config.ConfigurationError, match="DISPOSABLE_POLICY"):
        config.disposable_policy()


def test_no_common_domain_is_on_the_list_of_disposable_ones() -> None:
    common = (*sorted(domain_typos._COMMON), *domain_typos._LEFT_ALONE)
    assert [domain for domain in common if is_listed(domain)] == []


TYPOS = {
    "gmial.com": "gmail.com",
    "mgail.com": "gmail.com",
    "gmai.com": "gmail.com",
    "gmaill.com": "gmail.com",
    "gnail.com": "gmail.com",
    "gmail.con": "gmail.com",
    "gmail.co": "gmail.com",
    "gmail.de": "gmail.com",
    "gmial.cmo": "gmail.com",
    "hotmial.com": "hotmail.com",
    "hotmal.com": "hotmail.com",
    "yaho.com": "yahoo.com",
    "yahooo.co.uk": "yahoo.co.uk",
    "outlok.de": "outlook.de",
    "icould.com": "icloud.com",
    "gxm.de": "gmx.de",
    "gmx.dee": "gmx.de",
    "wbe.de": "web.de",
    "web.ed": "web.de",
    "t-onlien.de": "t-online.de",
    "tonline.de": "t-online.de",
    "frenet.de": "freenet.de",
    "goglemial.com": "googlemail.com",
    "me.con": "me.com",
    "some-company.con": "some-company.com",
    "some-company.ogr": "some-company.org",
}


@pytest.mark.parametrize(("typed", "meant"), TYPOS.items())
def test_a_mistyped_domain_is_recognised(typed: str, meant: str) -> None:
    assert domain_typos.suggest(typed) == meant


@pytest.mark.parametrize(
    "domain",
    [
        *sorted(domain_typos._COMMON),
        *sorted(domain_typos._LEFT_ALONE),
        *("example.com", "gmial.example", "gmail.test", "gmail.invalid", "localhost", "hotmial.localhost"),
        *("rmail.com", "wep.de", "gmx.org", "google.com", "globalmail.com", "some-company.com", "yale.edu"),
        *("xn--bcher-kva.example", "mail.gmail.com", "com", ""),
    ],
)
def test_a_domain_that_may_be_meant_is_left_alone(domain: str) -> None:
    assert domain_typos.suggest(domain) is None


def _mail_to(recipient: str) -> OutgoingMail:
    return render(
        delivery_key="dlv_" + "1" * 32,
        verification_id="ver_" + "2" * 32,
        recipient=recipient,
        token="0123456789ABCDEF",
        purpose="signup",
        locale="en",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        expires_at=datetime(2026, 1, 2, tzinfo=UTC),
        public_url="https://countersign.example",
        mail_from=Sender.parse(MAIL_FROM),
    )


@pytest.mark.parametrize("case", ACCEPTED, ids=_name)
def test_a_mail_can_be_made_for_whatever_is_accepted(case: Case) -> None:
    exact = case.check().exact
    mail = _mail_to(exact)
    assert mail.recipient == exact
    assert f"\r\nTo: {exact}\r\n".encode() in mail.mime


WIRE = [
    "Ada.LoveLace+Tag@example.com",
    "!#$%&'*+-/=?^_`{|}~@example.com",
    "eve%example.org@example.com",
    "ada@b\u00fccher.example",
    "j\u00fcrgen@example.com",
    "\u7528\u6237@\u4f8b\u3048.test",
    "a" * 64 + "@example.com",
]


@pytest.mark.parametrize("text", WIRE)
def test_what_is_accepted_arrives_byte_for_byte_at_the_envelope(inbox: Inbox, text: str) -> None:
    exact = addresses.check(text, allow_reserved=True).exact
    (provider,) = providers_from_url(inbox.smtp_url)
    result = provider.send(_mail_to(exact), Deadline.after(5), lambda: None)
    assert str(result.outcome) == "accepted", result
    (mail,) = inbox.wait_for(1)
    assert mail["to"] == exact
    assert f"\r\nTo: {exact}\r\n".encode() in mail["raw"].encode()
