"""Requests that come at once share one hour, one cooldown and one mailbox, and never deadlock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from db.config import CreateLimits
from db.errors import CountersignError
from db.session import Database
from db.verifications import create
from tests.factories import Factory
from tests.support.courier import DATABASE_SETTINGS, request
from tests.support.races import Later, holding, together, wait_until_blocked

NONE = CreateLimits(cooldown=0, max_waiting=0, account=0, address=0, client=0, caller=0)


def attempt(database: Database, key: str, limits: CreateLimits, **changes: Any) -> str:
    try:
        create(database, key, request(**changes), replace(DATABASE_SETTINGS, limits=limits))
    except CountersignError as refused:
        return type(refused).__name__
    return "created"


@pytest.mark.parametrize(
    ("limits", "changes", "refusal"),
    [
        (replace(NONE, cooldown=60), lambda n: {"account_id": "a"}, "ResendCooldown"),
        (replace(NONE, account=1), lambda n: {"account_id": "a", "purpose": f"p{n}"}, "RateLimited"),
        (replace(NONE, address=1), lambda n: {"account_id": f"a{n}"}, "RateLimited"),
        (replace(NONE, client=1), lambda n: {"account_id": f"a{n}"}, "RateLimited"),
        (replace(NONE, caller=1), lambda n: {"account_id": f"a{n}"}, "RateLimited"),
    ],
    ids=["cooldown", "account", "address", "client", "caller"],
)
def test_create_x_create_one_of_sixteen_fits(
    make: Factory, limits: CreateLimits, changes: Any, refusal: str
) -> None:
    key = make.key()
    results = together(16, lambda n: attempt(make.database, key, limits, **changes(n)))
    assert Counter(results) == {"created": 1, refusal: 15}


def test_create_x_create_for_one_mailbox_the_second_waits_and_counts_the_first(
    make: Factory, database_url: str
) -> None:
    key = make.key()
    taken = "SELECT pg_advisory_xact_lock(hashtextextended(%s || 'person@example.com', 1))"
    with holding(database_url, taken, str(make.client())):
        late = Later(lambda: attempt(make.database, key, replace(NONE, address=1), account_id="late"))
        wait_until_blocked(database_url)
        assert attempt(make.database, key, NONE, account_id="first") == "created"
    assert late.result() == "RateLimited"


def test_create_x_create_accounts_addresses_and_keys_at_random_never_deadlock(make: Factory) -> None:
    key = make.key()
    limits = CreateLimits(cooldown=0, max_waiting=1000, account=1000, address=1000, client=1000, caller=1000)

    def call(number: int) -> str:
        return attempt(
            make.database,
            key,
            limits,
            idempotency_key=f"k{number % 7}",
            account_id=f"a{number % 3}",
            email_canonical=f"p{number % 2}@example.com",
        )

    results = {result for _ in range(4) for result in together(24, call)}
    assert results <= {"created", "IdempotencyKeyConflict"}
