"""Every SMTP reply that we know of, and what it means."""

from __future__ import annotations

import pytest

from db.delivery_state import FailureCategory
from tasks.providers.base import Result
from tasks.providers.smtp_replies import ABOUT_US, Phase, Reply, classify


def summary(result: Result) -> str:
    """`permanent/recipient`, `refused_us/away`, … as the table below writes it."""
    told = result.category if result.outcome == "permanent" else result.pause and result.pause.kind
    return f"{result.outcome}/{told}" if told else str(result.outcome)


def verdict(phase: Phase, line: str) -> Result:
    return classify(phase, Reply(int(line[:3]), line[4:].encode()))


# Phase, reply, what it comes to, code
CASES = [
    # Before any mail was spoken of: always about us.
    (Phase.GREETING, "421 4.3.2 shutting down", "refused_us/away", "service_unavailable"),
    (Phase.GREETING, "450 4.3.2 too many connections", "refused_us/away", "service_unavailable"),
    (Phase.GREETING, "554 5.7.1 your host is listed", "refused_us/config", "greeting_refused"),
    (Phase.GREETING, "200 hello", "refused_us/away", "smtp_protocol_error"),
    (Phase.EHLO, "421 4.3.2 shutting down", "refused_us/away", "service_unavailable"),
    (Phase.EHLO, "550 5.7.0 bad name", "refused_us/config", "helo_refused"),
    (Phase.STARTTLS, "454 4.7.0 TLS not available", "refused_us/away", "starttls_unavailable"),
    (Phase.STARTTLS, "501 5.5.4 no", "refused_us/config", "starttls_refused"),
    (Phase.LOGIN, "454 4.7.0 temporary failure", "refused_us/away", "login_unavailable"),
    (Phase.LOGIN, "421 4.7.0 too many tries", "refused_us/away", "login_unavailable"),
    (Phase.LOGIN, "535 5.7.8 wrong", "refused_us/config", "login_refused"),
    (Phase.LOGIN, "534 5.7.9 too weak", "refused_us/config", "login_refused"),
    (Phase.LOGIN, "530 5.7.0 STARTTLS first", "refused_us/config", "authentication_required"),
    (Phase.LOGIN, "538 5.7.11 encryption required", "refused_us/config", "encryption_required"),
    (Phase.LOGIN, "504 5.5.4 unknown mechanism", "refused_us/config", "login_refused"),
    (Phase.MAIL, "530 5.7.0 authentication required", "refused_us/config", "authentication_required"),
    (Phase.MAIL, "550 5.7.1 sender not yours", "refused_us/config", "sender_refused"),
    (Phase.MAIL, "553 5.1.8 no such domain", "refused_us/config", "sender_refused"),
    (Phase.MAIL, "421 4.3.2 shutting down", "refused_us/away", "service_unavailable"),
    (Phase.MAIL, "452 4.3.1 disk full", "refused_us/away", "service_unavailable"),
    (Phase.MAIL, "552 5.3.4 too big", "permanent/content", "message_too_large"),
    (Phase.MAIL, "354 what", "refused_us/away", "smtp_protocol_error"),
    # The recipient.
    (Phase.RCPT, "550 5.1.1 no such user", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "550 no such user", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "551 user not local", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "553 name not allowed", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "501 5.1.3 bad address", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "501 syntax", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "550 5.1.10 null MX", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "554 5.1.2 bad domain", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "550 5.2.1 mailbox disabled", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "550 5.4.1 no such recipient here", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "556 5.1.10 takes no mail", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "550 5.7.17 owner changed", "permanent/recipient", "mailbox_unavailable"),
    (Phase.RCPT, "451 4.7.1 greylisted", "transient", "temporarily_refused"),
    (Phase.RCPT, "450 4.2.1 busy", "transient", "temporarily_refused"),
    (Phase.RCPT, "452 4.2.2 full", "transient", "mailbox_full"),
    (Phase.RCPT, "552 5.2.2 full", "transient", "mailbox_full"),
    (Phase.RCPT, "550 5.2.2 full", "transient", "mailbox_full"),
    (Phase.RCPT, "552 full", "transient", "mailbox_full"),
    (Phase.RCPT, "421 4.3.2 shutting down", "refused_us/away", "service_unavailable"),
    (Phase.RCPT, "530 5.7.0 authentication required", "refused_us/config", "authentication_required"),
    (Phase.RCPT, "550 5.7.26 DMARC", "refused_us/config", "sender_not_authenticated"),
    (Phase.RCPT, "550 5.1.8 bad sender", "refused_us/config", "sender_refused"),
    (Phase.RCPT, "535 5.7.8 expired", "refused_us/config", "login_refused"),
    # Relaying denied, host listed, recipient's own policy: the same numbers, so nobody's fault for now.
    (Phase.RCPT, "550 5.7.1 relaying denied", "transient", "refused_by_policy"),
    (Phase.RCPT, "554 5.7.1 service unavailable; host blocked", "transient", "refused_by_policy"),
    (Phase.RCPT, "554 no", "transient", "refused_without_reason"),
    (Phase.RCPT, "503 5.5.1 bad sequence", "transient", "refused_without_reason"),
    (Phase.RCPT, "354 what", "transient", "smtp_protocol_error"),
    # DATA, before the message.
    (Phase.DATA, "451 4.3.0 not now", "transient", "temporarily_refused"),
    (Phase.DATA, "421 4.3.2 shutting down", "refused_us/away", "service_unavailable"),
    (Phase.DATA, "550 5.1.1 no such user", "permanent/recipient", "mailbox_unavailable"),
    (Phase.DATA, "554 5.5.1 no valid recipients", "transient", "refused_without_reason"),
    (Phase.DATA, "250 thank you", "transient", "smtp_protocol_error"),
    # The message.
    (Phase.END, "250 2.0.0 Ok", "accepted", "accepted"),
    (Phase.END, "250", "accepted", "accepted"),
    (Phase.END, "251 forwarded", "unknown", "reply_unreadable"),
    (Phase.END, "354 go on", "unknown", "reply_unreadable"),
    (Phase.END, "451 4.3.0 not now", "transient", "temporarily_refused"),
    (Phase.END, "452 4.2.2 full", "transient", "mailbox_full"),
    (Phase.END, "421 4.7.0 unusual mail", "transient", "temporarily_refused"),
    (Phase.END, "552 5.3.4 too big", "permanent/content", "message_too_large"),
    (Phase.END, "552 too big", "permanent/content", "message_too_large"),
    (Phase.END, "552 5.2.2 full", "transient", "mailbox_full"),
    (Phase.END, "554 5.7.1 spam", "permanent/content", "content_refused"),
    (Phase.END, "550 5.7.1 spam", "permanent/content", "content_refused"),
    (Phase.END, "554 5.6.0 bad MIME", "permanent/content", "content_refused"),
    (Phase.END, "554 no", "permanent/content", "content_refused"),
    (Phase.END, "550 5.1.1 no such user", "permanent/recipient", "mailbox_unavailable"),
    (Phase.END, "550 5.7.23 SPF", "refused_us/config", "sender_not_authenticated"),
    (Phase.END, "530 5.7.0 log in", "refused_us/config", "authentication_required"),
    (Phase.END, "554 5.3.0 system trouble", "transient", "refused_without_reason"),
    (Phase.END, "550 5.4.4 no route", "transient", "refused_without_reason"),
    (Phase.END, "503 bad sequence", "transient", "refused_without_reason"),
]


