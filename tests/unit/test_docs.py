"""The documentation says what the code does."""

from __future__ import annotations

import re

from db.delivery_state import TERMINAL, TRANSITIONS, State
from tests.unit.test_config import ROOT

ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_the_diagram_shows_every_transition_and_no_other() -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", ARCHITECTURE, re.M))
    allowed = {
        (before, after, event) for (before, event), targets in TRANSITIONS.items() for after in targets
    }
    assert drawn == allowed


def test_every_state_can_be_reached_and_every_live_one_left() -> None:
    reached = {after for targets in TRANSITIONS.values() for after in targets}
    assert reached | {State.PENDING} == set(State)
    assert {before for before, _ in TRANSITIONS} >= set(State) - TERMINAL


def test_every_test_that_proves_a_guarantee_exists() -> None:
    rows = re.findall(r"^\| (G\d+) \|.*\|(.*)\|$", ARCHITECTURE, re.M)
    assert [number for number, _ in rows] == [f"G{n}" for n in range(1, 13)]
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = {name for _, tests in rows for name in re.findall(r"`(test_\w+\.py)`", tests)}
    assert named - there == set()


def test_every_file_the_walk_through_names_exists() -> None:
    for name in re.findall(r"`((?:app|db|tasks)/[\w/]+\.(?:py|sql))`", ARCHITECTURE):
        assert (ROOT / name).is_file(), name
