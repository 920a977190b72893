"""What a provider calls its id for a mail is kept and shown, so it must not be the mail's token or its recipient (G9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tasks import message
from tasks.message import Sender
from tasks.providers.base import OutgoingMail, quotes_mail

TOKEN = "9WFXT3C9RKH3A2MZ"


@pytest.fixture
def mail() -> OutgoingMail:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return message.render(
        delivery_key="dlv_" + "1" * 32,
        verification_id="ver_" + "2" * 32,
        recipient="ada-lovelace@example.com",
        token=TOKEN,
        purpose="signup",
        locale="en",
        created_at=at,
        expires_at=at + timedelta(days=1),
        public_url="https://countersign.example",
        mail_from=Sender.parse("verify@countersign.example"),
    )


@pytest.mark.parametrize(
    "written", [TOKEN, TOKEN.lower(), "9WFX-T3C9-RKH3-A2MZ", "9wfx_t3c9_rkh3_a2mz", "ada-lovelace"]
)
def test_an_id_that_was_copied_from_the_mail_is_recognised(mail: OutgoingMail, written: str) -> None:
    assert quotes_mail(written, mail)


@pytest.mark.parametrize(
    "own", [None, "", "-", "4XyZ12abcd", "1sTuVw-0001ab-Cd", "3Pt2mN2VXxznjllz", "8f6e3c1a2b4d"]
)
def test_an_id_of_its_own_is_not(mail: OutgoingMail, own: str | None) -> None:
    assert not quotes_mail(own, mail)
