"""MAIL_URL: what is understood, and how clearly the rest is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.providers.registry import providers_from_url
from tests.support.smtp_server import Certificates


def server(url: str):
    (provider,) = providers_from_url(url)
    return provider._server


def test_several_accounts_keep_their_order_and_have_names() -> None:
    providers = providers_from_url(
        "smtps://u:p@mail.example.com, smtp://u:p@relay.example.net:2525?label=second,smtp://[::1]:25"
    )
    assert [provider.name for provider in providers] == [
        "smtp/mail.example.com",
        "smtp/second",
        "smtp/--1",
    ]
    assert {(provider.replay_window, provider.can_look_up) for provider in providers} == {(0.0, False)}


@pytest.mark.parametrize(
    ("url", "security", "port"),
    [
        ("smtp://mail.example.com", "starttls", 587),
        ("smtp://mail.example.com:25", "starttls", 25),
        ("SMTP://Mail.Example.com", "starttls", 587),
        ("smtps://mail.example.com", "implicit", 465),
        ("smtp://127.0.0.1:1025", "none", 1025),
        ("smtp://localhost", "none", 25),
        ("smtp://[::1]:1025", "none", 1025),
        ("smtp://127.0.0.1:1025?tls=starttls", "starttls", 1025),
        ("smtp://mail.example.com?tls=none", "none", 25),
        ("smtp://localhost.example.com", "starttls", 587),
    ],
)
def test_encryption_is_required_except_on_this_machine_or_on_demand(
    url: str, security: str, port: int
) -> None:
    assert (server(url).security, server(url).port) == (security, port)
    assert (server(url).tls is None) == (security == "none")


def test_user_and_password_may_hold_anything_when_escaped() -> None:
    taken = server("smtp://us%40er:p%2Ca%3As%2Fs%20w%C3%B6rd@mail.example.com")
    assert (taken.user, taken.password) == ("us@er", "p,a:s/s wörd")


def test_a_comma_in_a_password_does_not_end_the_entry() -> None:
    assert server("smtp://user:one,two@mail.example.com").password == "one,two"


def test_a_private_authority_can_be_trusted(tmp_path: Path) -> None:
    ca_file = Certificates.make(tmp_path).ca_file
    (authority,) = server(f"smtps://mail.example.com?ca={ca_file}").tls.get_ca_certs()
    assert "trustme" in str(authority["subject"])


SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        f"mail.example.com:{SECRET}",
        f"gopher://user:{SECRET}@mail.example.com",
        f"smtp://user:{SECRET}@",
        f"smtp://user:x/{SECRET}@mail.example.com",
        f"smtp://user:x#{SECRET}@mail.example.com",
        f"smtp://user:x?{SECRET}@mail.example.com",
        f"smtp://user:{SECRET}@mail.example.com:port",
        f"smtp://user:{SECRET}@mail.example.com:99999",
        f"smtp://user:{SECRET}@[::1",
        f"smtp://user:{SECRET}@mail.exämple.com",
        f"smtp://user:{SECRET}@mail.example.com/path",
        f"smtp://user:{SECRET} @mail.example.com",
        f"smtp://user:{SECRET}\r\n@mail.example.com",
        f"smtp://:{SECRET}@mail.example.com",
        f"smtp://{SECRET}@mail.example.com",
        f"smtp://user:{SECRET}%00@mail.example.com",
        f"smtp://user:{SECRET}@mail.example.com?tls=maybe",
        f"smtp://user:{SECRET}@mail.example.com?nonsense={SECRET}",
        f"smtp://user:{SECRET}@mail.example.com?tls=none&tls=none",
        f"smtp://user:{SECRET}@mail.example.com?tls=none&ca=/nowhere",
        f"smtp://user:{SECRET}@mail.example.com?ca=/nowhere/at/all.pem",
        f"smtp://user:{SECRET}@mail.example.com?helo=a%20b",
        f"smtp://user:{SECRET}@mail.example.com?label=b%40d",
        f"smtp://user:{SECRET}@mail.example.com?label={'long' * 20}",
        f"smtps://user:{SECRET}@mail.example.com?tls=starttls",
        f"smtp://user:{SECRET}@mail.example.com,smtps://user:{SECRET}@mail.example.com",
    ],
)
def test_whatever_is_wrong_is_told_in_a_sentence_without_the_password(url: str) -> None:
    with pytest.raises(ValueError, match="MAIL_URL") as refused:
        providers_from_url(url)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_no_repr_shows_the_password() -> None:
    (provider,) = providers_from_url(f"smtp://user:{SECRET}@mail.example.com")
    assert SECRET not in repr(provider) + repr(provider._server) + str(vars(provider))
