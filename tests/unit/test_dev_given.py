"""`DATABASE_URL`, `REDIS_URL` and `MAIL_URL` given to `make run`: refused in one sentence, shown without passwords."""

from __future__ import annotations

import pytest

from dev.given import check_given, mail_servers, masked
from dev.inbox import Inbox
from dev.processes import DevError, free_port


@pytest.mark.parametrize(
    ("name", "url", "words"),
    [
        ("DATABASE_URL", "mysql://u:geheim@127.0.0.1/x", "must start with postgres:// or postgresql://"),
        ("DATABASE_URL", "postgresql://u:geheim@127.0.0.1:PORT/x", "Connection refused"),
        ("DATABASE_URL", "postgresql://u:gehe%im@127.0.0.1/x", "%25"),
        ("DATABASE_URL", "postgresql://u:geheim@[127.0.0.1/x", "DATABASE_URL"),
        ("REDIS_URL", "http://:geheim@127.0.0.1/", "cannot be read"),
        ("REDIS_URL", "redis://:geheim@127.0.0.1:PORT/0", "Connection refused"),
        ("REDIS_URL", "rediss://:geheim@127.0.0.1:PORT/0", "Connection refused"),
        ("MAIL_URL", "smtp://u:geheim@127.0.0.1:PORT", "Connection refused"),
        ("MAIL_URL", "pigeon://u:geheim@127.0.0.1", "no such provider"),
        ("MAIL_URL", "geheim", "not of the form"),
    ],
)
def test_what_cannot_serve_is_one_sentence_without_the_password(name: str, url: str, words: str) -> None:
    with pytest.raises(DevError, match=words) as caught:
        check_given({name: url.replace("PORT", str(free_port()))})
    said = str(caught.value)
    assert name in said
    assert "\n" not in said
    assert "gehe" not in said


def test_an_empty_variable_is_not_given() -> None:
    check_given({"DATABASE_URL": "", "REDIS_URL": ""})


def test_one_mail_server_that_answers_is_enough() -> None:
    with Inbox() as inbox:
        check_given({"MAIL_URL": f"smtp://127.0.0.1:{free_port()}?label=a,{inbox.smtp_url}?label=b"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@host:1/db", "postgresql://u:***@host:1/db"),
        ("postgresql://u:p@q@host/db", "postgresql://u:***@host/db"),
        (
            "postgresql://u@host/db?sslmode=require&password=p",
            "postgresql://u@host/db?sslmode=require&password=***",
        ),
        ("redis://:p@127.0.0.1:6380/0", "redis://:***@127.0.0.1:6380/0"),
        ("redis://127.0.0.1:6380/0", "redis://127.0.0.1:6380/0"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_mail_servers_are_shown_by_their_places() -> None:
    assert mail_servers("smtp://u:p@one.example:587?tls=starttls, smtps://u:p@two.example") == (
        "smtp://one.example:587, smtps://two.example"
    )
