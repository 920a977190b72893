"""What a provider's server may do, said without its protocol. Each adapter's entry says how its server does it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tasks.providers.base import Provider


class Behaviour(StrEnum):
    """One way to treat a mail."""

    ACCEPT = "accept"
    REFUSE_RECIPIENT = "refuse the recipient"
    REFUSE_CONTENT = "refuse what the mail says"
    NOT_NOW = "refuse this mail for now"
    NOT_NOW_AFTER_READING = "read the mail, then refuse it for now"
    REFUSE_CREDENTIALS = "refuse our credentials"
    BUSY = "refuse everybody for now"
    UNREACHABLE = "be unreachable"
    SILENT = "take the connection and say nothing"
    DRIP = "answer a byte at a time, before the mail is handed over"
    ENDLESS = "answer without end, before the mail is handed over"
    TAKE_AND_HANG = "take the mail and never answer"
    TAKE_AND_DRIP = "take the mail and answer a byte at a time, without end"
    TAKE_AND_RESET = "take the mail and reset the connection"
    TAKE_AND_HANG_UP = "take the mail and close the connection"
    TAKE_AND_TRUNCATE = "take the mail and answer half a sentence"
    TAKE_AND_BABBLE = "take the mail and answer binary garbage"
    TAKE_AND_NEVER_END = "take the mail and answer without end"
    ACCEPT_EARLY = "say that the mail is accepted before it has it"
    HANG_UP_WHILE_IDLE = "close the connection after a mail, unnoticed"
    WRONG_HOST = "show a certificate for another host"
    SELF_SIGNED = "show a certificate of an unknown authority"
    EXPIRED = "show an expired certificate"


@dataclass
class Delivered:
    """A mail that the server has taken."""

    sender: str
    recipient: str
    message: bytes


class Fake(Protocol):
    """A server that behaves as asked, and a provider that talks to it."""

    @property
    def provider(self) -> Provider: ...

    @property
    def delivered(self) -> list[Delivered]: ...

    @property
    def connections(self) -> int: ...

    def got_any_of_the_message(self) -> bool:
        """Whether a byte of any message has arrived."""

    def wait_until_cut(self) -> str:
        """How the client ended its first connection: `closed` or `reset`."""


@dataclass(frozen=True)
class Adapter:
    """One adapter under test. `start` gets behaviours for one mail after the other; the last one stays."""

    name: str
    start: Callable[..., AbstractContextManager[Fake]]
