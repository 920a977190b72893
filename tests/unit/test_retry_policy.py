"""Tables of cases for pauses and budgets."""

from __future__ import annotations

import pytest

from tasks.retry_policy import step
from tests.factories import KEYED, SEARCHABLE, SMTP, policy


@pytest.mark.parametrize(("count", "seconds"), [(1, 60), (2, 300), (3, 900), (4, 900), (50, 900)])
def test_transient_backoff_repeats_its_last_value(count: int, seconds: float) -> None:
    assert policy().after_transient(count) == seconds


@pytest.mark.parametrize(("jitter", "seconds"), [(-1.0, 54.0), (0.0, 60.0), (1.0, 66.0)])
def test_jitter_is_a_tenth_either_way(jitter: float, seconds: float) -> None:
    assert policy(jitter=lambda: jitter).after_transient(1) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("count", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 80), (9, 900), (10_000, 900)]
)
def test_lost_leases_back_off_exponentially_within_bounds(count: int, seconds: float) -> None:
    assert policy().after_loss(count) == pytest.approx(seconds)


def test_lost_leases_spread_so_that_neighbours_of_a_poison_mail_part() -> None:
    assert policy(jitter=lambda: -1.0).after_loss(1) == pytest.approx(2.5)
    assert policy(jitter=lambda: 1.0).after_loss(1) == pytest.approx(7.5)


@pytest.mark.parametrize(
    ("provider", "checks", "replays", "seconds"),
    [
        (SMTP, 0, 0, None),
        (KEYED, 0, 0, 30),
        (KEYED, 1, 1, 120),
        (KEYED, 2, 2, 600),
        (KEYED, 3, 3, None),
        (SEARCHABLE, 0, 0, 30),
        (SEARCHABLE, 9, 0, 600),
    ],
)
def test_an_unknown_outcome_is_checked_where_the_provider_allows_it(
    provider: object, checks: int, replays: int, seconds: float | None
) -> None:
    assert policy(provider).check_again(provider.name, checks=checks, replays=replays) == seconds  # type: ignore[attr-defined, arg-type]


def test_a_provider_that_is_no_longer_configured_is_not_checked() -> None:
    assert policy(SMTP).check_again("gone/x", checks=0, replays=0) is None


def test_a_provider_that_is_away_is_tried_again_sooner_than_one_that_needs_somebody() -> None:
    assert policy().pauses("away") == (5, 15, 60, 300)
    assert policy().pauses("config") == (60, 300, 900)


@pytest.mark.parametrize(("count", "value"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_steps_count_from_one(count: int, value: int) -> None:
    assert step((1, 2), count) == value
