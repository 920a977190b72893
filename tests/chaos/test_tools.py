"""The tools of chaos do what they say: links, wrong clocks, the search in logs, the time to recover."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos import clocks, recovery, secrets_in_logs
from tests.chaos.book import Asked, Book, Call
from tests.chaos.mailbox import Mail
from tests.chaos.proxy import Link, Network
from tests.chaos.recovery import Injected
from tests.chaos.schedule import Fault

SILENCE = 0.3  # seconds without an answer: long for loopback


class Echo:
    """Answers what it hears, and keeps it."""

    def __init__(self) -> None:
        self.heard = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(ConnectionError):
            while data := connection.recv(100):
                self.heard += data
                connection.sendall(data)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture
def echo() -> Echo:
    return Echo()


def connect(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=5)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE)
    try:
        return not connection.recv(100)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)


def test_a_link_passes_on(network: Network, echo: Echo) -> None:
    with connect(network.link(echo.port)) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


@pytest.mark.parametrize("way", ["out", "back"])
def test_a_held_direction_is_silent_until_it_heals(network: Network, echo: Echo, way: str) -> None:
    link = network.link(echo.port)
    with connect(link) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        link.hold(out=way == "out", back=way == "back")
        client.sendall(b"b")
        assert is_silent(client)
        assert (b"b" in echo.heard) is (way == "back")
        link.heal()
        assert client.recv(1) == b"b"


def test_what_a_dropping_link_held_never_arrives(network: Network, echo: Echo) -> None:
    link = network.link(echo.port, drops=True)
    with connect(link) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        link.hold()
        client.sendall(b"b")
        assert is_silent(client)
        link.heal()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.heard == b"a"


def test_a_cut_is_a_reset(network: Network, echo: Echo) -> None:
    link = network.link(echo.port)
    with connect(link) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        link.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_refusing_link_listens_again_on_its_port(network: Network, echo: Echo) -> None:
    link = network.link(echo.port)
    link.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(link)
    link.heal()
    connect(link).close()


def test_a_reset_by_the_client_reaches_the_server(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = connect(network.link(listener.getsockname()[1]))
        server, _ = listener.accept()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        server.settimeout(5)
        with pytest.raises(ConnectionResetError):
            server.recv(1)
        server.close()


@pytest.mark.parametrize("hours", [3.0, -26.0])
def test_a_wrong_clock_is_wrong_on_the_wall_only(tmp_path: Path, hours: float) -> None:
    code = """
import threading, time
began = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
threading.Event().wait(0.05)
print(time.time(), began[0], time.monotonic() - began[0])
"""
    environment = {**os.environ, **clocks.off_by(hours, tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, timeout=20, check=True
        ).stdout
        for env in (dict(os.environ), environment)
    ]
    (wall, monotonic, _), (wrong, same, waited) = (map(float, text.split()) for text in said)
    assert wrong - wall == pytest.approx(hours * 3600, abs=10)
    assert same - monotonic == pytest.approx(0, abs=10)
    assert waited == pytest.approx(0.05, abs=1)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("nothing of note", None),
        ("token ABCD-EFGH-JKMN-PQRS used", "a token"),
        ('{"token": "abcdefghjkmnpqrs"}', "a token"),
        ("no token but alike: ABCD-EFGH-JKMN-PQRT", None),
        ("to chaosperson-12@host1.example", "an address"),
        ("Bearer cs_live_key", "a key or a password"),
        ("for key-1", "an idempotency key"),
    ],
)
def test_what_a_log_must_not_show_is_found(line: str, what: str | None) -> None:
    book = Book()
    book.ask(Asked("key-1", "a", "chaosperson-12@host1.example", "signup"))
    mails = [Mail("dlv_1", "ABCD-EFGH-JKMN-PQRS", 0.0, "mail1")]
    found = secrets_in_logs.search({"web1": line}, mails, book, ["cs_live_key"])
    assert [breach.text for breach in found] == ([f"web1 wrote {what}"] if what else [])


def test_recovery_is_counted_from_a_fault_to_the_first_success_that_was_asked_for_after_it() -> None:
    book = Book()
    for asked, answered, status in ((9.0, 12.5, 202), (10.5, 11.0, 503), (11.0, 13.0, 202)):
        book.note(Call("create", "key", asked, answered, status))
    (measured,) = recovery.measure(
        [Injected(Fault(0.0, "pause", "web1"), 10.0, 10.2)], book, [Mail("dlv_1", "T", 14.5, "mail1")]
    )
    assert (measured.create, measured.mail, measured.failed) == (pytest.approx(2.8), pytest.approx(4.3), 1)


def test_a_book_knows_what_is_not_answered() -> None:
    book = Book()
    for key in ("answered", "failed", "silent"):
        book.ask(Asked(key, "a", "", "signup"))
    book.note(Call("create", "answered", 0, 1, 202, answer={"verification_id": "ver_1"}))
    book.note(Call("create", "failed", 0, 1, 503))
    book.note(Call("create", "silent", 0, 1, 0))
    assert book.unanswered() == ["failed", "silent"]
    assert book.answers() == {"answered": {"ver_1"}}
