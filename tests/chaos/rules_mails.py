"""What left against what was said to leave: each mail has its hand-over, each duplicate its reason (G2, G4, G5)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from db import ids
from db.delivery_state import CLOSING_OUTCOMES, State
from tests.chaos.facts import Breach, Facts, Row
from tests.chaos.mailbox import Mail

_STAMP = 0.05  # the database's clock and ours are one, read at two places
_PAUSED_WITHIN = 1.0  # after a hand-over: between its fence and the write


def match(facts: Facts, delivery_id: UUID) -> list[tuple[Mail, Row | None]]:
    """Each mail with the hand-over it came from: the last one before it that is not taken, unless that lease was over."""
    free = facts.handed_over(delivery_id)
    pairs: list[tuple[Mail, Row | None]] = []
    for mail in facts.mails_of(delivery_id):
        fits = [a for a in free if _seconds(a) - _STAMP <= mail.at <= _last_moment(facts, a)]
        chosen = max(fits, key=_seconds, default=None)
        if chosen is not None:
            free.remove(chosen)
        pairs.append((mail, chosen))
    return pairs


def each_mail_had_a_hand_over(facts: Facts) -> Iterator[Breach]:
    """G5: nothing leaves without one. G2: nothing leaves after its lease."""
    known = {ids.public("dlv", row["id"]) for row in facts.deliveries}
    for mail in facts.mails:
        if mail.delivery_id not in known:
            yield Breach("G5", f"a mail for {mail.delivery_id}, which does not exist")
    for row in facts.deliveries:
        for mail, attempt in match(facts, row["id"]):
            if attempt is None:
                hand_overs = len(facts.handed_over(row["id"]))
                text = f"a mail at {mail.at:.3f} belongs to none of {hand_overs} hand-overs and their leases"
                yield Breach("G2" if hand_overs else "G5", text, row["id"])


def what_was_not_sent_did_not_arrive(facts: Facts) -> Iterator[Breach]:
    """G5: an attempt that says that the provider has nothing is right, unless the server lied."""
    for row in facts.deliveries:
        for mail, attempt in match(facts, row["id"]):
            if attempt and attempt["outcome"] in CLOSING_OUTCOMES and mail.said != "refused":
                text = f"lease {attempt['lease_token']} is {attempt['outcome']}, and its mail was taken"
                yield Breach("G5", text, row["id"])


def duplicates_are_explained(facts: Facts) -> Iterator[Breach]:
    """G4: before a second mail the first one's fate was recorded as unknown, or its server had lied."""
    for row in facts.deliveries:
        pairs = [(mail, attempt) for mail, attempt in match(facts, row["id"]) if mail.kept]
        for mail, attempt in pairs[:-1]:
            lied = mail.said == "refused"
            if attempt is not None and not lied and attempt["outcome"] == "accepted" and not attempt["stale"]:
                yield Breach("G4", "it was sent again although the first mail was answered", row["id"])
        unanswered = sum(mail.said != "refused" for mail, _ in pairs)
        if unanswered > 1 + row["replay_count"]:
            text = f"{unanswered} mails, {row['replay_count']} replays recorded"
            yield Breach("G4", text, row["id"])


def accepted_was_said(facts: Facts) -> Iterator[Breach]:
    """G8: somebody who may accept did: by 250, or by having the mail."""
    for row in facts.deliveries:
        mails = facts.mails_of(row["id"])
        if row["status"] == State.ACCEPTED and not mails:
            yield Breach("G8", f"it is accepted ({row['evidence']}) and no server took it", row["id"])
        elif row["evidence"] == "response" and not any(mail.said == "ok" for mail in mails):
            yield Breach("G8", "it is accepted by a response that no server gave", row["id"])


def a_kept_promise_is_known(facts: Facts) -> Iterator[Breach]:
    """G3: what a server took and answered is not called failed, expired or cancelled, unless the answer was lost."""
    for row in facts.deliveries:
        if row["status"] == State.ACCEPTED:
            continue
        for mail, attempt in match(facts, row["id"]):
            if mail.said == "ok" and attempt and attempt["outcome"] == "accepted":
                yield Breach("G3", f"its mail was accepted, and it is {row['status']}", row["id"])


def bytes_are_the_same(facts: Facts) -> Iterator[Breach]:
    """G4: a repetition has the same token."""
    for row in facts.deliveries:
        if len({mail.token for mail in facts.mails_of(row["id"])}) > 1:
            yield Breach("G4", "its mails have different tokens", row["id"])


def _seconds(attempt: Row) -> float:
    return float(attempt["handed_over_at"].timestamp())


def _last_moment(facts: Facts, attempt: Row) -> float:
    """When the last byte of a hand-over may arrive. A worker that froze between its fence and the write has until it wakes:
    that is what remains, and the duplicate is recorded.
    """
    at = _seconds(attempt)
    ends = [at + facts.terms.lease]
    for pause in facts.pauses:
        owner = attempt["worker"].split(":")[1]
        if str(pause.pid) == owner and at <= pause.start <= at + _PAUSED_WITHIN:
            ends.append(pause.end)
    return max(ends) + facts.terms.slack


RULES = (
    each_mail_had_a_hand_over,
    what_was_not_sent_did_not_arrive,
    duplicates_are_explained,
    accepted_was_said,
    a_kept_promise_is_known,
    bytes_are_the_same,
)
