"""Failure codes in words (G8): what happened, and what to do once it ended a delivery or paused a provider. One table.

A delivery that still retries is told the cause alone: the advice would have people repeat what repeats itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from db.delivery_state import FailureCategory


@dataclass(frozen=True, slots=True)
class Words:
    """Whole sentences: what happened, and what to do about it."""

    cause: str
    advice: str


_CHECK_LOGIN = (
    "Check user and password in MAIL_URL, then restart the workers; what still waits is sent by itself."
)
_CHECK_TLS = "Check the port and the tls option in MAIL_URL against what the mail server offers, then restart the workers."
_CHECK_SENDER = "Verify MAIL_FROM or its domain at the provider (SPF, DKIM, DMARC, reverse DNS)."
_ASK_PERSON = (
    "Ask the person for another address, or to have the mailbox mended, then request a new verification."
)
_SEE_STATUS_PAGE = "It comes back by itself; if this lasts, see the provider's status page."
_REQUEST_LATER = (
    "Request a new verification later; if it happens again, ask the recipient's mail administrator."
)
_REPORT_BUG = "Keep the receipt and report it, then request a new verification."
_CHECK_SERVER = "Check host and port in MAIL_URL and that this machine may connect to it."
_SEE_SERVER_LOG = "See the mail server's log, then request a new verification."
_LOOK_FIRST = "Ask the person to look for the mail (spam folder too) before a new verification is requested."
_GOES_ON = "Request a new verification if it is still wanted."

WORDS: MappingProxyType[str, Words] = MappingProxyType(
    {
        # ends that our own rules bring about
        "suppressed": Words(
            "Earlier mail to this address bounced or was complained of.",
            "Lift the suppression only if the address's owner asks for it.",
        ),
        "lease_lost": Words(
            "Workers died each time they held this mail.",
            "Look for crashes in their log, then request a new verification.",
        ),
        "outcome_unresolved": Words(
            "A provider may or may not have the mail; no evidence came in time.", _LOOK_FIRST
        ),
        "provider_unavailable": Words(
            "No mail provider took mail until the deadline.",
            "Mend the provider (its last refusal is in the receipt), then request a new verification.",
        ),
        "operator_resolved": Words(
            "An operator decided it: the provider's answer never came.",
            "The receipt's timeline says why; ask the person to look for the mail before a new verification is requested.",
        ),
        "operator_retried": Words("An operator gave the mail another try.", _GOES_ON),
        "not_now": Words("The mail was refused for now.", _REQUEST_LATER),
        "rejected": Words(
            "The provider refused the mail for good.", "See the receipt's attempts for what it said."
        ),
        # a worker that cannot do its part
        "cannot_render": Words(
            "A worker cannot make this mail.",
            "Give it the TOKEN_KEYS of the web process, and finish the deploy if it runs an older release.",
        ),
        "template_error": Words(
            "The client's branding makes no mail: it was damaged in the database, or this release has a fault.",
            "Set the branding again (PUT /v1/branding), then request a new verification; if that fails too, report it.",
        ),
        "internal_error": Words("This is a fault of the service.", _REPORT_BUG),
        "adapter_error": Words("This is a fault of the service.", _REPORT_BUG),
        "lookup_failed": Words("Asking the provider what became of the mail failed.", _LOOK_FIRST),
        # nothing was sent, and that is as it should be
        "shutting_down": Words("The worker was told to stop and gave the mail back.", _GOES_ON),
        "hand_over_refused": Words("Lease or gate had ended before the mail left.", _GOES_ON),
        "hand_over_too_old": Words("The worker was paused for too long to send safely.", _GOES_ON),
        "hand_over_unanswered": Words("The database did not answer before the mail left.", _GOES_ON),
        "branding_unread": Words(
            "The database did not answer when the client's branding was to be read.", _GOES_ON
        ),
        "payload_changed": Words(
            "The mail would not be the same as the one handed over before, so it was not repeated.",
            "Give MAIL_FROM, PUBLIC_URL and TOKEN_KEYS the values they had, or ask the person to look for the first mail.",
        ),
        # what a look-up found
        "lookup_found": Words("The provider has the mail that was handed over before.", _GOES_ON),
        "lookup_not_found": Words("The provider knows nothing of the mail.", _LOOK_FIRST),
        # the recipient
        "mailbox_unavailable": Words("The recipient's server knows no such mailbox.", _ASK_PERSON),
        "mailbox_full": Words(
            "The mailbox is full.", "Ask the person to make room, then request a new verification."
        ),
        "smtputf8_unsupported": Words(
            "The mail server takes no address with such characters.", "Ask the person for another one."
        ),
        # the message
        "content_refused": Words(
            "The provider took offence at the message.",
            "Check its wording, links and MAIL_FROM's reputation.",
        ),
        "message_too_large": Words(
            "The message is larger than the provider allows.", "Shorten the template."
        ),
        "malformed_message": Words("This is a fault of the service.", _REPORT_BUG),
        # refused for now, until the budget was spent
        "temporarily_refused": Words("The recipient's server refuses the mail for now.", _REQUEST_LATER),
        "refused_by_policy": Words(
            "The recipient's server refuses by policy.",
            "Check that MAIL_FROM's domain passes SPF and DKIM and that the sending host is on no block list.",
        ),
        "refused_without_reason": Words(
            "The recipient's server refuses the mail without a reason.", _REQUEST_LATER
        ),
        "smtp_protocol_error": Words(
            "The mail server answered out of turn.", "Check that MAIL_URL points at a submission server."
        ),
        "smtp_timeout": Words(
            "The mail server stopped answering before it had the mail.",
            "If it lasts, see the server's log: it hangs, or something before it swallows packets. If it is only slow, raise "
            "SEND_DEADLINE_SECONDS (and LEASE_SECONDS); a second server in MAIL_URL takes over meanwhile.",
        ),
        "connection_lost": Words("The mail server broke off before it had the mail.", _SEE_SERVER_LOG),
        "connection_lost_before_end": Words(
            "The mail server broke off before it had the whole mail.", _SEE_SERVER_LOG
        ),
        "deadline_before_send": Words(
            "The mail server was too slow.",
            "If it lasts, raise SEND_DEADLINE_SECONDS (and LEASE_SECONDS).",
        ),
        # it may have been accepted
        "reply_unreadable": Words(
            "The answer to the mail could not be read; it may have been accepted.", _LOOK_FIRST
        ),
        "reply_timeout": Words("No answer to the mail came in time; it may have been accepted.", _LOOK_FIRST),
        "reply_lost": Words(
            "The connection broke before the answer to the mail; it may have been accepted.", _LOOK_FIRST
        ),
        # the provider refuses us: somebody has to change something
        "login_refused": Words("The mail server refuses our user or password.", _CHECK_LOGIN),
        "authentication_required": Words("The mail server wants a login.", _CHECK_LOGIN),
        "auth_not_offered": Words(
            "The mail server offers no login on this port.", "Check the port in MAIL_URL."
        ),
        "encryption_required": Words("The mail server wants an encrypted connection.", _CHECK_TLS),
        "starttls_not_offered": Words("The mail server offers no STARTTLS.", _CHECK_TLS),
        "starttls_refused": Words("The mail server refuses STARTTLS.", _CHECK_TLS),
        "tls_certificate_invalid": Words(
            "The mail server's certificate is not valid for it.", "Mend it, or the host in MAIL_URL."
        ),
        "sender_refused": Words("The provider does not accept MAIL_FROM.", _CHECK_SENDER),
        "sender_not_authenticated": Words("MAIL_FROM's domain is not authenticated.", _CHECK_SENDER),
        "greeting_refused": Words(
            "The mail server refuses this host.", "Check that the host may connect there."
        ),
        "helo_refused": Words(
            "The mail server refuses this host's name.", "Give the host a proper name in DNS."
        ),
        # the provider cannot be reached: it comes back by itself
        "service_unavailable": Words("The mail provider takes no mail now.", _SEE_STATUS_PAGE),
        "starttls_unavailable": Words("The mail provider offers no encryption now.", _SEE_STATUS_PAGE),
        "login_unavailable": Words("The mail provider takes no login now.", _SEE_STATUS_PAGE),
        "tls_failed": Words("The encrypted connection to the mail server failed.", _CHECK_TLS),
        "dns_failed": Words(
            "The mail server's name could not be resolved.", "Check the host in MAIL_URL and DNS."
        ),
        "connection_refused": Words("The mail server refuses connections.", _CHECK_SERVER),
        "connect_timeout": Words("The mail server could not be reached in time.", _CHECK_SERVER),
        "connect_failed": Words("The mail server could not be reached.", _CHECK_SERVER),
    }
)

_BY_CATEGORY = MappingProxyType(
    {
        FailureCategory.RECIPIENT: Words("The recipient cannot be reached.", _ASK_PERSON),
        FailureCategory.CONTENT: Words(
            "The provider refused this message.", "Check template and links, then request a new one."
        ),
        FailureCategory.CONFIG: Words(
            "The provider refuses us.", "Check MAIL_URL, MAIL_FROM and the account at the provider."
        ),
        FailureCategory.EXHAUSTED: Words("The mail was refused each time it was tried.", _REQUEST_LATER),
        FailureCategory.UNRESOLVED: WORDS["outcome_unresolved"],
        FailureCategory.INTERNAL: WORDS["internal_error"],
    }
)


def advise(category: str, code: str) -> str:
    """Of a delivery that has ended: what happened, and what to do about it."""
    words = WORDS.get(code) or _BY_CATEGORY[FailureCategory(category)]
    return f"{words.cause} {words.advice}"


def cause(code: str | None) -> str | None:
    """What a code means, in a sentence, if it has one."""
    words = WORDS.get(code or "")
    return words.cause if words else None


def mend(code: str) -> str | None:
    """Of a paused provider: what is wrong, and what its operator can do."""
    words = WORDS.get(code)
    return f"{words.cause} {words.advice}" if words else None
