"""Who counts as one caller."""

from __future__ import annotations

from uuid import uuid4

import pytest

from app.callers import _site
from db import admission
from db.config import CreateLimits


@pytest.mark.parametrize(
    "alike",
    [
        [
            "192.0.2.4",
            "192.0.2.4:51000",
            "192.0.2.4:51001",
            "::ffff:192.0.2.4",
            "2002:c000:204:1::1",
            "64:ff9b::192.0.2.4",
        ],
        ["2001:db8::1", "[2001:db8::2]", "[2001:db8::3]:443", "2001:db8::4%eth0"],
    ],
)
def test_neither_a_port_nor_a_place_in_ones_own_network_makes_another_caller(alike: list[str]) -> None:
    assert len({_site(text) for text in alike}) == 1


@pytest.mark.parametrize(
    "text", ["192.0.2.5", "2001:db8:0:1::1", "64:ff9b::192.0.2.5", "/run/socket", "", "[::1", "192.0.2.4:x"]
)
def test_others_are_others(text: str) -> None:
    assert _site(text) not in {_site("192.0.2.4"), _site("2001:db8::1")}


def test_one_clients_requests_do_not_fill_anothers_bucket() -> None:
    one, other = (admission.buckets(CreateLimits(), uuid4(), b"the same egress") for _ in range(2))
    assert not {(b.kind, b.subject) for b in one} & {(b.kind, b.subject) for b in other}
