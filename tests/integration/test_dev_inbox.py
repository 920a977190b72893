"""The dev inbox over real SMTP and HTTP."""

from __future__ import annotations

import json
import signal
import smtplib
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

import pytest

from dev.inbox import LARGEST_MAIL, Inbox
from dev.processes import DevError, wait_until


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as made:
        yield made


def send(inbox: Inbox, *to: str, delivery_id: str = "dlv_1", text: str = "Hello") -> None:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = (
        "Confirm",
        "verify@countersign.example",
        ", ".join(to),
    )
    message["X-Countersign-Delivery"], message["Message-ID"] = delivery_id, f"<{delivery_id}@x.example>"
    message.set_content(text)
    message.add_alternative(f"<p>{text}</p><script>alert(1)</script>", subtype="html")
    with smtplib.SMTP("127.0.0.1", inbox.smtp_port, timeout=5) as client:
        client.send_message(message)


def ask(inbox: Inbox, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(inbox.http_url + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def ask_json(inbox: Inbox, path: str, method: str = "GET") -> Any:
    return json.loads(ask(inbox, path, method)[2])


def test_a_mail_comes_out_as_it_went_in(inbox: Inbox) -> None:
    send(inbox, "ada@example.com", text="Follow http://127.0.0.1:5000/verify#ABCD-EFGH-JKMN-PQRS")
    (mail,) = ask_json(inbox, "/messages?to=ada@example.com&delivery_id=dlv_1")
    assert mail == inbox.messages()[0]
    assert list(mail) == [
        *("id", "delivery_id", "message_id", "to", "subject", "received_at"),
        *("text", "html", "raw"),
    ]
    assert (mail["to"], mail["subject"], mail["delivery_id"]) == ("ada@example.com", "Confirm", "dlv_1")
    assert "/verify#ABCD-EFGH-JKMN-PQRS" in mail["text"]
    assert mail["raw"].startswith("Subject: Confirm\r\n")


def test_filters_and_deletes_by_recipient(inbox: Inbox) -> None:
    send(inbox, "ada@example.com", "bob@example.com")
    send(inbox, "ada+tag@example.com", delivery_id="dlv_2")
    assert [mail["to"] for mail in ask_json(inbox, "/messages?to=ada%2Btag@example.com")] == [
        "ada+tag@example.com"
    ]
    assert len(ask_json(inbox, "/messages?delivery_id=dlv_1")) == 2
    assert ask_json(inbox, "/messages?to=ada@example.com", "DELETE") == {"deleted": 1}
    assert len(ask_json(inbox, "/messages?brief=1")) == 2
    assert ask_json(inbox, "/messages", "DELETE") == {"deleted": 2}
    assert ask_json(inbox, "/messages") == []


def test_the_page_for_people_loads_nothing_from_elsewhere(inbox: Inbox) -> None:
    status, headers, body = ask(inbox, "/")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    page = body.decode()
    assert "prefers-color-scheme: dark" in page
    sources = [piece for piece in page.split('"') if piece.startswith(("http:", "https:", "//"))]
    assert sources == []


def test_a_mail_s_html_is_shown_without_any_power(inbox: Inbox) -> None:
    send(inbox, "ada@example.com")
    _, headers, body = ask(inbox, f"/messages/{inbox.messages()[0]['id']}/html")
    policy = headers["Content-Security-Policy"]
    assert "sandbox" in policy
    assert "allow-scripts" not in policy
    assert "allow-same-origin" not in policy
    assert body.startswith(b'<base target="_blank">')


@pytest.mark.parametrize("path", ["/nothing", "/messages/99", "/messages/99/html", "/messages/x", "/..%2f"])
def test_what_is_not_there_is_404(path: str, inbox: Inbox) -> None:
    assert ask(inbox, path)[0] == 404


def test_a_huge_mail_is_refused_and_the_next_one_taken(inbox: Inbox) -> None:
    with smtplib.SMTP("127.0.0.1", inbox.smtp_port, timeout=10) as client:
        client.ehlo()
        client.docmd("MAIL FROM:<a@example.com>")  # without SIZE, so that only the bytes tell
        client.docmd("RCPT TO:<ada@example.com>")
        code, _ = client.data(b"x" * 70 + b"\r\n" + (b"y" * 998 + b"\r\n") * (LARGEST_MAIL // 1000 + 10))
        assert code == 552
    send(inbox, "ada@example.com")
    assert len(inbox.messages()) == 1


def test_a_client_that_goes_away_or_talks_nonsense_harms_nobody(inbox: Inbox) -> None:
    for noise in (
        b"",
        b"\xff\xfe\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"EHLO x\r\nMAIL FROM:<\0>\r\n",
        b"DATA\r\n",
    ):
        for port in (inbox.smtp_port, inbox.http_port):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
                peer.sendall(noise)
    send(inbox, "ada@example.com")
    assert len(ask_json(inbox, "/messages")) == 1


def test_many_senders_at_once_lose_nothing(inbox: Inbox) -> None:
    senders = [
        threading.Thread(target=send, args=(inbox, f"user{number}@example.com")) for number in range(30)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len({mail["to"] for mail in inbox.wait_for(30)}) == 30


def test_it_stops_with_a_session_open_and_starts_again_on_its_ports() -> None:
    inbox = Inbox().start()
    port = inbox.smtp_port
    with smtplib.SMTP("127.0.0.1", port, timeout=5):
        inbox.stop()
    inbox.stop()  # twice is right
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    with inbox:
        assert inbox.smtp_port == port
        send(inbox, "ada@example.com")


def test_a_taken_port_is_told(inbox: Inbox) -> None:
    with pytest.raises(DevError, match=f"cannot listen on 127.0.0.1:{inbox.http_port} \\(HTTP\\)"):
        Inbox(http_port=inbox.http_port).start()


def test_as_a_program_it_says_where_it_is_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "dev.inbox", "--smtp-port", "0", "--http-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        line = process.stdout.readline()
        assert line.startswith("inbox at http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: process.poll() is not None, seconds=5)
    assert process.returncode == 0
