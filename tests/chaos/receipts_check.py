"""Whether every receipt can be read, and every failure says what to do (G8). It asks the database, as the API would."""

from __future__ import annotations

from collections.abc import Iterator

from app import receipt_text
from db import receipts
from db.errors import CountersignError
from db.session import Database
from tests.chaos.facts import Breach, Facts


def check(facts: Facts, database_url: str) -> Iterator[Breach]:
    """Each receipt as data and as text."""
    database = Database(database_url, statement_timeout=4.0, size=1)
    for row in facts.deliveries:
        try:
            receipt = receipts.read_receipt(database, None, row["verification_id"])
            receipt_text.render(receipt)
        except (CountersignError, LookupError, TypeError, ValueError, AssertionError) as error:
            yield Breach("G8", f"its receipt cannot be read: {error!r}", row["id"])
            continue
        failure = receipt.known.verification.failure
        if row["status"] == "failed" and not (failure and failure.action):
            yield Breach("G8", "its failure does not say what to do", row["id"])
    database.close()
