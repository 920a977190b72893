"""Failure codes as sentences that say what to do (G8). One table; a code that is not in it falls back by category."""

from __future__ import annotations

from types import MappingProxyType

from db.delivery_state import FailureCategory

_CHECK_LOGIN = (
    "Check user and password in MAIL_URL, then restart the workers; what still waits is sent by itself."
)
_CHECK_TLS = "Check the port and the tls option in MAIL_URL against what the mail server offers, then restart the workers."
_CHECK_SENDER = (
    "The provider does not accept MAIL_FROM: verify it or its domain there (SPF, DKIM, DMARC, reverse DNS)."
)
_ASK_PERSON = (
    "Ask the person for another address, or to have the mailbox mended, then request a new verification."
)
_PROVIDER_AWAY = "The mail provider could not be reached. Nothing to do unless it lasts; see its status page."
_REQUEST_LATER = (
    "Request a new verification later; if it happens again, ask the recipient's mail administrator."
)
_REPORT_BUG = (
    "This is a fault of the service: keep the receipt and report it, then request a new verification."
)
_CHECK_SERVER = "Check host and port in MAIL_URL and that this machine may connect to it."

ADVICE: MappingProxyType[str, str] = MappingProxyType(
    {
        # ends that our own rules bring about
        "suppressed": "Earlier mail to this address bounced or was complained of; lift that only if its owner asks.",
        "lease_lost": "Workers died each time they held this mail. Look for crashes in their log, then retry the delivery.",
        "outcome_unresolved": (
            "A provider may or may not have the mail; no evidence came in time. Ask the person to look for it (spam folder "
            "too) before a new verification is requested."
        ),
        "provider_unavailable": (
            "No mail provider took mail until the deadline. Mend the provider (its last refusal is in the receipt), then "
            "request a new verification."
        ),
        "not_now": _REQUEST_LATER,
        "rejected": "The provider refused the mail for good; the receipt's attempts say more.",
        # a worker that cannot do its part
        "cannot_render": (
            "A worker cannot make this mail: give it the TOKEN_KEYS of the web process, and finish the deploy if it runs an "
            "older release."
        ),
        "internal_error": _REPORT_BUG,
        "lookup_failed": "Asking the provider what became of the mail failed; it is asked again by itself.",
        # nothing was sent, and that is as it should be
        "shutting_down": "The worker was told to stop and gave the mail back; another takes it by itself.",
        "hand_over_refused": "Lease or gate had ended before the mail left; the delivery goes on by itself.",
        "hand_over_too_old": "The worker was paused for too long to send safely; the delivery goes on by itself.",
        "hand_over_unanswered": "The database did not answer before the mail left; the delivery goes on by itself.",
        # the recipient
        "mailbox_unavailable": _ASK_PERSON,
        "mailbox_full": "The mailbox is full. Ask the person to make room, then request a new verification.",
        "smtputf8_unsupported": "The mail server takes no address with such characters. Ask the person for another one.",
        # the message
        "content_refused": "The provider took offence at the message. Check its wording, links and MAIL_FROM's reputation.",
        "message_too_large": "The message is larger than the provider allows; shorten the template.",
        "malformed_message": _REPORT_BUG,
        # refused for now, until the budget was spent
        "temporarily_refused": _REQUEST_LATER,
        "refused_by_policy": (
            "The recipient's server refuses by policy: check that MAIL_FROM's domain passes SPF and DKIM and that the "
            "sending host is on no block list."
        ),
        "refused_without_reason": _REQUEST_LATER,
        "smtp_protocol_error": "The mail server answered out of turn. Check that MAIL_URL points at a submission server.",
        "connection_lost": "The mail server broke off before it had the mail. If it lasts, see the server's log.",
        "connection_lost_before_end": "The mail server broke off before it had the mail. If it lasts, see the server's log.",
        "deadline_before_send": "The mail server was too slow. If it lasts, raise SEND_DEADLINE_SECONDS (and LEASE_SECONDS).",
        "adapter_error": _REPORT_BUG,
        # it may have been accepted
        "reply_unreadable": "The answer to the mail could not be read; it may have been accepted.",
        "reply_timeout": "No answer to the mail came in time; it may have been accepted.",
        "reply_lost": "The connection broke before the answer to the mail; it may have been accepted.",
        # the provider refuses us: somebody has to change something
        "login_refused": _CHECK_LOGIN,
        "authentication_required": _CHECK_LOGIN,
        "auth_not_offered": "The mail server offers no login on this port: check the port in MAIL_URL.",
        "encryption_required": _CHECK_TLS,
        "starttls_not_offered": _CHECK_TLS,
        "starttls_refused": _CHECK_TLS,
        "tls_certificate_invalid": "The mail server's certificate is not valid for it: mend it, or the host in MAIL_URL.",
        "sender_refused": _CHECK_SENDER,
        "sender_not_authenticated": _CHECK_SENDER,
        "greeting_refused": "The mail server refuses this host: check that it may connect there.",
        "helo_refused": "The mail server refuses this host's name: give the host a proper name in DNS.",
        # the provider cannot be reached: it comes back by itself
        "service_unavailable": _PROVIDER_AWAY,
        "starttls_unavailable": _PROVIDER_AWAY,
        "login_unavailable": _PROVIDER_AWAY,
        "tls_failed": _CHECK_TLS,
        "dns_failed": "The mail server's name could not be resolved: check the host in MAIL_URL and DNS.",
        "connection_refused": _CHECK_SERVER,
        "connect_timeout": _CHECK_SERVER,
        "connect_failed": _CHECK_SERVER,
    }
)

_BY_CATEGORY = MappingProxyType(
    {
        FailureCategory.RECIPIENT: _ASK_PERSON,
        FailureCategory.CONTENT: "The provider refused this message. Check template and links, then request a new one.",
        FailureCategory.CONFIG: "The provider refuses us. Check MAIL_URL, MAIL_FROM and the account at the provider.",
        FailureCategory.EXHAUSTED: _REQUEST_LATER,
        FailureCategory.UNRESOLVED: ADVICE["outcome_unresolved"],
        FailureCategory.INTERNAL: _REPORT_BUG,
    }
)


def advise(category: str, code: str) -> str:
    """A sentence that says what to do about a failure."""
    return ADVICE.get(code) or _BY_CATEGORY[FailureCategory(category)]


def explain(code: str | None) -> str | None:
    """The sentence for an attempt's `error_code`, if there is one."""
    return ADVICE.get(code or "")
