"""The documentation says what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import errors
from app.description import _SHAPES
from app.field_codes import FIELD_CODES
from app.schemas import ProblemSchema
from db import phases
from db.delivery_state import TERMINAL, TRANSITIONS, State
from db.phases import Status
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
    table = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (G\d+) \|.*\|(.*)\|$", table, re.M)
    assert [number for number, _ in rows] == [f"G{n}" for n in range(1, 13)]
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = {name for _, tests in rows for name in re.findall(r"`(test_\w+\.py)`", tests)}
    assert named - there == set()


def test_every_file_the_walk_through_names_exists() -> None:
    for name in re.findall(r"`((?:app|db|tasks)/[\w/]+\.(?:py|sql))`", ARCHITECTURE):
        assert (ROOT / name).is_file(), name


ERRORS = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
# What makes an `errors[].code`, and which of its arguments that is.
MAKERS = {
    **dict.fromkeys(("Complaint", "_refused", "Refused"), 0),
    **dict.fromkeys(("FieldError", "Fault", "_refuse", "_invalid", "_fault"), 1),
}


def test_the_table_of_problems_is_that_of_the_code() -> None:
    documented = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.*?) \| (.*) \|$", ERRORS, re.M)
    known = errors.by_code().values()
    assert sorted(documented) == sorted((p.code, str(p.status), p.title, p.detail) for p in known)


def test_the_table_of_field_codes_is_that_of_the_code() -> None:
    documented = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", ERRORS.partition("## Fields")[2], re.M)
    assert sorted(documented) == sorted((code, w.meaning, w.remedy) for code, w in FIELD_CODES.items())


def test_every_field_code_that_is_given_has_words_and_every_other_has_none() -> None:
    sources = [*(ROOT / "app").glob("*.py"), *(ROOT / "tasks").glob("branding*.py")]
    given = {code for path in sources for code in field_codes_of(path.read_text(encoding="utf-8"))}
    assert given == set(FIELD_CODES)


def field_codes_of(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            place = MAKERS.get(getattr(node.func, "id", getattr(node.func, "attr", "")))
            if place is not None and len(node.args) > place:
                code = node.args[place]
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    yield code.value


def test_the_members_of_their_own_that_problems_have_are_listed() -> None:
    listed = ERRORS.partition("members of their own")[2].partition("## Fields")[0]
    documented = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", listed, re.M))
    common = set(ProblemSchema().fields)
    assert documented == {
        (code, name) for code, shape in _SHAPES.items() for name in set(shape().fields) - common
    }


def test_the_limits_that_may_be_used_up_are_listed() -> None:
    listed = ERRORS.partition("| limit | counts |")[2].partition("\n\n")[0]
    documented = re.findall(r"^\| `(\w+)` \|", listed, re.M)
    sources = [*(ROOT / "app").glob("*.py"), *(ROOT / "db").glob("*.py")]
    given = [found for path in sources for found in limits_of(path.read_text(encoding="utf-8"))]
    assert sorted(documented) == sorted(given)


def limits_of(source: str) -> list[str]:
    return re.findall(r'\b(?:Bucket|RateLimited)\(\s*"(\w+)"', source)


def test_the_table_of_phases_is_that_of_the_code() -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`|any) \| `(\w+)` \| (yes|no) \|$", text, re.M)
    documented = {
        (status, state): (phase, answer == "yes")
        for status, named, phase, answer in rows
        for state in ([named] if named else State)
    }
    assert documented == {
        (status, state): (phases.phase(status, state), phases.retryable(status, state, None))
        for status in Status
        for state in State
    }


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
