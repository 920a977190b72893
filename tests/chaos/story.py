"""The whole story of a delivery whose promise was broken: its row, attempts, mails and receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

from app import receipt_text
from db import receipts
from db.session import Database
from tests.chaos import rules_mails
from tests.chaos.facts import Breach, Facts

_SHOWN = 5


def tell(facts: Facts, breaches: Sequence[Breach], database_url: str) -> Iterator[str]:
    """Receipt, attempts and mails of the deliveries whose promises were broken, as long as the database runs."""
    offenders = list(dict.fromkeys(b.delivery_id for b in breaches if b.delivery_id))[:_SHOWN]
    database = Database(database_url, statement_timeout=4.0, size=1)
    for delivery_id in offenders:
        verification = facts.by_delivery[delivery_id]["verification_id"]
        yield from story(facts, delivery_id)
        yield receipt_text.render(receipts.read_receipt(database, None, verification))
    database.close()


def story(facts: Facts, delivery_id: UUID) -> Iterator[str]:
    """Row, attempts and mails of one delivery."""
    row = facts.by_delivery[delivery_id]
    yield "".join(f"\n  {name} = {value}" for name, value in row.items() if value is not None)
    for attempt in facts.attempts_of(delivery_id):
        yield "  attempt " + ", ".join(
            f"{name}={value}" for name, value in attempt.items() if value is not None
        )
    for mail, source in rules_mails.match(facts, delivery_id):
        at = datetime.fromtimestamp(mail.at, UTC)
        lease = source["lease_token"] if source else "none"
        yield f"  mail at {at:%H:%M:%S.%f} to {mail.server}, said {mail.said}, kept {mail.kept}, of lease {lease}"
