"""The SMTP adapter against a server that plays every part we could think of."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from aiosmtpd.controller import Controller

from db.delivery_state import FailureCategory, Outcome
from tasks.deadline import Deadline
from tasks.message import Sender, render
from tasks.providers import deadline_socket, smtp, smtp_idle
from tasks.providers.base import OutgoingMail, Result
from tasks.providers.registry import providers_from_url
from tests.support.smtp_server import (
    Action,
    Certificates,
    SmtpServer,
    both,
    drip,
    endless,
    hang,
    hang_up,
    ok,
    raw,
    reset,
    say,
    unused_port,
)

SHORT = 0.5  # seconds, where the deadline is what is tested
LONGER = 1.5  # where much has to happen before it, on a busy machine
SLACK = 1.5


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


def mail(recipient: str = "anna@example.com", number: int = 1) -> OutgoingMail:
    return render(
        delivery_key=f"dlv_{number:032x}",
        verification_id=f"ver_{number:032x}",
        recipient=recipient,
        token="0123456789ABCDEF",
        purpose="signup",
        locale="en",
        created_at=datetime(2026, 2, 3, tzinfo=UTC),
        expires_at=datetime(2026, 2, 4, tzinfo=UTC),
        public_url="https://verify.example.com",
        mail_from=Sender("Example", "no-reply@sender.example"),
    )


class Client:
    """A provider, and a count of its hand-overs."""

    def __init__(self, url: str) -> None:
        (self.provider,) = providers_from_url(url)
        self.handed_over = 0

    def count(self) -> None:
        self.handed_over += 1

    def send(self, sent: OutgoingMail | None = None, seconds: float = 10.0) -> Result:
        return self.provider.send(sent or mail(), Deadline.after(seconds), self.count)


@contextmanager
def client(url: str) -> Iterator[Client]:
    made = Client(url)
    try:
        yield made
    finally:
        made.provider.close()


@contextmanager
def talk(
    options: str = "", scheme: str = "smtp", user: str = "", **script
) -> Iterator[tuple[SmtpServer, Client]]:
    """A scripted server and a client for it."""
    with (
        SmtpServer(**script) as server,
        client(f"{scheme}://{user}127.0.0.1:{server.port}{options}") as sender,
    ):
        yield server, sender


def told(result: Result) -> tuple[str, str]:
    return result.outcome.value, result.code


BEFORE_HAND_OVER = ["greeting", "ehlo", "mail", "rcpt", "data"]
STALLS: dict[str, Action] = {
    "hangs": hang,
    "drips": drip("250-x "),
    "answers without end": endless(b"250-x\r\n" * 100),
    "sends one line without end": endless(b"250 " + b"x" * 4000),
}


@pytest.mark.parametrize("stall", STALLS)
@pytest.mark.parametrize("phase", BEFORE_HAND_OVER)
def test_whatever_stalls_before_the_hand_over_ends_by_the_deadline(phase: str, stall: str) -> None:
    with talk(**{phase: STALLS[stall]}) as (server, sender):
        about_mail = phase in {"rcpt", "data"}
        seconds = LONGER if about_mail else SHORT
        before = time.monotonic()
        result = sender.send(seconds=seconds)
        assert time.monotonic() - before < seconds + SLACK
        assert sender.handed_over == 0
        assert server.messages == []
    assert result.outcome is (Outcome.TRANSIENT if about_mail else Outcome.REFUSED_US)


@pytest.mark.parametrize("stall", ["answers without end", "sends one line without end"])
@pytest.mark.parametrize("phase", [*BEFORE_HAND_OVER, "end"])
def test_a_reply_without_end_is_given_up_long_before_the_deadline(phase: str, stall: str) -> None:
    """It is the reply's size that ends it, so memory is bounded whatever the deadline and the bandwidth are."""
    with talk(**{phase: STALLS[stall]}) as (_, sender):
        before = time.monotonic()
        result = sender.send(seconds=30)
        assert time.monotonic() - before < 5
    assert result.code == ("reply_unreadable" if phase == "end" else "smtp_protocol_error")


@pytest.mark.parametrize("stall", STALLS)
def test_the_deadline_holds_within_tls_too(certificates: Certificates, stall: str) -> None:
    script = {"tls": certificates.good, "end": STALLS[stall]}
    with talk(f"?tls=starttls&ca={certificates.ca_file}", **script) as (_, sender):
        before = time.monotonic()
        result = sender.send(seconds=LONGER)
        assert time.monotonic() - before < LONGER + SLACK
    assert result.outcome is Outcome.UNKNOWN


