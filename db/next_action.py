"""What happens next to a verification and why, in a sentence for somebody who is on call. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from db import advice
from db.delivery_rules import OPERATOR_RESOLVED, OPERATOR_RETRIED
from db.delivery_state import Outcome, State
from db.phases import CancelledBy, Status
from db.views import Known, NextAction, Pause, clock, mask

# A healthy worker takes due work within a second; the sweep finds what it missed within two of its rounds.
_SUSPICIOUS_SECONDS = 45.0
# Who cancelled, by what the change says, and what that means for another request.
_IF_WANTED = "Request a new verification if it is still wanted."
_IF_ASKED = "Send another only if the person asks for it."
_CANCELLERS: Mapping[str | None, tuple[str, str]] = MappingProxyType(
    {
        CancelledBy.CLIENT: ("by its client", _IF_WANTED),
        CancelledBy.RECIPIENT: ("by the recipient, who did not ask for it", _IF_ASKED),
        CancelledBy.OPERATOR: ("by an operator", _IF_WANTED),
    }
)
_SOMEBODY = (
    "by its client or by a recipient who did not ask for it",
    _IF_ASKED,
)  # an older release did not say


def decide(known: Known) -> NextAction:
    """The verification first; while it is requested, its delivery."""
    verification = known.verification
    match verification.status:
        case Status.CONSUMED if known.token_leaked:
            return NextAction(
                "token_leaked",
                "The address was confirmed although no mail with the token had left: the token leaked, and the confirmation "
                "proves nothing. Check who can read TOKEN_KEYS and the database, put a new key in front of TOKEN_KEYS, and "
                "have the host treat this address as unconfirmed.",
            )
        case Status.CONSUMED:
            return NextAction("done", "Nothing: the address was confirmed. A new link needs a new request.")
        case Status.SUPERSEDED:
            return NextAction(
                "see_newer",
                "Nothing: a newer request took its place, see `superseded_by`; only the newer mail's link works."
                + _still_out(known),
            )
        case Status.CANCELLED:
            return NextAction("none", _cancelled_by(known) + _still_out(known))
        case Status.EXPIRED:
            return NextAction(
                "request_again",
                "Nothing: the link ran out. Request a new verification if it is still wanted."
                + _still_out(known),
            )
        case Status.REQUESTED:
            return _OF_STATE[known.delivery.status](known)


def _cancelled_by(known: Known) -> str:
    """By whom it was cancelled, and what that means for another request."""
    by = next((c.code for c in known.changes if c.delivery_id is None and c.after == Status.CANCELLED), None)
    who, then = _CANCELLERS.get(by, _SOMEBODY)
    return f"Nothing: it was cancelled, {who}, and its link is dead. {then}"


def _still_out(known: Known) -> str:
    """What a live delivery of a dead verification still does."""
    if known.delivery.status is State.SENDING:
        return " A worker still holds the delivery; it will not start to send."
    if known.delivery.status is State.UNKNOWN:
        return " Whether the mail left is still being found out; it will not be repeated."
    return ""


def _pending(known: Known) -> NextAction:
    due = known.delivery.next_attempt_at
    assert due is not None, "a pending delivery has a time"
    pauses = _pauses_that_matter(known)
    blocked = bool(pauses) and not _another_is_free(known, pauses)
    if due > known.now:
        text = f"Attempt {known.delivery.attempt_count + 1} in {_span(due, known.now)}.{_because(known)}"
        if not pauses:
            return NextAction("wait_for_retry", text, due)
        at = max(due, min(pause.until for pause in pauses)) if blocked else due
        return NextAction("wait_for_retry", f"{text} {_told(pauses, blocked=blocked)}", at)
    if blocked:
        return NextAction(
            "wait_for_provider",
            f"Due. {_told(pauses, blocked=True)}",
            min(pause.until for pause in pauses),
        )
    waited = f"Waits for a worker; due since {_span(known.now, due)}."
    also = f" {_told(pauses, blocked=False)}" if pauses else ""
    is_long = (known.now - due).total_seconds() > _SUSPICIOUS_SECONDS
    if is_long and _sweeps(known):  # a backlog, after a night's stop perhaps, and no outage
        return NextAction(
            "wait_for_worker",
            f"{waited} Workers are alive (one swept lately): it is taken up in its turn; `outbox stats` "
            f"shows what waits.{also}",
            due,
        )
    if is_long:
        return NextAction(
            "check_workers",
            f"{waited} That is long: check that a worker runs and reaches the database.{also}",
            due,
        )
    return NextAction("wait_for_worker", waited + also, due)


def _sweeps(known: Known) -> bool:
    """Whether a worker did what only workers do, a moment ago."""
    return known.swept_at is not None and (known.now - known.swept_at).total_seconds() <= _SUSPICIOUS_SECONDS


def _pauses_that_matter(known: Known) -> tuple[Pause, ...]:
    """Those of this delivery's sender, where a refusal of its own tells who that is; else all there are.

    The provider of an open hand-over is the only one that counts: a replay never goes to another.
    """
    if known.delivery.open_provider:
        return tuple(pause for pause in known.pauses if pause.provider == known.delivery.open_provider)
    senders = {
        pause.sender
        for pause in known.pauses
        for attempt in known.attempts
        if attempt.outcome is Outcome.REFUSED_US
        and attempt.provider == pause.provider
        and attempt.started_at <= pause.refused_at
    }
    return tuple(pause for pause in known.pauses if not senders or pause.sender in senders)


def _another_is_free(known: Known, pauses: Sequence[Pause]) -> bool:
    """Whether a provider that workers used lately is not paused, or took mail after it was: from another sender then.

    MAIL_URL, which says what is configured, is the workers' alone.
    """
    refused = {pause.provider: pause.refused_at for pause in pauses}
    return any(
        provider.name not in refused
        or (provider.accepted_at is not None and provider.accepted_at > refused[provider.name])
        for provider in known.providers
    )


def _told(pauses: Sequence[Pause], *, blocked: bool) -> str:
    """Who is paused until when and why, what to do about it, and what it means here."""
    told = " ".join(_pause_words(pause) for pause in pauses)
    if blocked:
        return f"{told} No other provider is known here; it is tried again by itself when the pause ends."
    return f"{told} Another provider may take it before."


def _pause_words(pause: Pause) -> str:
    who = f"{pause.provider} is paused for {mask(pause.sender)} until {clock(pause.until)}"
    if pause.by_operator:
        return f"{who}, by an operator."
    mend = advice.mend(pause.code)
    return f"{who} ({pause.code})." + (f" {mend}" if mend else "")


def _sending(known: Known) -> NextAction:
    delivery = known.delivery
    until = delivery.lease_until
    assert until is not None, "a leased delivery has an end"
    if until <= known.now:
        return NextAction(
            "wait_for_sweep",
            f"The lease of {delivery.lease_owner} ended {_span(known.now, until)} ago without a result; the next sweep "
            "takes the delivery back.",
        )
    handed_over = any(
        a.lease_token == delivery.lease_token and a.handed_over_at and not a.finished_at
        for a in known.attempts
    )
    return NextAction("wait_for_result", f"{delivery.lease_owner} {_doing(known, until, handed_over)}", until)


def _doing(known: Known, until: datetime, handed_over: bool) -> str:
    """What the holder of the lease does, and what becomes of the delivery if it never says: it may be dead already."""
    delivery = known.delivery
    if handed_over:
        return (
            f"handed it to {delivery.provider} and waits for the answer. If none has come by {clock(until)} it counts as "
            "unknown: it is looked up where the provider allows that, else waits for evidence, and is not sent again blindly."
        )
    if delivery.open_provider:
        return (
            f"holds it and has sent nothing itself, but {delivery.open_provider} may have the mail from before. If nothing "
            f"has come by {clock(until)} it is unknown as it was, and is not sent again blindly."
        )
    return (
        f"holds it and has handed nothing over yet. If that is still so at {clock(until)}, nothing was "
        "sent: it is taken back, and tried anew while there is time."
    )


def _unknown(known: Known) -> NextAction:
    delivery = known.delivery
    due = delivery.next_attempt_at
    assert due is not None, "an unknown delivery has a time"
    may_have_it = f"{delivery.open_provider} may have the mail: no answer came."
    if delivery.send_before is None or delivery.send_before <= known.now:
        return NextAction(
            "wait_for_evidence",
            f"{may_have_it} Its gate is closed, so it will not be repeated; without evidence it ends as outcome_unresolved.",
            due,
        )
    return NextAction(
        "wait_for_evidence",
        f"{may_have_it} At {clock(due)} it is looked up, repeated with the same bytes, or put off, whichever its provider "
        f"allows; evidence (an answer, a webhook, the used link) ends that at any time.{_paused(known)}",
        due,
    )


def _paused(known: Known) -> str:
    return "".join(f" {_pause_words(pause)}" for pause in _pauses_that_matter(known))


def _accepted(known: Known) -> NextAction:
    verification = known.verification
    if verification.mail_event == "bounced":
        return NextAction(
            "request_again",
            "The mail came back. Ask the person for another address, then request a new verification.",
        )
    if verification.mail_event == "complained":
        return NextAction(
            "none", "The recipient reported the mail as unwanted. Do not send another unless they ask."
        )
    return NextAction(
        "wait_for_recipient",
        f"The provider has the mail; the person can use its link until {clock(verification.expires_at)}. If it does not "
        "arrive, have them look into the spam folder before a new request.",
        verification.expires_at,
    )


def _failed(known: Known) -> NextAction:
    failure = known.delivery.failure
    assert failure is not None, "a failed delivery says why"
    return NextAction("act_on_failure", failure.action)


def _expired(known: Known) -> NextAction:
    failure = known.delivery.failure
    if failure is not None:
        return NextAction("act_on_failure", failure.action)
    return NextAction(
        "request_again",
        "The mail could not leave in time. Request a new verification if it is still wanted.",
    )


def _cancelled(_known: Known) -> NextAction:
    return NextAction(
        "request_again", "The delivery was cancelled. Request a new verification if it is still wanted."
    )


_OF_STATE = {
    State.PENDING: _pending,
    State.SENDING: _sending,
    State.UNKNOWN: _unknown,
    State.ACCEPTED: _accepted,
    State.FAILED: _failed,
    State.EXPIRED: _expired,
    State.CANCELLED: _cancelled,
}


def _because(known: Known) -> str:
    """Why the last attempt did not do."""
    code = known.delivery.last_error
    if code is None:
        return ""
    sentence = advice.cause(code)
    if code in {OPERATOR_RETRIED, OPERATOR_RESOLVED}:
        return f" {sentence}"
    return f" The last one ended with {code}." + (f" {sentence}" if sentence else "")


def _span(later: datetime, earlier: datetime) -> str:
    """`3 s`, `4 min`, `2 h`."""
    seconds = max(0, round((later - earlier).total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