@pytest.mark.parametrize(("phase", "line", "expected", "code"), CASES)
def test_a_reply_means_what_the_table_says(phase: Phase, line: str, expected: str, code: str) -> None:
    result = verdict(phase, line)
    assert (summary(result), result.code) == (expected, code)


@pytest.mark.parametrize("phase", Phase)
def test_any_reply_in_any_phase_has_one_safe_meaning(phase: Phase) -> None:
    for code in range(200, 600):
        result = classify(phase, Reply(code, b"anna@example.com"))
        paused = result.pause.kind if result.pause else None
        assert "@" not in repr(result)
        assert result.outcome != "unknown" or phase is Phase.END
        assert (result.outcome == "accepted") == (phase is Phase.END and code == 250)
        assert (paused is not None) == (result.outcome == "refused_us")
        assert (result.category is not None) == (result.outcome == "permanent" or paused == "config")
        if phase in ABOUT_US and result.category is not FailureCategory.CONTENT:
            assert result.outcome == "refused_us"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("250 2.0.0 Ok", "250 2.0.0"),
        ("250 2.0.0", "250 2.0.0"),
        ("250 Ok", "250"),
        ("550 2.0.0 contradicts itself", "550"),
        ("550 5.1.1-odd", "550"),
        ("550 5.1.1234 odd", "550"),
    ],
)
def test_a_status_is_the_numbers_alone(line: str, status: str) -> None:
    assert verdict(Phase.END, line).response_status == status


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [
        ("2.0.0 Ok: queued as 4XyZ12abcd", "4XyZ12abcd"),
        ("OK id=1tFooB-0002Ab-Cd", "1tFooB-0002Ab-Cd"),
        ("Ok 0100018f-6d7e8f90-000000", "0100018f-6d7e8f90-000000"),
        ("2.0.0 Ok", None),
        ("queued as anna@example.com", None),
        ("queued as <anna@example.com>", None),
        ("2.6.0 <1234@mail.example.com> Queued mail for delivery", None),
    ],
)
def test_the_servers_own_id_is_kept_unless_it_could_be_an_address(text: str, queue_id: str | None) -> None:
    assert verdict(Phase.END, f"250 {text}").provider_message_id == queue_id
