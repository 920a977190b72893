"""The ledger: whether what clients asked for, what the database says and what mail servers got agree, guarantee by guarantee.

    facts = Facts.read(database_url, mailbox.mails, book, terms)   # after install_witness(database_url), before the load
    for breach in check(facts): …

It needs a database's URL, the mails that arrived and the client's book; how they came about is nobody's business here. All
clocks are one machine's.
"""

from __future__ import annotations

from tests.chaos import rules_clients, rules_mails, rules_rows
from tests.chaos.facts import Breach, Facts

RULES = (*rules_clients.RULES, *rules_rows.RULES, *rules_mails.RULES)


def check(facts: Facts) -> list[Breach]:
    """Every breach of every rule. Pure: rows in, breaches out."""
    return [breach for rule in RULES for breach in rule(facts)]
