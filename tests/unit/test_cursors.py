"""Cursors of lists: every position survives, nothing else is taken for one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import cursors
from db.listing import Order, Position

positions = st.builds(
    Position,
    order=st.sampled_from(Order),
    at=st.datetimes(datetime(1970, 1, 1), datetime(4000, 1, 1), timezones=st.just(UTC)),
    id=st.uuids(),
)


@given(positions)
def test_a_position_survives_to_the_microsecond(position: Position) -> None:
    text = cursors.encode(position)
    assert re.fullmatch(cursors.PATTERN, text)
    assert cursors.decode(text) == position


@given(st.from_regex(re.compile(cursors.PATTERN), fullmatch=True))
def test_every_text_of_the_described_form_is_a_cursor_and_the_only_one_of_its_position(text: str) -> None:
    assert cursors.encode(cursors.decode(text)) == text


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    if not re.fullmatch(cursors.PATTERN, text):
        with pytest.raises(ValueError, match="no cursor"):
            cursors.decode(text)


def test_the_format_stays_as_long_as_its_mark() -> None:
    """Hosts keep cursors over a deployment."""
    at = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    known = Position(Order.CREATED, at, UUID("01a22dce57c57462b69eafae1e780dd6"))
    assert cursors.encode(known) == "BAZJrdRLEkABoi3OV8V0Yraer64eeA3W"
