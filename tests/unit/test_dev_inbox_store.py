"""What the dev inbox makes of mails, hostile ones too."""

from __future__ import annotations

import json
import threading
import time

import pytest

from dev.inbox_http import open_links_elsewhere
from dev.inbox_store import HEADER_CHARS, Store, bodies, clean

NESTED = b"".join(
    b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (depth, depth) for depth in range(3000)
)
HOSTILE = {
    "empty": b"",
    "no header end": b"Subject: x",
    "only NULs": b"\0" * 1000,
    "not UTF-8": b"Subject: \xff\xfe\r\n\r\n\xff\xfe",
    "unknown charset": b"Content-Type: text/plain; charset=klingon\r\n\r\nnuqneH",
    "charset with NUL": b"Content-Type: text/plain; charset=a\0b\r\n\r\nx",
    "broken base64": b"Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\n%%%=",
    "broken encoded word": b"Subject: =?utf-8?b?////?= =?x?q?=ZZ?=\r\n\r\n",
    "unclosed boundary": b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n",
    "multipart without boundary": b"Content-Type: multipart/mixed\r\n\r\nx",
    "nested too deep": NESTED,
    "lone surrogate": b"Content-Type: text/plain; charset=utf-7\r\n\r\n+2AA-",
    "decoder that is no text": b"Content-Type: text/plain; charset=rot13\r\n\r\nuryyb",
    "long header": b"Subject: " + b"x" * 500_000 + b"\r\n\r\nx",
    "header injection": b"X-Countersign-Delivery: a\r\n b\r\n\r\n",
}


def store(**limits: int) -> Store:
    return Store(**{"max_messages": 10, "max_bytes": 1_000_000, **limits})


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_mail_is_kept_and_becomes_plain_json(name: str) -> None:
    kept = store()
    kept.add(["ada@example.com"], HOSTILE[name])
    (mail,) = (each.full() for each in kept.find())
    json.dumps(mail).encode("ascii")
    "".join(mail.values()).encode("utf-8")  # no lone surrogate anywhere
    assert mail["to"] == "ada@example.com"
    assert len(mail["subject"]) <= HEADER_CHARS
    assert "\n" not in mail["delivery_id"]


def test_the_parts_are_told_apart_and_decoded() -> None:
    raw = (
        b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <dlv_1@x.example>\r\n"
        b"X-Countersign-Delivery: dlv_1\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n"
        b"--b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
        b"Gr=C3=BC=C3=9Fe\r\n--b\r\nContent-Type: text/html; charset=iso-8859-1\r\n\r\n<p>\xfc</p>\r\n--b--\r\n"
    )
    kept = store()
    kept.add(["ada@example.com"], raw)
    mail = kept.find()[0].full()
    assert (mail["subject"], mail["message_id"], mail["delivery_id"]) == (
        "Grüße",
        "<dlv_1@x.example>",
        "dlv_1",
    )
    assert (mail["text"].strip(), mail["html"].strip()) == ("Grüße", "<p>ü</p>")


def test_an_attachment_is_not_the_text() -> None:
    raw = (
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n"
        b"Content-Disposition: attachment; filename=a.txt\r\n\r\nattached\r\n--b\r\nContent-Type: text/plain\r\n\r\n"
        b"the text\r\n--b--\r\n"
    )
    assert bodies(raw)[0].strip() == "the text"


def test_memory_is_bounded_by_number_and_by_size() -> None:
    few = store(max_messages=3)
    for number in range(10):
        few.add([f"a{number}@example.com"], b"x")
    assert [mail.id for mail in few.find()] == ["8", "9", "10"]
    small = store(max_bytes=250)
    for _ in range(10):
        small.add(["ada@example.com"], b"x" * 100)
    assert [mail.id for mail in small.find()] == ["9", "10"]


def test_mails_are_found_by_recipient_without_case_and_by_delivery() -> None:
    kept = store()
    kept.add(["Ada@Example.com", "bob@example.com"], b"X-Countersign-Delivery: dlv_1\r\n\r\n")
    kept.add(["ada@example.com"], b"X-Countersign-Delivery: dlv_2\r\n\r\n")
    assert [mail.id for mail in kept.find("ada@example.COM")] == ["1", "3"]
    assert [mail.id for mail in kept.find(delivery_id="dlv_1")] == ["1", "2"]
    assert [mail.id for mail in kept.find("ada@example.com", "dlv_2")] == ["3"]
    assert kept.delete("ADA@example.com") == 2
    assert [mail.id for mail in kept.find()] == ["2"]
    assert kept.delete() == 1


def test_waiting_ends_with_the_mail_or_with_the_time() -> None:
    kept = store()
    sender = threading.Thread(target=kept.add, args=(["ada@example.com"], b"x"))
    sender.start()
    assert len(kept.wait(1, "ada@example.com", None, 5)) == 1
    sender.join()
    began = time.monotonic()
    assert kept.wait(2, None, None, 0.05) == kept.find()
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<html><HEAD lang=en><title>", '<html><HEAD lang=en><base target="_blank"><title>'),
        ("<p>x", '<base target="_blank"><p>x'),
    ],
)
def test_links_of_a_mail_open_outside_its_frame(html: str, expected: str) -> None:
    assert open_links_elsewhere(html) == expected


def test_text_is_always_text() -> None:
    assert clean(b"a\xffb") == "a\ufffdb"
    assert clean("a\ud800b") == "a?b"
