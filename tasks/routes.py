"""Routes: live mail goes through MAIL_URL's providers, test clients' mail through the simulator.

They share a process's slots (`tasks.turns`) and nothing else, so that trouble on one is none on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from db import leases
from db.leases import ClaimTerms, Lease
from db.session import Database
from tasks.providers.base import Provider
from tasks.slots import ScanStart

LIVE, TEST = "live", "test"  # `email_outbox.route`


@dataclass(frozen=True)
class Route:
    """The only providers that may carry one kind of mail, the terms of its claims (by owner), and where those scan."""

    name: str
    providers: Mapping[str, Provider]
    terms: Callable[[str], ClaimTerms]
    scan: ScanStart

    def claim(self, database: Database, owner: str) -> list[Lease]:
        """Lease what is due next, if anything is."""
        with self.scan.next() as position:
            claimed = leases.claim(database, self.terms(owner), position)
        for lease in claimed:
            self.scan.claimed(lease)
        return claimed

    def has_due_work(self, database: Database) -> bool:
        """Whether a claim would find something now."""
        return leases.has_due_work(database, self.terms(""), self.scan.position)

    def finds_due_work(self, database: Database) -> bool:
        """The same, wherever it lies: what a claimer left behind its position is found by the next claim then."""
        if self.has_due_work(database):
            return True
        behind = leases.has_due_work(database, self.terms(""))
        if behind:
            self.scan.rewind()
        return behind
