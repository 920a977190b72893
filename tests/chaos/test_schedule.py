"""The schedule of faults: a pure function of seed and length."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.chaos import faults
from tests.chaos.schedule import CALM_AFTER, CALM_BEFORE, KINDS, LINKS, PROCESSES, Fault, plan

SEEDS = range(20)


def test_the_same_seed_and_length_give_the_same_schedule() -> None:
    assert plan(7, 2) == plan(7, 2)
    assert len({plan(seed, 2) for seed in SEEDS}) == len(SEEDS)
    assert plan(7, 2) != plan(7, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_begin_after_a_calm_and_leave_one(seed: int) -> None:
    planned = plan(seed, 2)
    assert planned[0].at >= CALM_BEFORE
    assert list(planned) == sorted(planned, key=lambda fault: fault.at)
    assert max(fault.end for fault in planned if fault.kind != "redis_gone") <= 120 - CALM_AFTER


@pytest.mark.parametrize("seed", SEEDS)
def test_no_part_is_hurt_twice_at_a_time(seed: int) -> None:
    by_target: dict[str, list[Fault]] = {}
    for fault in plan(seed, 10):
        by_target.setdefault(fault.target, []).append(fault)
    for some in by_target.values():
        assert all(one.end < another.at for one, another in pairwise(some))


@pytest.mark.parametrize("seed", SEEDS)
def test_redis_goes_for_good_in_the_last_third(seed: int) -> None:
    (gone,) = [fault for fault in plan(seed, 2) if fault.kind == "redis_gone"]
    assert 80 <= gone.at < 100
    assert gone.end > 120


def test_half_an_hour_meets_every_kind_and_most_parts() -> None:
    planned = plan(7, 30)
    assert {fault.kind for fault in planned} == set(KINDS)
    met = Counter(fault.target for fault in planned)
    assert set(PROCESSES) <= set(met)
    assert len(set(LINKS) & set(met)) >= 0.9 * len(LINKS)


def test_two_minutes_have_many_faults() -> None:
    assert all(len(plan(seed, 2)) >= 30 for seed in SEEDS)


def test_every_kind_can_be_done_and_undone() -> None:
    assert set(faults.DEEDS) == set(KINDS)
