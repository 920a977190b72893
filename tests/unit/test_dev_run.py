"""The small decisions of `make run` and `make demo`."""

from __future__ import annotations

import os
import pty
import shlex
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast

import pytest

from dev.demo import TOKEN
from dev.run import curl, poll_terminal, watch, works
from dev.stack import Stack


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
    assert words[:4] == ["curl", "-sw", "\\n", "http://127.0.0.1:5000/v1/verifications"]
    assert "Authorization: Bearer key" in words
    assert words[-1] == '{"account_id": "account-1", "email": "ada@example.com"}'


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
