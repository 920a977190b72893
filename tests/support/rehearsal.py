"""A test client's mail through a courier of this process."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app import receipt_text
from db import clients, receipts
from db.views import Receipt
from tasks import sweep
from tasks.delivery import Courier
from tests.factories import Factory
from tests.support.courier import create, make_courier

NOWHERE = "smtp://127.0.0.1:1"  # what live mail would meet


class Rehearsal:
    """One delivery at a time, sent by `courier`, whose live provider cannot be reached."""

    def __init__(self, make: Factory, courier: Courier | None = None) -> None:
        self.make = make
        self.courier = courier or make_courier(make.database, NOWHERE)
        self.key = clients.create(make.database, "ci", is_test=True).key

    def create(self, address: str, **overrides: Any) -> UUID:
        """A verification's delivery for `address`, whose part before the @ says what will become of it."""
        created = create(self.make.database, self.key, email=address, email_canonical=address, **overrides)
        return created.delivery_id

    def send(self, address: str) -> UUID:
        """The same, drained once."""
        delivery_id = self.create(address)
        self.courier.drain()
        return delivery_id

    def later(self, delivery_id: UUID, seconds: float) -> None:
        """So much time passes, then a sweep and a drain."""
        self.make.pass_time(delivery_id, seconds=seconds)
        self.make.execute("TRUNCATE sweep_runs")
        assert sweep.run_once(self.courier, trigger="beat") is not None
        self.courier.drain()

    def receipt(self, delivery_id: UUID) -> Receipt:
        """What everybody can read about it; as text it must be readable, too."""
        row = self.make.row(delivery_id)
        found = receipts.read_receipt(self.make.database, None, row["verification_id"])
        assert receipt_text.render(found)
        return found

    def outcomes(self, delivery_id: UUID) -> list[str | None]:
        """What its attempts came to, oldest first."""
        return [attempt["outcome"] for attempt in self.make.attempts(delivery_id)]
