"""The small decisions of `make run` and `make demo`."""

from __future__ import annotations

import json
import os
import pty
import shlex
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

import dev.run
from app import examples
from dev.demo import TOKEN
from dev.processes import DevError
from dev.run import REQUEST, banner, curl, poll_terminal, usable_key, watch, works
from dev.stack import EXAMPLE_RETURN_URL, ROOT, Stack


class QuietStack:
    """Nothing ever dies in it."""

    def look_for_deaths(self) -> None:
        return


def test_a_lost_terminal_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        stop = threading.Event()
        watching = threading.Thread(target=watch, args=(cast(Stack, QuietStack()), stop, poll_terminal()))
        watching.start()
        assert watching.is_alive()
        os.close(ours)
        watching.join(5)
        ended = not watching.is_alive()
        stop.set()
        assert ended


def test_the_request_to_paste_is_one_shell_command() -> None:
    words = shlex.split(curl("http://127.0.0.1:5000", "key"))
    assert words[:4] == ["curl", "-sSw", "\\n", "http://127.0.0.1:5000/v1/verifications"]
    assert "Authorization: Bearer key" in words
    assert set(json.loads(words[-1])) == {"account_id", "email"}


def test_each_request_to_paste_is_a_new_one() -> None:
    assert curl("http://127.0.0.1:5000", "key") != curl("http://127.0.0.1:5000", "key")
    assert "welcome-42" not in curl("http://127.0.0.1:5000", "key")


def test_the_client_of_make_run_may_send_the_examples_of_the_description() -> None:
    assert EXAMPLE_RETURN_URL == examples.RETURN_URL


def test_the_readme_has_the_same_request() -> None:
    assert f"```sh\n{REQUEST}\n```" in (ROOT / "README.md").read_text()


URLS = {
    "API_URL": "http://127.0.0.1:5000",
    "API_KEY": "key",
    "TEST_API_KEY": "test-key",
    "INBOX_URL": "http://127.0.0.1:8025",
    "FLOWER_URL": "http://127.0.0.1:5555",
    "OPS_URL": "http://127.0.0.1:5000/ops",
    "DATABASE_URL": "postgresql://postgres:geheim@127.0.0.1:5433/countersign",
    "REDIS_URL": "redis://:geheim@127.0.0.1:6380/0",
}


def shown(mail_url: str = "smtp://127.0.0.1:1025", *, has_ops: bool = False, **urls: str) -> str:
    return "\n".join(banner({**URLS, **urls}, mail_url=mail_url, has_ops=has_ops))


def test_the_banner_names_the_ops_pages_only_when_there_are_some() -> None:
    assert "ops" not in shown().casefold()
    assert f"ops pages   {URLS['OPS_URL']}" in shown(has_ops=True)
    assert "OPS_PASSWORD" in shown(has_ops=True)


def test_the_banner_shows_no_password() -> None:
    said = shown(mail_url="smtp://u:geheim@mail.example:587", INBOX_URL="")
    assert "geheim" not in said
    assert "postgresql://postgres:***@127.0.0.1:5433/countersign" in said


def test_with_a_mail_server_given_no_inbox_is_promised() -> None:
    assert "the mail appears in the inbox" in shown()
    said = shown(mail_url="smtp://u:p@mail.example:587", INBOX_URL="")
    assert "inbox" not in said
    assert "mail to     smtp://mail.example:587 (your MAIL_URL)" in said
    assert "the mail goes out to smtp://mail.example:587" in said


class KeyStack:
    """Its API knows the keys it made for the database in use."""

    def __init__(self, database_url: str) -> None:
        self.urls = {"API_URL": "http://api", "DATABASE_URL": database_url}
        self.servers: list[Any] = []
        self.good: set[str] = set()
        self.disabled = False

    def create_key(self, _name: str, *, is_test: bool) -> str:
        key = f"{'test' if is_test else 'live'} {self.urls['DATABASE_URL']} {len(self.good)}"
        if not self.disabled:
            self.good.add(key)
        return key


def test_each_database_keeps_its_own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = KeyStack("postgresql://u:old@host/one"), KeyStack("postgresql://u@host/two")
    monkeypatch.setattr(dev.run, "works", lambda _, key: key in one.good | two.good)

    def key(stack: KeyStack, **asked: bool) -> str:
        return usable_key(cast(Stack, stack), tmp_path, **asked)

    first = key(one)
    for_tests = key(one, is_test=True)
    assert for_tests.startswith("test "), "of a client of its own"
    assert key(one, is_test=True) == for_tests
    key(two)
    one.urls["DATABASE_URL"] = "postgresql://u:new@host/one"  # another password, the same database
    assert key(one) == first
    kept = (tmp_path / "keys").read_text()
    for each in (first, for_tests, key(two)):
        kept = kept.replace(each, "")
    assert "host" not in kept
    one.good.clear()  # a database made anew
    assert key(one) != first
    one.good.clear()
    one.disabled = True
    with pytest.raises(DevError, match="make-run: was that client disabled"):
        key(one)


@pytest.mark.parametrize(("status", "good"), [(404, True), (200, True), (401, False), (403, False)])
def test_a_key_is_kept_while_the_api_does_not_refuse_it(status: int, good: bool) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        assert works(f"http://127.0.0.1:{server.server_port}", "key") is good
        answering.join()


def test_a_silent_api_proves_nothing_about_a_key() -> None:
    assert not works("http://127.0.0.1:9", "key")


def test_the_token_is_found_in_the_mail_s_link() -> None:
    text = "Confirm: http://127.0.0.1:5000/verify#0ABC-DEFG-HJKM-NPQR\n\nBye"
    assert TOKEN.findall(text) == ["0ABC-DEFG-HJKM-NPQR"]
    assert TOKEN.findall("http://127.0.0.1:5000/verify#ABC") == []
