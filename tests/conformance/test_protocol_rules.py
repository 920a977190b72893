"""No rule of the lease protocol can be left out: the model checker finds a run that breaks a guarantee without it.

The rules, and what breaks, are the table of `docs/model/README.md`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.spin import MODEL, search

README = (MODEL.parent / "README.md").read_text(encoding="utf-8")
SOURCE = re.sub(r"/\*.*?\*/", "", MODEL.read_text(encoding="utf-8"), flags=re.S)
# | `rule` | what it says | `guarantee` | `NAME=1` … | the run | states |
ROWS = re.findall(r"^\| `(\w+)` \|[^|]*\| `(G\d\w+)` \| ([^|]*) \|", README, re.M)


def declared(first: str) -> set[str]:
    """The names of the `mtype` that begins with `first`."""
    found = re.search(rf"mtype = \{{ {first},(.*?)\}}", SOURCE, re.S)
    assert found
    return set(re.findall(r"\w+", found[1]))


@pytest.mark.parametrize(("rule", "guarantee", "names"), ROWS, ids=[row[0] for row in ROWS])
def test_without_this_rule_a_guarantee_breaks(rule: str, guarantee: str, names: str, tmp_path: Path) -> None:
    smaller = re.findall(r"`(\w+=\d)`", names)
    found = search(
        tmp_path,
        f"BROKEN={rule}",
        f"CHECK={guarantee}",
        *smaller,
        how="BFS",
        optimise="-O0",
        seconds=120,
    )
    assert found.errors == 1, found.output
    assert found.broken_guarantee == guarantee, found.timeline


def test_every_rule_is_tried_and_every_guarantee_can_break() -> None:
    assert sorted(rule for rule, _, _ in ROWS) == sorted(declared("nothing"))
    assert {guarantee for _, guarantee, _ in ROWS} == declared("everything")
    used = set(re.findall(r"without\((\w+)\)", SOURCE)) - {"rule"}
    assert used == declared("nothing")