def test_a_handshake_that_drips_ends_by_the_deadline(certificates: Certificates) -> None:
    script = {"tls": certificates.good, "starttls": both(say("220 go"), drip("\x16\x03\x03\x40\x00"))}
    with talk(f"?tls=starttls&ca={certificates.ca_file}", **script) as (_, sender):
        before = time.monotonic()
        result = sender.send(seconds=SHORT)
        assert time.monotonic() - before < SHORT + SLACK
    assert (result.outcome, result.pause.kind) == (Outcome.REFUSED_US, "away")


@pytest.mark.parametrize(
    "way", [hang_up, reset, raw(b"\x00\xff\xfe\r\n"), raw(b"25"), say("99 bottles"), say("2500 x")]
)
@pytest.mark.parametrize("phase", BEFORE_HAND_OVER)
def test_whatever_breaks_before_the_hand_over_is_a_certain_non_send(phase: str, way: Action) -> None:
    with talk(**{phase: both(way, hang_up)}) as (server, sender):
        result = sender.send()
        assert sender.handed_over == 0
        assert server.messages == []
    about_mail = phase in {"rcpt", "data"}
    assert result.outcome is (Outcome.TRANSIENT if about_mail else Outcome.REFUSED_US)
    # A reset can even overtake the end of the connect.
    assert result.code in {"connection_lost", "smtp_protocol_error", "connect_failed"}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["250 2.0.0 Ok"], ("accepted", "accepted")),
        (["250-2.0.0 Ok", "250-and more", "250 that is all"], ("accepted", "accepted")),
        (["250-2.0.0 Ok", "550 or not"], ("unknown", "reply_unreadable")),
        (["250_2.0.0 Ok"], ("unknown", "reply_unreadable")),
        (["OK"], ("unknown", "reply_unreadable")),
        ([""], ("unknown", "reply_unreadable")),
        (["999 what"], ("unknown", "reply_unreadable")),
        (["\u0662\u0665\u0660 ok"], ("unknown", "reply_unreadable")),
    ],
)
def test_only_a_whole_and_consistent_reply_to_the_message_counts(
    lines: list[str], expected: tuple[str, str]
) -> None:
    with talk(end=say(*lines)) as (_, sender):
        assert told(sender.send()) == expected


def long_mail() -> OutgoingMail:
    """Longer than what the kernels buffer, so that sending it needs somebody who reads."""
    return replace(mail(), mime=mail().mime + (b"x" * 996 + b"\r\n") * 20_000)


def test_a_message_cut_short_by_the_server_was_not_accepted() -> None:
    def read_a_little(connection) -> None:
        connection.write(b"354 go on\r\n")
        connection.socket.recv(1000)
        reset(connection)

    with talk(data=read_a_little, extensions=[]) as (_, sender):
        assert told(sender.send(long_mail(), seconds=30)) == ("transient", "connection_lost_before_end")
        assert sender.handed_over == 1


def test_a_message_cut_short_by_the_deadline_was_not_accepted_and_nothing_more_of_it_leaves() -> None:
    def stop_reading(connection) -> None:
        connection.write(b"354 go on\r\n")
        cut.wait(30)
        with pytest.raises(OSError):
            while connection.socket.recv(1 << 20):
                pass
        connection.server.log.note("1 saw the reset")
        hang_up(connection)

    cut = threading.Event()
    deadline = Deadline.after(30)

    def soon() -> None:
        """How long it takes to get here depends on the machine, so the deadline's last stretch begins here."""
        object.__setattr__(deadline, "at", Deadline.after(SHORT).at)

    with talk(data=stop_reading, extensions=[]) as (server, sender):
        result = sender.provider.send(long_mail(), deadline, soon)
        cut.set()
        server.wait_until(lambda log: "1 saw the reset" in log.events)
    assert told(result) == ("transient", "connection_lost_before_end")


def test_a_server_that_hangs_up_during_the_hand_over_got_nothing() -> None:
    gone = threading.Event()

    def leave(connection) -> None:
        connection.write(b"354 go on\r\n")
        gone.wait(5)
        hang_up(connection)

    with talk(data=leave) as (server, sender):

        def hand_over() -> None:
            gone.set()
            server.wait_until(lambda log: "1 gone" in log.events)

        result = sender.provider.send(mail(), Deadline.after(10), hand_over)
        assert server.messages == []
    assert told(result) == ("transient", "connection_lost")


# Login and encryption


