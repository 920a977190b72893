"""The feed against everything that writes: each change once, none missed, a delivery's in the order they happened."""

from __future__ import annotations

import threading
from collections import defaultdict
from uuid import UUID

from db import changes, deliveries, leases
from db.changes import FeedChange
from db.delivery_state import GateReason, Outcome
from tests.factories import Factory, terms
from tests.support.races import Later, holding, together, wait_until_blocked

COUNTER = "SELECT 1 FROM change_counter FOR UPDATE"


class Reader:
    """A host: it keeps its place, and reads until it is told to stop and nothing is left."""

    def __init__(self, make: Factory, stop: threading.Event, limit: int) -> None:
        self.make, self.stop, self.limit = make, stop, limit
        self.seen: list[FeedChange] = []

    def run(self) -> list[FeedChange]:
        after = 0
        while True:
            last_round = self.stop.is_set()
            page = changes.read(
                self.make.database, self.make.client(), after=after, limit=self.limit, numbered_at_once=3
            )
            self.seen += page.items
            after = page.end
            if last_round and not page.has_more:
                return self.seen


def in_table(make: Factory) -> dict[UUID | None, list[tuple[str | None, str]]]:
    """What happened to each delivery: a delivery's changes wait for each other, so ids are in their order."""
    rows = make.all("SELECT delivery_id, before, after FROM state_changes ORDER BY id")
    found: dict[UUID | None, list[tuple[str | None, str]]] = defaultdict(list)
    for row in rows:
        found[row["delivery_id"]].append((row["before"], row["after"]))
    return found


def in_feed(seen: list[FeedChange]) -> dict[UUID | None, list[tuple[str | None, str]]]:
    found: dict[UUID | None, list[tuple[str | None, str]]] = defaultdict(list)
    for change in seen:
        found[change.delivery_id].append((change.before, change.after))
    return found


def lives(make: Factory, number: int) -> None:
    """Deliveries that go through several states each."""
    for _ in range(3):
        make.waiting()
        # There are as many as claims; one that was passed over is free in a moment.
        while not (claimed := leases.claim(make.database, terms(owner=f"host:{number}:0"))):
            pass
        (lease,) = claimed
        assert make.hand_over(lease)
        make.settle(lease, Outcome.TRANSIENT, "mailbox_full")
        make.close_gate(lease.delivery_id, GateReason.SUPERSEDED)


def test_readers_x_writers_x_sweep_each_reader_sees_each_change_once_in_order(make: Factory) -> None:
    make.client()
    stop = threading.Event()
    readers = [Later(Reader(make, stop, limit).run) for limit in (1, 7, 100)]
    sweep = Later(lambda: _sweep_until(make, stop))
    together(6, lambda number: lives(make, number))
    stop.set()
    sweep.result()
    there = in_table(make)
    assert sum(map(len, there.values())) == 6 * 3 * 3
    for reader in readers:
        seen = reader.result()
        assert [change.seq for change in seen] == list(range(1, len(seen) + 1)), "a gap, or one twice"
        assert in_feed(seen) == there
    assert {len(reader.result()) for reader in readers} == {6 * 3 * 3}


def _sweep_until(make: Factory, stop: threading.Event) -> None:
    while not stop.is_set():
        changes.number(make.database, limit=2)


def test_a_reader_sees_transactions_that_commit_in_the_other_order_than_they_took_ids(
    make: Factory, database_url: str
) -> None:
    made = [make.waiting() for _ in range(4)]
    stop = threading.Event()
    reader = Reader(make, stop, 2)
    polling = Later(reader.run)
    opened = []
    for each in made:
        connection = make.database.transaction()
        tx = connection.__enter__()
        deliveries.close_gate(tx, deliveries.lock(tx, each.delivery_id), GateReason.SUPERSEDED)
        opened.append(connection)
    for number, connection in enumerate(reversed(opened)):
        connection.__exit__(None, None, None)
        _until_seen(reader, 4 + number + 1)
    stop.set()
    seen = polling.result()
    assert [change.seq for change in seen] == list(range(1, 9))
    closed = [change.delivery_id for change in seen if change.after == "expired"]
    assert closed == [each.delivery_id for each in reversed(made)]
    ids = make.all("SELECT id FROM state_changes WHERE after = 'expired' ORDER BY seq DESC")
    assert [row["id"] for row in ids] == sorted(row["id"] for row in ids), (
        "they took their ids the other way round"
    )


def _until_seen(reader: Reader, count: int) -> None:
    """Until the reader has so many: what is committed is read while older ids are still open."""
    waited = threading.Event()
    for _ in range(2000):
        if len(reader.seen) >= count:
            return
        waited.wait(0.005)
    raise AssertionError(f"{len(reader.seen)} changes seen, not {count}")


def test_reader_x_reader_the_second_waits_for_the_first_and_sees_the_same(
    make: Factory, database_url: str
) -> None:
    for _ in range(5):
        make.waiting()
    with holding(database_url, COUNTER):
        calls = [
            Later(lambda: changes.read(make.database, make.client(), after=0, limit=100)) for _ in range(3)
        ]
        wait_until_blocked(database_url, 3)
    pages = [call.result() for call in calls]
    assert pages[0] == pages[1] == pages[2]
    assert [change.seq for change in pages[0].items] == [1, 2, 3, 4, 5]


def test_reader_x_sweep_a_change_that_commits_while_the_reader_waits_is_in_its_answer(
    make: Factory, database_url: str
) -> None:
    make.waiting()
    with holding(database_url, COUNTER):
        waiting = Later(lambda: changes.read(make.database, make.client(), after=0, limit=100))
        wait_until_blocked(database_url)
        make.waiting()
    assert len(waiting.result().items) == 2


def test_reader_x_numberer_an_idle_feed_is_read_without_a_lock(make: Factory, database_url: str) -> None:
    make.waiting()
    changes.number(make.database)
    with holding(database_url, COUNTER):
        page = changes.read(make.database, make.client(), after=0, limit=100)
        assert len(page.items) == 1
        assert changes.read(make.database, make.client(), after=1, limit=100).items == ()
