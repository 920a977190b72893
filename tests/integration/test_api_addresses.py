"""Addresses from the request to the mail server: refused with a reason, or mailed exactly as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from werkzeug.test import TestResponse

from app import config
from db import clients, retention
from db.session import Database
from dev.inbox import Inbox
from tests.support.api import Api, make_api, snapshot
from tests.support.courier import make_courier

DISPOSABLE = "mailinator.com"


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database)


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    config.disposable_policy.cache_clear()
    yield monkeypatch
    config.disposable_policy.cache_clear()


def refusal(answer: TestResponse) -> tuple[str, str]:
    """Pointer and code of the one field that is wrong."""
    body = answer.get_json(force=True)
    assert (answer.status_code, body["code"]) == (422, "invalid_request"), body
    (error,) = body["errors"]
    return error["pointer"], error["code"]


@pytest.mark.parametrize(
    ("local", "domain", "exact"),
    [
        ("Ada.LoveLace+Tag", "example.com", "Ada.LoveLace+Tag@example.com"),
        ("Info", "EXAMPLE.com", "Info@example.com"),
        ("!#$%&'*+-/=?^_`{|}~", "example.com", "!#$%&'*+-/=?^_`{|}~@example.com"),
        ("ada", "b\u00fccher.example", "ada@xn--bcher-kva.example"),
        ("j\u00fcrgen", "\u4f8b\u3048.test", "j\u00fcrgen@xn--r8jz45g.test"),
    ],
)
def test_a_mail_goes_to_exactly_the_address_of_the_request(
    api: Api, inbox: Inbox, local: str, domain: str, exact: str
) -> None:
    made = api.create(email=f"{local}@{domain}")
    assert made.status_code == 202, made.text
    assert make_courier(api.database, inbox.smtp_url).drain() == 1
    (mail,) = inbox.wait_for(1)
    assert mail["to"] == exact


@pytest.mark.parametrize(
    ("email", "code"),
    [
        ("ada@example..com", "invalid_address"),
        ("a\u200bda@example.com", "invalid_format"),
        ('"ada"@example.com', "unsupported_address"),
        ("ada@[192.0.2.1]", "unsupported_address"),
        ("dummy e mail", "test_word"),
        ("ada@tempail.example", "test_word"),
    ],
)
def test_a_refused_address_is_named_by_its_code_changes_nothing_and_is_not_repeated(
    api: Api, email: str, code: str
) -> None:
    before = snapshot(api.database)
    answer = api.create(email=email)
    assert refusal(answer) == ("/email", code)
    assert email not in answer.text
    assert snapshot(api.database) == before


def test_a_mistyped_domain_is_pointed_out_and_taken_all_the_same(api: Api) -> None:
    answer = api.create(email="ada@" + "gmial.com")
    assert answer.status_code == 202
    assert answer.get_json()["suggestion"] == "a***@" + "gmail.com"
    shown = api.get(answer.headers["Location"]).get_json()
    assert (shown["email_masked"], shown["suggestion"]) == ("a***@" + "gmial.com", "a***@" + "gmail.com")


def test_an_ordinary_domain_gets_no_suggestion(api: Api) -> None:
    assert api.create().get_json()["suggestion"] is None


def test_disposable_domains_are_taken_without_a_word_by_default(api: Api, policy: pytest.MonkeyPatch) -> None:
    answer = api.create(email=f"ada@{DISPOSABLE}")
    assert (answer.status_code, answer.get_json()["disposable"]) == (202, False)


def test_disposable_domains_are_taken_and_flagged(api: Api, policy: pytest.MonkeyPatch) -> None:
    policy.setenv("DISPOSABLE_POLICY", "flag")
    answer = api.create(email=f"ada@eu.{DISPOSABLE}")
    assert (answer.status_code, answer.get_json()["disposable"]) == (202, True)
    receipt = api.get(answer.headers["Location"] + "/receipt").get_json()
    assert receipt["verification"]["disposable"] is True
    assert api.create("key-2", account_id="account-2").get_json()["disposable"] is False


def test_disposable_domains_are_refused(api: Api, policy: pytest.MonkeyPatch) -> None:
    policy.setenv("DISPOSABLE_POLICY", "reject")
    assert refusal(api.create(email=f"ada@{DISPOSABLE}")) == ("/email", "disposable_domain")


def test_neither_hint_outlives_the_address(api: Api, policy: pytest.MonkeyPatch) -> None:
    policy.setenv("DISPOSABLE_POLICY", "flag")
    mistyped = api.create("key-1", email="ada@" + "gmial.com").headers["Location"]
    flagged = api.create("key-2", email=f"ada@{DISPOSABLE}", account_id="account-2").headers["Location"]
    for location in (mistyped, flagged):
        assert api.http.post(f"{location}/cancel", headers=api.headers).status_code == 200
    assert retention.anonymise(api.database, retention=0).anonymised == 2
    assert api.get(mistyped).get_json()["suggestion"] is None
    assert api.get(flagged).get_json()["disposable"] is False


def test_reserved_domains_are_taken_from_test_keys_alone_where_they_are_not_allowed(
    database: Database,
) -> None:
    strict = make_api(database, "strict", allow_reserved_domains=False)
    assert refusal(strict.create()) == ("/email", "reserved_domain")
    rehearsal = replace(strict, owner=clients.create(database, "rehearsal", is_test=True))
    assert rehearsal.create().status_code == 202
    assert refusal(rehearsal.create("key-2", email="tempail@example.com")) == ("/email", "test_word")