def test_the_password_travels_only_within_tls_and_opens_the_door(certificates: Certificates) -> None:
    script = {"tls": certificates.good, "users": {"wörd": "pass wörd"}}
    with talk(f"?tls=starttls&ca={certificates.ca_file}", user="w%C3%B6rd:pass%20w%C3%B6rd@", **script) as (
        server,
        sender,
    ):
        assert told(sender.send()) == ("accepted", "accepted")
        assert server.commands.index("secure") < server.commands.index("AUTH")


def test_login_is_understood_where_plain_is_not_offered() -> None:
    with talk(user="u:p@", users={"u": "p"}, mechanisms="CRAM-MD5 LOGIN") as (_, sender):
        assert told(sender.send()) == ("accepted", "accepted")


def test_a_wrong_password_needs_somebody_to_act() -> None:
    with talk(user="u:wrong@", users={"u": "p"}) as (_, sender):
        result = sender.send()
    assert told(result) == ("refused_us", "login_refused")
    assert (result.category, result.pause.kind) == (FailureCategory.CONFIG, "config")


def test_a_server_without_login_gets_no_mail_from_an_account() -> None:
    with talk(user="u:p@") as (server, sender):
        assert told(sender.send()) == ("refused_us", "auth_not_offered")
        assert "MAIL" not in server.commands


def test_mail_does_not_leave_in_the_clear_where_starttls_is_missing(certificates: Certificates) -> None:
    with talk(f"?tls=starttls&ca={certificates.ca_file}") as (server, sender):
        result = sender.send()
        assert "MAIL" not in server.commands
    assert told(result) == ("refused_us", "starttls_not_offered")
    assert result.pause.kind == "config"


def test_a_reply_slipped_in_before_the_handshake_is_not_believed(certificates: Certificates) -> None:
    """Else whoever sits between could write the first encrypted reply in the clear."""
    script = {"tls": certificates.good, "starttls": say("220 go", "250 AUTH PLAIN")}
    with talk(f"?tls=starttls&ca={certificates.ca_file}", user="u:p@", **script) as (server, sender):
        assert told(sender.send()) == ("refused_us", "smtp_protocol_error")
        assert "AUTH" not in server.commands


def test_tls_from_the_first_byte_works_and_verifies(certificates: Certificates) -> None:
    options = f"?ca={certificates.ca_file}"
    with talk(options, "smtps", tls=certificates.good, implicit=True) as (_, sender):
        assert told(sender.send()) == ("accepted", "accepted")
    with talk(options, "smtps", tls=certificates.wrong_host, implicit=True) as (_, sender):
        assert told(sender.send()) == ("refused_us", "tls_certificate_invalid")
    with talk("", "smtps", tls=certificates.good, implicit=True) as (
        _,
        sender,
    ):  # not of the system's authorities
        assert told(sender.send()) == ("refused_us", "tls_certificate_invalid")


def test_a_server_that_does_not_speak_tls_is_away(certificates: Certificates) -> None:
    with talk(f"?ca={certificates.ca_file}", "smtps") as (_, sender):
        result = sender.send()
    assert told(result) == ("refused_us", "tls_failed")
    assert result.pause.kind == "away"


# Connecting


def test_a_closed_port_is_told_at_once() -> None:
    with client(f"smtp://127.0.0.1:{unused_port()}") as sender:
        assert told(sender.send()) == ("refused_us", "connection_refused")


def test_a_name_that_does_not_exist_is_told() -> None:
    with client("smtp://mail.invalid?tls=none") as sender:
        assert told(sender.send()) == ("refused_us", "dns_failed")


def test_a_resolver_that_hangs_costs_the_deadline_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    asked: list[str] = []
    real = socket.getaddrinfo

    def slow(host: str, *rest: object, **named: object):
        if named.get("flags"):
            return real(host, *rest, **named)
        asked.append(host)
        answer.wait(10)
        raise socket.gaierror(socket.EAI_AGAIN, "at last")

    monkeypatch.setattr(deadline_socket.socket, "getaddrinfo", slow)
    with client("smtp://mail.example.com?tls=none") as sender:
        before = time.monotonic()
        assert told(sender.send(seconds=0.2)) == ("refused_us", "dns_failed")
        assert told(sender.send(seconds=0.2)) == ("refused_us", "dns_failed")
        assert time.monotonic() - before < 0.4 + SLACK
    assert asked == ["mail.example.com"]
    answer.set()


