"""Slots are bounded and named; scans start where the last claim ended."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from db.leases import BEGINNING, Lease
from tasks import slots
from tasks.slots import ScanStart, Slots
from tests.support.races import Later

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def lease(due_at: datetime, number: int = 7, action: str = "send") -> Lease:
    values: dict[str, Any] = dict.fromkeys(Lease.__slots__)
    values |= {"due_at": due_at, "claimed_at": NOW, "delivery_id": UUID(int=number), "action": action}
    return Lease(**values)


def test_no_more_slots_are_taken_than_there_are() -> None:
    two = Slots(2)
    with two.take() as first, two.take() as second:
        assert first != second
        assert re.fullmatch(r"[^:]+:\d+:\d+", first)
        third = Later(lambda: two.take().__enter__())
    assert third.result() in {first, second}


def test_the_first_claim_starts_at_the_beginning_and_the_next_where_it_ended() -> None:
    scan = ScanStart(interval=3600)
    old = NOW - timedelta(hours=1)
    with scan.next() as position:
        assert position == BEGINNING
    scan.claimed(lease(old))
    with scan.next() as position:
        assert position.pending == (old, UUID(int=7))
        assert position.unknown == BEGINNING.unknown


def test_a_scan_never_starts_closer_to_the_present_than_a_transaction_may_last() -> None:
    scan = ScanStart(interval=3600)
    scan.claimed(lease(NOW))
    assert scan.position.pending == (NOW - timedelta(seconds=5), UUID(int=0))


def test_a_row_found_behind_the_position_takes_the_scans_back_to_its_neighbours() -> None:
    scan = ScanStart(interval=3600)
    scan.claimed(lease(NOW - timedelta(hours=1)))
    scan.claimed(lease(NOW - timedelta(hours=2)))
    assert scan.position.pending[0] == NOW - timedelta(hours=2)


def test_a_rewound_scan_starts_at_the_beginning_once() -> None:
    scan = ScanStart(interval=3600)
    scan.claimed(lease(NOW - timedelta(hours=1)))
    for expected in (True, False):
        with scan.next() as position:
            assert (position == BEGINNING) is expected
    scan.rewind()
    with scan.next() as position:
        assert position == BEGINNING


def test_replays_have_a_position_of_their_own() -> None:
    scan = ScanStart(interval=3600)
    scan.claimed(lease(NOW - timedelta(hours=1), action="replay"))
    assert scan.position.pending == BEGINNING.pending
    assert scan.position.unknown[0] == NOW - timedelta(hours=1)


def test_one_claim_an_interval_starts_at_the_beginning_but_not_a_slow_one_so_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(slots.deadline, "now", lambda: clock[0])
    scan = ScanStart(interval=10)
    scan.claimed(lease(NOW - timedelta(hours=1)))

    def starts_at_the_beginning(takes: float = 0.0) -> bool:
        with scan.next() as position:
            clock[0] += takes
        return position == BEGINNING

    assert starts_at_the_beginning()
    assert not starts_at_the_beginning()
    clock[0] = 10.0
    assert starts_at_the_beginning(takes=1.0)
    clock[0] = 110.0
    assert not starts_at_the_beginning(), "a second of scanning is paid for with a hundred"
    clock[0] = 111.0
    assert starts_at_the_beginning()
