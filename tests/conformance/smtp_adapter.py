"""How an SMTP server behaves, for the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.providers.base import Provider
from tasks.providers.registry import providers_from_url
from tests.conformance.behaviour import Adapter, Behaviour, Delivered
from tests.support.smtp_server import (
    Action,
    Certificates,
    SmtpServer,
    accept_silently,
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

_SCRIPTS: dict[Behaviour, dict[str, Action]] = {
    Behaviour.ACCEPT: {},
    Behaviour.REFUSE_RECIPIENT: {"rcpt": say("550 5.1.1 <anna@example.com>: no such user")},
    Behaviour.REFUSE_CONTENT: {"end": say("554 5.7.1 spam")},
    Behaviour.NOT_NOW: {"rcpt": say("451 4.7.1 greylisted")},
    Behaviour.NOT_NOW_AFTER_READING: {"end": say("451 4.3.0 try again")},
    Behaviour.REFUSE_CREDENTIALS: {"auth": say("535 5.7.8 wrong password")},
    Behaviour.BUSY: {"greeting": say("421 4.3.2 too busy")},
    Behaviour.SILENT: {"greeting": hang},
    Behaviour.DRIP: {"greeting": drip("220-welcome ")},
    Behaviour.ENDLESS: {"greeting": endless(b"220-and another thing\r\n" * 100)},
    Behaviour.TAKE_AND_HANG: {"end": accept_silently(hang)},
    Behaviour.TAKE_AND_DRIP: {"end": accept_silently(drip("250 "))},
    Behaviour.TAKE_AND_RESET: {"end": accept_silently(reset)},
    Behaviour.TAKE_AND_HANG_UP: {"end": accept_silently(hang_up)},
    Behaviour.TAKE_AND_TRUNCATE: {"end": accept_silently(both(raw(b"250 2.0.0 Ok: que"), hang_up))},
    Behaviour.TAKE_AND_BABBLE: {"end": accept_silently(raw(b"\x00\xff\xfe250 \x80\r\n"))},
    Behaviour.TAKE_AND_NEVER_END: {"end": accept_silently(endless(b"250-more\r\n" * 1000))},
    Behaviour.ACCEPT_EARLY: {"data": say("354 go on", "250 2.0.0 Ok: queued as 1234567")},
    Behaviour.HANG_UP_WHILE_IDLE: {"end": both(ok, hang_up)},
}
_CERTIFICATES = {
    Behaviour.WRONG_HOST: "wrong_host",
    Behaviour.SELF_SIGNED: "stranger",
    Behaviour.EXPIRED: "expired",
}


class SmtpFake:
    """The scripted server and the adapter's view of it."""

    def __init__(self, server: SmtpServer, provider: Provider) -> None:
        self._server = server
        self.provider = provider

    @property
    def delivered(self) -> list[Delivered]:
        return [Delivered(taken.mail_from, taken.rcpt_to, taken.data) for taken in self._server.messages]

    @property
    def connections(self) -> int:
        return self._server.connections

    def got_any_of_the_message(self) -> bool:
        return any(event.endswith(" bytes") for event in self._server.log.events)

    def wait_until_cut(self) -> str:
        return self._server.wait_until_ended()


@contextmanager
def _start(folder: Path, *behaviours: Behaviour) -> Iterator[SmtpFake]:
    certificates = Certificates.make(folder)
    last = behaviours[-1]
    tls = getattr(certificates, _CERTIFICATES.get(last, "good"))
    with SmtpServer(tls=tls, users={"user": "secret"}, **_script(behaviours)) as server:
        port = unused_port() if last is Behaviour.UNREACHABLE else server.port
        (provider,) = providers_from_url(
            f"smtp://user:secret@127.0.0.1:{port}?tls=starttls&ca={certificates.ca_file}"
        )
        try:
            yield SmtpFake(server, provider)
        finally:
            provider.close()


def _script(behaviours: tuple[Behaviour, ...]) -> dict[str, Action | list[Action]]:
    """One behaviour stays for ever; of several, each is for one passage of its phase, and then all is as usual."""
    if len(behaviours) == 1:
        return {**_SCRIPTS.get(behaviours[0], {})}
    phases = {phase for behaviour in behaviours for phase in _SCRIPTS[behaviour]}
    return {phase: [_SCRIPTS[behaviour].get(phase, ok) for behaviour in behaviours] for phase in phases}


SMTP = Adapter("smtp", _start)