def test_an_address_that_swallows_packets_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with SmtpServer() as server, socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        filler = [socket.socket() for _ in range(4)]  # fill its backlog: the next connect gets no answer
        for one in filler:
            one.setblocking(False)
            one.connect_ex(full.getsockname())

        def two(host: str, port: int, flags: int = 0):
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, full.getsockname()), (*kind, ("127.0.0.1", server.port))]

        monkeypatch.setattr(deadline_socket, "_look_up", two)
        with client("smtp://mail.example.com?tls=none") as sender:
            assert told(sender.send(seconds=2)) == ("accepted", "accepted")
        for one in filler:
            one.close()


# What is said


def test_the_machines_own_name_is_not_told() -> None:
    with talk() as (server, sender):
        sender.send()
        assert "1 ehlo sender.example" in server.log.events
    with talk("?helo=out.example.com") as (server, sender):
        sender.send()
        assert "1 ehlo out.example.com" in server.log.events


def test_a_server_without_ehlo_is_served() -> None:
    with talk(ehlo=say("502 5.5.1 what?")) as (server, sender):
        assert told(sender.send()) == ("accepted", "accepted")
        assert "helo" in server.commands


def test_dots_at_line_starts_survive() -> None:
    body = b"Subject: dots\r\n\r\n.\r\n..\r\n.x\r\nx.\r\n.\r\n"
    with talk() as (server, sender):
        sender.send(replace(mail(), mime=body))
        assert server.messages[0].data == body
        assert server.messages[0].wire == b"Subject: dots\r\n\r\n..\r\n...\r\n..x\r\nx.\r\n..\r\n"


def test_an_international_mailbox_needs_a_server_that_knows_them() -> None:
    with talk() as (server, sender):
        result = sender.send(mail("jörg@example.com"))
        assert told(result) == ("permanent", "smtputf8_unsupported")
        assert result.category is FailureCategory.RECIPIENT
        assert "MAIL" not in server.commands
    with talk(extensions=["8BITMIME", "SMTPUTF8"]) as (server, sender):
        assert told(sender.send(mail("jörg@bücher.example"))) == ("accepted", "accepted")
        assert server.messages[0].rcpt_to == "jörg@xn--bcher-kva.example"
        assert any(event.endswith(" SMTPUTF8") for event in server.log.events)


@pytest.mark.parametrize(
    "address", ["a>\r\nRSET\r\n@example.com", "<a@example.com", "", "a\x00@example.com", "\ud800@example.com"]
)
def test_an_address_that_would_break_out_of_its_command_is_not_sent(address: str) -> None:
    with talk() as (server, sender):
        result = sender.send(replace(mail(), recipient=address))
        assert server.connections == 0
    assert told(result) == ("permanent", "malformed_message")


def test_another_implementation_of_the_protocol_gets_the_same_bytes() -> None:
    """The scripted server and the adapter could share a misunderstanding; aiosmtpd was written by others."""
    taken: list[tuple[str | None, list[str], bytes | None]] = []

    class Keep:
        async def handle_DATA(self, _server, _session, envelope) -> str:
            taken.append((envelope.mail_from, envelope.rcpt_tos, envelope.original_content))
            return "250 2.0.0 Ok"

    controller = Controller(Keep(), hostname="127.0.0.1", port=unused_port(), enable_SMTPUTF8=True)
    controller.start()
    try:
        with client(f"smtp://127.0.0.1:{controller.port}") as sender:
            sent = [mail(number=1), mail("jörg@bücher.example", number=2)]
            assert [told(sender.send(one)) for one in sent] == [("accepted", "accepted")] * 2
    finally:
        controller.stop()
    assert taken == [("no-reply@sender.example", [one.recipient], one.mime) for one in sent]


# Connections used again


def test_a_connection_that_dies_at_the_next_mail_is_replaced_once() -> None:
    with talk(mail=[ok, hang_up]) as (server, sender):
        assert told(sender.send()) == told(sender.send()) == ("accepted", "accepted")
        assert (server.connections, len(server.messages), sender.handed_over) == (2, 2, 2)


def test_a_fresh_connection_that_dies_is_not_replaced() -> None:
    with talk(mail=hang_up) as (server, sender):
        assert told(sender.send()) == ("refused_us", "connection_lost")
        assert server.connections == 1


@pytest.mark.parametrize("farewell", ["421 4.4.2 idle too long", "451 4.7.0 too many messages"])
def test_an_old_connection_that_is_refused_is_replaced_once(farewell: str) -> None:
    with talk(mail=[ok, say(farewell)]) as (server, sender):
        assert told(sender.send()) == told(sender.send()) == ("accepted", "accepted")
        assert server.connections == 2


def test_an_old_connection_that_says_nothing_leaves_time_for_a_fresh_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(smtp, "_REUSED_SECONDS", 0.2)
    with talk(mail=[ok, hang]) as (server, sender):
        assert told(sender.send()) == told(sender.send()) == ("accepted", "accepted")
        assert server.connections == 2


