"""What a client may rely on: its answers against the rows (G1, G3, G7), and the feed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from db import ids
from tests.chaos.facts import Breach, Facts

# What an honest client may be told; 0 is no answer, which a crash may cost.
_EXPECTED = {
    "create": {(202, ""), (409, "already_verified")},
    "consume": {(200, ""), (409, "verification_already_used"), (410, "verification_expired")},
    "cancel": {(200, ""), (409, "not_cancellable")},
    "read": {(200, "")},
}


def each_key_made_one_verification(facts: Facts) -> Iterator[Breach]:
    """G1: whatever was acknowledged is there, under its key, once."""
    by_id = {ids.public("ver", row["id"]): row for row in facts.verifications}
    for key, answered in facts.book.answers().items():
        if len(answered) > 1:
            yield Breach("G1", f"{key} was answered with {len(answered)} verifications")
        for verification in answered:
            row = by_id.get(verification)
            if row is None:
                yield Breach("G3", f"{verification} was acknowledged for {key} and is not there")
            elif row["idempotency_key"] != key:
                yield Breach("G1", f"{verification} was the answer to {key} and is another's")


def nothing_was_made_up(facts: Facts) -> Iterator[Breach]:
    """G1: each verification was asked for, and has one delivery."""
    keys = Counter(row["idempotency_key"] for row in facts.verifications)
    for key, count in keys.items():
        if key not in facts.book.asked:
            yield Breach("G1", f"nobody asked for the verification of {key}")
        elif count > 1:
            yield Breach("G1", f"{key} has {count} verifications")
    deliveries = Counter(row["verification_id"] for row in facts.deliveries)
    for row in facts.verifications:
        if deliveries[row["id"]] != 1:
            yield Breach(
                "G1", f"{ids.public('ver', row['id'])} has {deliveries[row['id']]} deliveries instead of one"
            )


def everything_was_answered(facts: Facts) -> Iterator[Breach]:
    """G3: a host that goes on asking is answered."""
    for key in facts.book.unanswered():
        yield Breach("G3", f"{key} was never answered")


def answers_are_expected(facts: Facts) -> Iterator[Breach]:
    """No error but those that a client can act on; 503 says when to ask again."""
    odd: Counter[str] = Counter()
    for call in facts.book.calls:
        if call.status == 503 and call.code == "database_unavailable" and call.retry_after:
            continue
        code = "" if call.succeeded else call.code
        if call.status and (call.status, code) not in _EXPECTED[call.what]:
            odd[f"{call.what} was answered {call.status} {call.code or 'without a code'}"] += 1
    for text, times in odd.items():
        yield Breach("G3", f"{text}, {times} times")


def tokens_were_used_once(facts: Facts) -> Iterator[Breach]:
    """G7: one 200 a verification, and the row says so."""
    used = Counter(call.answer["verification_id"] for call in facts.book.of("consume") if call.status == 200)
    by_id = {ids.public("ver", row["id"]): row for row in facts.verifications}
    for verification, times in used.items():
        if times > 1:
            yield Breach("G7", f"{verification} was confirmed {times} times")
        if by_id[verification]["status"] != "consumed":
            yield Breach("G7", f"{verification} was confirmed and is {by_id[verification]['status']}")


def only_people_consume(facts: Facts) -> Iterator[Breach]:
    """G7: what is consumed was tried by somebody who had the mail."""
    tried = {call.about for call in facts.book.of("consume")}
    for delivery in facts.deliveries:
        verification = facts.by_verification[delivery["verification_id"]]
        if verification["status"] == "consumed" and ids.public("dlv", delivery["id"]) not in tried:
            yield Breach("G7", "it is consumed, and nobody used its token", delivery["id"])


def accounts_are_active_as_confirmed(facts: Facts) -> Iterator[Breach]:
    """G7: activated is who confirmed a signup, and nobody else, with the address that was confirmed."""
    confirmed: dict[object, list[str]] = defaultdict(list)
    signed_up = set()
    for row in facts.verifications:
        if row["status"] == "consumed" and row["purpose"] in {"signup", "email_change"}:
            confirmed[row["account_id"]].append(row["email"])
            if row["purpose"] == "signup":
                signed_up.add(row["account_id"])
    for account in facts.accounts:
        if (account["activated_at"] is not None) != (account["id"] in signed_up):
            yield Breach("G7", f"account {account['external_id']} is active without a signup, or the reverse")
        if account["email"] is not None and account["email"] not in confirmed[account["id"]]:
            yield Breach("G7", f"account {account['external_id']} has an address that was not confirmed")


def the_feed_is_whole(facts: Facts) -> Iterator[Breach]:
    """Numbers without gaps, each change once; who followed the feed all the time has read just that."""
    numbers = [row["seq"] for row in facts.changes]
    if None in numbers:
        yield Breach("feed", f"{numbers.count(None)} changes have no number")
    elif numbers != list(range(1, len(numbers) + 1)):
        yield Breach("feed", "the numbers have gaps or repeat")
    read = [int(item["cursor"]) for item in facts.book.feed]
    missed = sorted(set(numbers) - {None} - set(read))
    if missed:
        yield Breach("feed", f"the follower missed {len(missed)} changes, the first is {missed[0]}")
    if read != sorted(set(read)):
        yield Breach("feed", "the follower was told a change twice or out of order")


RULES = (
    each_key_made_one_verification,
    nothing_was_made_up,
    everything_was_answered,
    answers_are_expected,
    tokens_were_used_once,
    only_people_consume,
    accounts_are_active_as_confirmed,
    the_feed_is_whole,
)
