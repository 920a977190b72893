"""Runs the model checker on `docs/model/delivery.pml`: translate, compile, search, and the run that it found, if any."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MODEL = Path(__file__).parents[2] / "docs/model/delivery.pml"
_MEGABYTES = 2000
_DEEPEST = 5000  # steps; runs have a few hundred at most, and a search that gets there says so


@dataclass(frozen=True)
class Search:
    """What a search came to. `folder` holds the checker, and the trail of the run that it found."""

    folder: Path
    defines: tuple[str, ...]
    output: str

    @property
    def errors(self) -> int:
        return int(self._figure(r"errors: (\d+)"))

    @property
    def is_complete(self) -> bool:
        """Whether every state was visited: no limit of depth, memory or time ended it."""
        return not re.search(r"not completed|too small|out of memory|MEMLIM|interrupted", self.output)

    @property
    def states(self) -> int:
        return int(float(self._figure(r"^\s*(\S+) states, stored")))

    @cached_property
    def timeline(self) -> str:
        """The run that breaks a guarantee, a line a step, with the words of the model."""
        shown = _run(self.folder, "spin", *self.defines, "-t", MODEL.name, seconds=60)
        return "\n".join(
            line.strip() for line in shown.splitlines() if re.match(r"\s+\w+( \d)?: |spin:", line)
        )

    @property
    def broken_guarantee(self) -> str | None:
        """The name of the one that the run breaks."""
        failed = re.search(r"text of failed assertion: (.*)", self.timeline)
        return re.findall(r"!=(G\d\w+)", failed[1])[-1] if failed else None

    def taken(self) -> set[tuple[str, str, str]]:
        """(before, event, after) of every transition that a search with COVER took."""
        names = dict(re.findall(r'case (\d+): Printf\("(\w+)"\)', (self.folder / "pan.c").read_text()))
        lines = re.findall(r"^taken (\d+) (\d+) (\d+)$", self.output, re.M)
        return {(names[before], names[event], names[after]) for before, event, after in lines}

    def _figure(self, pattern: str) -> str:
        found = re.search(pattern, self.output, re.M)
        assert found, f"no {pattern} in:\n{self.output}"
        return found[1]


def search(folder: Path, *names: str, how: str = "SAFETY", optimise: str = "-O2", seconds: float) -> Search:
    """Search the model with these names defined. `how`: SAFETY (all states), BFS (the shortest run), NP (cycles)."""
    defines = tuple(f"-D{name}" for name in names)
    (folder / MODEL.name).write_bytes(MODEL.read_bytes())
    _run(folder, "spin", *defines, "-a", MODEL.name, seconds=60)
    search_for = {"SAFETY": ["-DSAFETY"], "BFS": ["-DSAFETY", "-DBFS"], "NP": ["-DNP"]}[how]
    compiler = ["gcc", optimise, "-w", *search_for, "-DCOLLAPSE", f"-DMEMLIM={_MEGABYTES}"]
    _run(folder, *compiler, "-o", "pan", "pan.c", seconds=120)
    options = {"SAFETY": [f"-m{_DEEPEST}", "-w24"], "BFS": ["-w20"], "NP": [f"-m{_DEEPEST}", "-w22", "-l"]}[
        how
    ]
    return Search(folder, defines, _run(folder, "./pan", *options, seconds=seconds))


def _run(folder: Path, *command: str, seconds: float) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