def test_an_old_connection_that_is_alive_has_the_whole_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp, "_REUSED_SECONDS", 1.0)
    with talk(end=[ok, say("250 2.0.0 Ok", after=1.5)]) as (server, sender):
        assert told(sender.send()) == told(sender.send()) == ("accepted", "accepted")
        assert server.connections == 1


def test_after_the_hand_over_nothing_is_tried_again() -> None:
    with talk(end=[ok, hang_up]) as (server, sender):
        sender.send()
        assert told(sender.send()) == ("unknown", "reply_lost")
        assert (server.connections, sender.handed_over) == (1, 2)


@pytest.mark.parametrize("script", [{"rcpt": [say("550 5.1.1 no"), ok]}, {"end": [say("554 5.7.1 no"), ok]}])
def test_a_refused_mail_leaves_the_connection_to_the_next_one(script: dict[str, list[Action]]) -> None:
    with talk(**script) as (server, sender):
        assert sender.send().outcome is Outcome.PERMANENT
        assert told(sender.send()) == ("accepted", "accepted")
        assert server.connections == 1
        assert server.commands.count("RSET") == 1


def test_a_connection_that_idled_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with talk() as (server, sender):
        sender.send()
        monkeypatch.setattr(smtp_idle, "_MAX_IDLE_SECONDS", -1.0)
        sender.send()
        assert server.connections == 2
        server.wait_until(lambda log: "1 QUIT" in log.events)


def test_a_connection_is_not_used_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp_idle, "_MAX_MESSAGES", 2)
    with talk() as (server, sender):
        for _ in range(3):
            sender.send()
        assert [message.connection for message in server.messages] == [1, 1, 2]


@pytest.mark.parametrize("farewell", [say("500 no"), hang_up, reset, hang, raw(b"\xff")])
def test_how_the_server_takes_our_leave_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, farewell: Action
) -> None:
    monkeypatch.setattr(smtp_idle, "_MAX_MESSAGES", 1)
    with talk(quit=farewell) as (_, sender):
        assert told(sender.send()) == ("accepted", "accepted")


def test_a_reply_that_comes_while_idle_is_not_taken_for_the_next_one() -> None:
    with talk(end=[say("250 2.0.0 Ok", "250 2.0.0 Ok"), ok], mail=[ok, say("550 5.1.8 no")]) as (
        server,
        sender,
    ):
        assert told(sender.send()) == ("accepted", "accepted")
        assert told(sender.send()) == ("refused_us", "sender_refused")
        assert server.connections == 2


def test_a_reply_that_comes_later_while_idle_is_noticed_before_the_next_mail() -> None:
    def stray(connection) -> None:
        connection.usual()
        connection.pause(0.05)
        connection.write(b"250 2.0.0 Ok\r\n")
        server.log.note("1 strayed")

    with talk(end=[stray, ok]) as (server, sender):
        assert told(sender.send()) == ("accepted", "accepted")
        server.wait_until(lambda log: "1 strayed" in log.events)
        assert told(sender.send()) == ("accepted", "accepted")
        assert [message.connection for message in server.messages] == [1, 2]
        assert sum(event.startswith("1 MAIL") for event in server.log.events) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_leaves_the_parents_connections_alone() -> None:
    with talk() as (server, sender):
        sender.send()
        child = os.fork()
        if child == 0:
            sent = sender.send()
            os._exit(0 if sent.outcome is Outcome.ACCEPTED else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        sender.send()
        assert [message.connection for message in server.messages] == [1, 2, 1]


def test_a_mistake_of_ours_is_a_result_and_logged_without_the_mail(monkeypatch, caplog) -> None:
    def fail(*_: object) -> None:
        raise KeyError("anna@example.com")

    monkeypatch.setattr(smtp, "_mail_rcpt_data", fail)
    with talk() as (_, sender):
        assert told(sender.send()) == ("transient", "adapter_error")
    assert "KeyError" in caplog.text
    assert "anna" not in caplog.text


def test_a_mistake_of_ours_after_the_hand_over_leaves_the_outcome_unknown(monkeypatch, caplog) -> None:
    def fail(*_: object) -> None:
        raise KeyError("anna@example.com")

    monkeypatch.setattr(smtp.SmtpProvider, "_not_begun", fail)
    with talk() as (server, sender):
        assert told(sender.send()) == ("unknown", "adapter_error")
        assert server.wait_until_ended() == "reset"
    assert "anna" not in caplog.text
