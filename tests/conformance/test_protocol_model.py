"""The lease protocol, model-checked: in every order of events it keeps every guarantee.

`docs/model/README.md` says what is modelled. That no rule can be left out: `test_protocol_rules.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from db.delivery_state import TRANSITIONS
from tests.support.spin import MODEL, Search, search

README = (MODEL.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """The model as it stands, every state of it."""
    return search(tmp_path_factory.mktemp("whole"), "COVER", seconds=300)


def assert_right(found: Search) -> None:
    assert found.errors == 0, found.timeline
    assert found.is_complete, found.output


def test_the_protocol_keeps_every_guarantee(whole: Search) -> None:
    assert_right(whole)
    assert whole.states > 1_000_000


def test_a_pause_at_the_wire_costs_at_most_a_recorded_duplicate(tmp_path: Path) -> None:
    assert_right(search(tmp_path, "PAUSE_AT_THE_WIRE", seconds=300))


def test_a_settle_may_be_repeated(tmp_path: Path) -> None:
    assert_right(search(tmp_path, "SETTLE_AGAIN", "LEASES=2", seconds=120))


def test_no_run_goes_in_circles(tmp_path: Path) -> None:
    assert_right(search(tmp_path, "LEASES=2", how="NP", seconds=120))


def test_the_model_moves_the_row_as_the_code_does(whole: Search) -> None:
    table = {(str(b), str(event), str(a)) for (b, event), targets in TRANSITIONS.items() for a in targets}
    assert whole.taken() - table == set()
    left_out = set(re.findall(r"^- `(\w+) -> (\w+) by (\w+)`", README, re.M))
    of_operators = {move for move in table if move[1].startswith("operator_")}
    assert table - whole.taken() == {(b, event, a) for b, a, event in left_out} | of_operators
