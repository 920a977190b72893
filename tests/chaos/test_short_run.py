"""Two minutes of chaos: the whole system under load and under faults drawn from a fixed seed keeps every promise."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos import report
from tests.chaos.run import run

SEED, MINUTES = 1, 1.8


def open_to_passers_by(folder: Path) -> None:
    """As root PostgreSQL runs as another user, which must be able to get to its data."""
    for parent in (folder, *folder.parents):
        if parent == folder or parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o711)


def say(text: str) -> None:
    """For a failing run to show."""
    sys.stdout.write(f"{text}\n")


def test_two_minutes_of_faults_break_no_promise(tmp_path: Path) -> None:
    open_to_passers_by(tmp_path)
    outcome = run(SEED, MINUTES, tmp_path, say)
    for line in (*report.lines(outcome), *outcome.stories):
        say(line)
    assert [str(breach) for breach in outcome.breaches] == []
    assert len(outcome.injected) >= 25
    assert len(outcome.facts.verifications) >= 100, "there was hardly any load"
